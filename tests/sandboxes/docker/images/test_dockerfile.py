"""Dockerfiles as they are read: what needs BuildKit, what no builder reads, the images, the working directory."""

import pytest
from stopwatch import Stopwatch

from sandboxes.docker.images.dockerfile import Dockerfile, DockerfileError


def needs(text: str) -> list[tuple[int, str]]:
    return [(need.line, need.what) for need in Dockerfile.read(text).needs]


@pytest.mark.parametrize(
    ("lines", "needed"),
    [
        ("RUN <<EOF\nFROM nowhere\nEOF", [(2, "the here-document of RUN")]),
        ("RUN python3 - <<'END-1' > /x\nimport os\nEND-1\nRUN true", [(2, "the here-document of RUN")]),
        ("RUN cat <<  'END' > /x\npackage x\nEND\nRUN true", [(2, "the here-document of RUN")]),
        ("COPY <<-one <<two /x/\n\tone\nin two\n\tone\ntwo", [(2, "the here-document of COPY")]),
        ("ONBUILD RUN <<EOF\nx\nEOF", [(2, "the here-document of RUN")]),
        ("RUN true && \\\n  # a comment\n\n  cat <<EOF\nx\nEOF", [(2, "the here-document of RUN")]),
        ("RUN --mount=type=cache,target=/x \\\n  --network=none true", [(2, "RUN --mount"), (2, "RUN --network")]),
        ("copy --chmod=755 --link a /a", [(2, "COPY --chmod"), (2, "COPY --link")]),
        ("ADD --checksum=sha256:1 http://x /x", [(2, "ADD --checksum")]),
        ("ADD https://example.com/a/b.git#main /b", [(2, "ADD of a git repository")]),
        ("ADD git@example.com:a/b.git /b", [(2, "ADD of a git repository")]),
        ("ADD https://example.com/a.tar.gz https://example.com/x.git.txt /b", []),
        ("ARG TARGETARCH\nRUN echo $TARGETARCH", [(2, "ARG TARGETARCH")]),
        ("ARG TARGETARCH=amd64", []),
        ("COPY --from=0 --chown=1:1 a /a", []),
        ("HEALTHCHECK --interval=1s CMD true", []),
        ("RUN echo '<<EOF' \"<<EOF\" $((1<<2)) <<<here x<<EOF", []),
        ("RUN echo $((1 << 2)) && test 1 << 2", []),
        ("# RUN <<EOF\nRUN echo --mount=x", []),
        ("RUN grep -- --mount /x", []),
        ("ENV X=<<EOF", []),
    ],
)
def test_what_needs_buildkit_is_found_with_its_line(lines, needed):
    assert needs(f"FROM x\n{lines}\n") == needed


def test_a_platforms_variable_in_from_needs_buildkit():
    assert needs("FROM --platform=$BUILDPLATFORM x\n") == [(1, "FROM $BUILDPLATFORM")]
    assert needs("FROM --platform=linux/amd64 x\n") == []


def test_a_frontend_of_dockers_own_needs_nothing_and_another_one_reads_all():
    assert needs("# syntax=docker/dockerfile:1.7-labs\nFROM x\n") == []
    other = "# syntax = mine/frontend:2\nANYTHING goes\n"
    assert needs(other) == [(1, "# syntax=mine/frontend:2")]
    assert Dockerfile.read(other).pulled == ["mine/frontend:2"]
    assert Dockerfile.read("FROM x\n# syntax=mine/frontend:2\n").syntax is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no FROM"),
        ("RUN true\n", "no FROM"),
        ("FROM\n", "line 1: FROM names no image"),
        ("FROM x\n\nRUN true\nRUNN false\n", "line 4: there is no instruction RUNN"),
        ("FROM x\nRUN a \\\n  b\nc\n", "line 4: there is no instruction C"),
        ("FROM x\nRUN true\nRUN <<EOF\ntrue\n EOF\n", "line 3: the here-document EOF has no end"),
    ],
)
def test_what_no_builder_reads_is_said_with_its_line(text, expected):
    with pytest.raises(DockerfileError, match=expected):
        Dockerfile.read(text)


def test_another_escape_and_line_ends_of_windows_are_read():
    assert needs("# escape=`\r\nFROM x\r\nRUN a `\r\n  <<EOF\r\n\\\r\nEOF\r\n") == [(3, "the here-document of RUN")]


def test_the_images_that_it_takes_are_known_as_far_as_they_are_named():
    text = """ARG BASE=python
ARG VERSION=3.12
FROM ${BASE}:$VERSION-slim AS build
FROM --platform=linux/amd64 Build AS other
COPY --from=build /a /a
COPY --from=ghcr.io/uv:${TAG:-1} /uv /uv
RUN --mount=type=bind,from=tools:2,target=/t --mount=type=bind,from=other,target=/o true
FROM $UNKNOWN
FROM scratch
"""
    assert Dockerfile.read(text).images == ["python:3.12-slim", "ghcr.io/uv:1", "tools:2"]


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("FROM x\nWORKDIR /app\n", None),
        ("FROM x\nRUN cd /app\n", "x"),
        ("FROM x AS a\nWORKDIR /app\nFROM y\n", "y"),
        ("FROM x AS a\nWORKDIR /app\nFROM z AS b\nFROM A\n", None),
        ("FROM x AS a\nFROM a AS b\nFROM b\n", "x"),
        ("# syntax=mine/frontend\nFROM x\n", None),
    ],
)
def test_a_working_directory_is_that_of_the_stage_that_is_built_or_of_what_it_begins_from(text, image):
    assert Dockerfile.read(text).workdir_of() == image


def test_the_image_that_the_last_stage_begins_from_may_be_another():
    assert Dockerfile.read("FROM x AS a\nWORKDIR /app\nFROM a\n").workdir_of("base") == "base"
    assert Dockerfile.read("FROM x\nWORKDIR /app\n").workdir_of("base") is None


def test_the_last_instruction_of_a_kind_is_that_of_the_stages_that_make_the_image():
    text = 'FROM x AS a\nUSER one\nENTRYPOINT ["/a"]\nFROM y AS b\nUSER other\nFROM a\nENTRYPOINT \\\n run it\n'
    made = Dockerfile.read(text)
    assert (made.last("USER"), made.last("ENTRYPOINT"), made.last("SHELL")) == ("one", "run it", None)
    assert Dockerfile.read("# syntax=mine/frontend\nFROM x\nUSER one\n").last("USER") is None


def test_a_small_file_takes_neither_much_memory_nor_time():
    """Values that double in each line, and blanks that could end a directive anywhere."""
    doubling = "".join(f"ARG A{n + 1}=$A{n}$A{n}\n" for n in range(40))
    watch = Stopwatch()
    assert Dockerfile.read(f"ARG A0=a\n{doubling}FROM x:$A3\nCOPY --from=y:$A40 a /a\n").images == ["x:aaaaaaaa"]
    assert Dockerfile.read(f"# syntax=a{' ' * 30_000}b\nFROM x\n").syntax is not None
    assert watch.seconds < 5
