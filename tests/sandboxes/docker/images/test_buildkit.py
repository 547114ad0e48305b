"""BuildKit by the Docker daemon's API: what goes to it, what no daemon is given, and whose fault a failure is."""

import base64
import io
import json
import re
import tarfile
import time

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from sandboxes.base import ImageMissing, ImageUnbuildable, SandboxError, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.client import DaemonClient, connect
from sandboxes.docker.images.buildkit import Builder
from sandboxes.docker.images.dockerfile import Dockerfile
from sandboxes.docker.images.store import ImageStore

HERE = "FROM x\nRUN <<EOF\ntrue\nEOF\n"
MOUNT = "FROM x\nRUN --mount=type=cache,target=/c true\n"
SYNTAX = "# syntax=docker/dockerfile:1\n"


@pytest.mark.parametrize(
    ("version", "text", "lacks"),
    [
        ((20, 10), "FROM x\n", None),
        ((20, 10), MOUNT, None),
        ((20, 10), HERE, "line 2: the here-document of RUN needs BuildKit of Docker 23.0 or later.*daemon is 20.10"),
        ((20, 10), SYNTAX + HERE, None),
        ((23, 0), HERE, None),
        ((28, 1), HERE.replace("<<", "<< "), "Docker 28.2 or later.*daemon is 28.1"),
        ((18, 6), MOUNT, "line 2: RUN --mount needs BuildKit of Docker 20.10"),
        ((18, 6), SYNTAX + HERE, "line 3"),
        (None, HERE, None),
    ],
)
def test_a_daemon_lacks_what_is_newer_than_it(version, text, lacks):
    found = Builder(version).find_obstacle(Dockerfile.read(text))
    if lacks is None:
        assert found is None
    else:
        with pytest.raises(AssertionError, match=lacks):
            raise AssertionError(found)


def test_a_frontend_from_elsewhere_is_taken_only_where_the_daemons_own_does_not_do():
    text = SYNTAX + HERE
    assert Builder((23, 0)).adapt_dockerfile(text, Dockerfile.read(text)) == "#\n" + HERE
    assert Builder((20, 10)).adapt_dockerfile(text, Dockerfile.read(text)) == text
    other = "# syntax=mine/frontend\nFROM x\n"
    assert Builder((27, 5)).adapt_dockerfile(other, Dockerfile.read(other)) == other


class FakeDaemon:
    """A Docker daemon of a version, with the image x alone. builds: what it was asked for; answer: what it says."""

    def __init__(self, server: HTTPServer, version: str, answer: Response | None = None) -> None:
        self.builds: list[tuple[dict[str, str], str]] = []
        self.answer = answer or Response(json.dumps({"stream": "done\n"}) + "\n")
        self.url = server.url_for("").rstrip("/")
        server.expect_request("/v1.41/version").respond_with_json({"Version": version, "ApiVersion": "1.41"})
        server.expect_request("/v1.41/images/x/json").respond_with_json({"Id": "x"})
        missing = {"message": "No such image"}
        server.expect_request(re.compile("/v1.41/images/(atropos-task|far/).*")).respond_with_json(missing, 404)
        server.expect_request("/v1.41/build").respond_with_handler(self._build)

    def _build(self, request: Request) -> Response:
        with tarfile.open(fileobj=io.BytesIO(request.get_data())) as tar:
            dockerfile = tar.extractfile("Dockerfile").read().decode()
        self.builds.append((dict(request.args), dockerfile))
        return self.answer

    async def build(self, context) -> None:
        async with DaemonClient(self.url, api_version="v1.41") as client:
            await ImageStore(client, None).ensure(None, context)


def context_of(tmp_path, text):
    (tmp_path / "Dockerfile").write_text(text)
    return tmp_path


async def test_the_classic_builder_is_never_given_buildkits_syntax(httpserver, tmp_path):
    for text in (HERE, MOUNT, "FROM x\nCOPY --chmod=755 Dockerfile /d\n", SYNTAX + HERE):
        daemon = FakeDaemon(httpserver, "27.5.1")
        await daemon.build(context_of(tmp_path, text))
        ((params, sent),) = daemon.builds
        assert params["version"] == "2"
        assert sent == text.replace(SYNTAX, "#\n")
        httpserver.clear()
    daemon = FakeDaemon(httpserver, "27.5.1")
    await daemon.build(context_of(tmp_path, "FROM x\nRUN true\n"))
    assert "version" not in daemon.builds[0][0]


async def test_a_daemon_that_is_too_old_is_asked_for_nothing(httpserver, tmp_path):
    daemon = FakeDaemon(httpserver, "20.10.24+dfsg1")
    with pytest.raises(ImageUnbuildable, match=r"Dockerfile: line 2: the here-document"):
        await daemon.build(context_of(tmp_path, HERE))
    assert daemon.builds == []


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ("dockerfile parse error on line 2: unknown instruction: X", ImageUnbuildable),
        ('failed to calculate checksum of ref 1::2: "/gone": not found', ImageUnbuildable),
        ('process "/bin/sh -c pip install x" did not complete successfully: exit code: 1', SandboxError),
        ("pull access denied for y, repository does not exist", ImageMissing),
    ],
)
async def test_a_failure_is_the_dockerfiles_where_it_comes_again(httpserver, tmp_path, expected, error):
    trace = field(1, field(3, b"[1/2] RUN it")) * 2 + field(3, field(4, b"the reason\n"))
    lines = [
        {"id": "moby.buildkit.trace", "aux": base64.b64encode(trace).decode()},
        {"errorDetail": {"message": expected}, "error": expected},
    ]
    daemon = FakeDaemon(httpserver, "27.5.1", Response("\n".join(map(json.dumps, lines))))
    with pytest.raises(SandboxError) as caught:
        await daemon.build(context_of(tmp_path, MOUNT))
    assert type(caught.value) is error
    assert f"{expected}\n[1/2] RUN it\nthe reason" in str(caught.value)


@pytest.mark.parametrize(
    ("step", "missing"), [("1/2 : FROM x", "x"), ("2/2 : COPY --from=far/tools:2 /a /b", "far/tools:2")]
)
async def test_the_remedy_for_a_missing_image_names_the_image_of_the_last_step(httpserver, tmp_path, step, missing):
    error = "Get https://far/v2/: dial tcp: lookup far on 10.0.0.1:53: no such host"
    lines = [{"stream": f"Step {step}\n"}, {"errorDetail": {"message": error}, "error": error}]
    daemon = FakeDaemon(httpserver, "27.5.1", Response("\n".join(map(json.dumps, lines))))
    with pytest.raises(ImageMissing, match=f"Image '{missing}' is not on this host"):
        await daemon.build(context_of(tmp_path, "FROM x\nCOPY --from=far/tools:2 /a /b\n"))


async def test_what_the_daemon_refuses_to_read_is_built_once(httpserver, tmp_path):
    refused = Response(json.dumps({"message": "dockerfile parse error line 2: Unknown flag: x"}), 400)
    daemon = FakeDaemon(httpserver, "27.5.1", refused)
    context_of(tmp_path, "FROM x\nEXPOSE --x\n")
    async with DaemonClient(daemon.url, api_version="v1.41") as client:
        images = ImageStore(client, None)
        for _ in range(3):
            with pytest.raises(ImageUnbuildable, match="Unknown flag"):
                await images.ensure(None, tmp_path)
    assert len(daemon.builds) == 1


@pytest.mark.docker
class TestRealDaemon:
    async def test_buildkit_builds_what_the_classic_builder_can_not(self, docker_backend, base_image, tmp_path):
        lines = "RUN --mount=type=cache,target=/c echo made > /made\nCOPY --chmod=741 Dockerfile /kept\nWORKDIR /w\n"
        context = context_of(tmp_path, f"{SYNTAX}FROM {base_image}\n# {time.time_ns()}\n{lines}")
        image = await docker_backend.ensure_image(None, context)
        async with docker_backend.open(SandboxSpec(image)) as box:
            assert (await box.exec("pwd; cat /made; stat -c %a /kept")).output == "/w\nmade\n741\n"
        await docker_backend.client.images.delete(image, force=True)

    async def test_here_documents_are_built_or_refused(self, docker_backend, base_image, tmp_path):
        text = f"FROM {base_image}\n# {time.time_ns()}\nRUN <<EOF\necho body > /body\nEOF\n"
        async with connect() as client:
            known = Builder((await Builder.of(client)).version).find_obstacle(Dockerfile.read(text)) is None
        if not known:
            with pytest.raises(ImageUnbuildable, match=r"line 3: the here-document of RUN needs BuildKit"):
                await docker_backend.ensure_image(None, context_of(tmp_path, text))
            return
        image = await docker_backend.ensure_image(None, context_of(tmp_path, text))
        async with docker_backend.open(SandboxSpec(image)) as box:
            assert await box.read_file("/body") == b"body\n"
        await docker_backend.client.images.delete(image, force=True)

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("HEALTHCHECK --nothing=1 CMD true", "nothing"),
            ("COPY gone /gone", "gone"),
            ("RUN --mount=type=nothing true", "nothing"),
            ("COPY --chmod=755 gone /gone", "gone"),
        ],
    )
    async def test_a_dockerfile_that_is_wrong_is_told_from_a_command_that_fails(
        self, docker_backend, base_image, tmp_path, lines, expected
    ):
        with pytest.raises(ImageUnbuildable, match=expected):
            await docker_backend.ensure_image(None, context_of(tmp_path, f"FROM {base_image}\n{lines}\n"))

    @pytest.mark.parametrize("option", ["", "--mount=type=cache,target=/c "])
    async def test_a_failing_command_shows_what_it_printed_and_may_pass(
        self, docker_backend, base_image, tmp_path, option
    ):
        with pytest.raises(SandboxError, match="the reason") as caught:
            lines = f"RUN {option}echo the reason; exit 3"
            await docker_backend.ensure_image(None, context_of(tmp_path, f"FROM {base_image}\n{lines}\n"))
        assert not isinstance(caught.value, ImageUnbuildable)

    async def test_an_image_that_buildkit_would_pull_is_named_with_its_remedy(self, base_image, tmp_path):
        async with DockerBackend() as backend:
            with pytest.raises(ImageMissing, match=r"localhost:1/no/such:1(.|\n)*base_image"):
                text = "ARG X=localhost:1\nFROM $X/no/such:1\nRUN --mount=type=cache,target=/c true\n"
                await backend.ensure_image(None, context_of(tmp_path, text))
