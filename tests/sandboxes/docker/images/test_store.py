"""Images: present, pulled, or built from a directory with a Dockerfile."""

import asyncio
import contextlib
import json
import os
import threading
import time
from pathlib import Path

import aiodocker
import pytest
from small_archives import content, members
from stopwatch import Stopwatch
from werkzeug import Response

from sandboxes.base import ImageMissing, ImageUnbuildable, SandboxError, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.client import DaemonClient, connect
from sandboxes.docker.images.store import ImageStore, pack_context, replace_base


class TestBuildContext:
    def test_its_digest_follows_content_mode_and_names_but_not_times(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\n")
        file = tmp_path / "file"
        file.write_text("1")
        seen = {pack_context(tmp_path, None)[1]}
        os.utime(file, (1, 1))
        assert pack_context(tmp_path, None)[1] in seen
        for change in (
            lambda: file.write_text("2"),
            lambda: file.chmod(0o755),
            lambda: file.rename(tmp_path / "other"),
        ):
            change()
            digest = pack_context(tmp_path, None)[1]
            assert digest not in seen
            seen.add(digest)
        assert pack_context(tmp_path, "b")[1] not in seen

    def test_it_may_be_a_link_and_so_may_its_dockerfile(self, tmp_path):
        for name in ("context", "shared"):
            (tmp_path / name).mkdir()
        (tmp_path / "shared/Dockerfile").write_text("FROM a\n")
        (tmp_path / "context/Dockerfile").symlink_to("../shared/Dockerfile")
        (tmp_path / "link").symlink_to("context")
        for context in (tmp_path / "context", tmp_path / "link"):
            assert content(pack_context(context, None)[0], "Dockerfile") == b"FROM a\n"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("FROM a\nRUN x\n", "FROM base\nRUN x\n"),
            (
                "from a:1 as build\nFROM --platform=linux/amd64 b AS last\n",
                "from a:1 as build\nFROM --platform=linux/amd64 base AS last\n",
            ),
            ("# FROM c\nFROM a\nRUN echo FROM b\n", "# FROM c\nFROM base\nRUN echo FROM b\n"),
        ],
    )
    def test_the_last_stage_gets_another_base(self, before, after):
        assert replace_base(before, "base") == after


class TestDockerignore:
    def test_what_it_names_is_left_out_and_changes_no_digest(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\n")
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "file").write_text("1")
        (tmp_path / ".dockerignore").write_text("# a comment\n*.log\nsecret/\n!important.log\n")
        seen = pack_context(tmp_path, None)[1]
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "key").write_text("1")
        (tmp_path / "a.log").write_text("1")
        archive, digest = pack_context(tmp_path, None)
        assert digest == seen
        assert set(members(archive)) == {".dockerignore", "Dockerfile", "kept", "kept/file"}
        (tmp_path / "important.log").write_text("1")
        assert "important.log" in members(pack_context(tmp_path, None)[0])


@pytest.fixture
async def daemon():
    async with aiodocker.Docker() as client:
        yield client


async def remove_images(daemon: aiodocker.Docker, *names: str) -> None:
    for name in names:
        await daemon.images.delete(name, force=True)


@pytest.mark.docker
class TestImagesThatHaveGone:
    @pytest.fixture
    async def store(self, daemon, base_image):
        """A store that makes an image `atropos-test-base` of the base image."""
        self.made = 0

        async def make() -> None:
            self.made += 1
            await daemon.images.tag(base_image, "atropos-test-base", tag="x")

        async with connect() as client:
            yield ImageStore(client, None, makers={"atropos-test-base:x": make})
        await remove_images(daemon, "atropos-test-base:x")

    async def test_one_that_we_can_make_is_made_again(self, store, daemon):
        for _ in range(2):
            assert await store.ensure("atropos-test-base:x", None) == "atropos-test-base:x"
        assert self.made == 1
        await remove_images(daemon, "atropos-test-base:x")
        await store.ensure("atropos-test-base:x", None)
        assert self.made == 2

    async def test_one_that_somebody_brings_back_is_not_waited_for(self, daemon, base_image, monkeypatch):
        monkeypatch.setattr("sandboxes.docker.images.store.LOOKS_S", 0.05)
        ended = []

        async def takes_minutes() -> None:
            try:
                await daemon.images.tag(base_image, "atropos-test-base", tag="brought")
                await asyncio.sleep(3600)
            finally:
                ended.append(True)

        async with connect() as client, asyncio.timeout(120):
            store = ImageStore(client, None, makers={"atropos-test-base:brought": takes_minutes})
            assert await store.ensure("atropos-test-base:brought", None) == "atropos-test-base:brought"
        assert ended, "it is not made any more"
        await remove_images(daemon, "atropos-test-base:brought")

    async def test_what_is_built_from_it_is_built_again(self, store, daemon, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM atropos-test-base:x\nENV A=1\n")
        tag = await store.ensure(None, tmp_path)
        await remove_images(daemon, tag, "atropos-test-base:x")
        assert await store.ensure(None, tmp_path) == tag
        assert self.made == 2
        await remove_images(daemon, tag)


@pytest.mark.docker
@pytest.mark.parametrize("step", ["ENV A=1", "RUN --mount=type=tmpfs,target=/x true"], ids=["classic", "BuildKit"])
async def test_an_image_is_built_again_once_its_base_is_another_but_not_during_a_run(
    daemon, base_image, tmp_path, step
):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "Dockerfile").write_text(f"FROM {base_image}\nENV MADE={time.time_ns()}\n")
    (tmp_path / "Dockerfile").write_text(f"FROM atropos-test-base:moving\nCOPY base /base\n{step}\n")

    async def identity(store: ImageStore) -> str:
        return (await daemon.images.inspect(await store.ensure(None, tmp_path)))["Id"]

    async with connect() as client:
        await daemon.images.tag(base_image, "atropos-test-base", tag="moving")
        run = ImageStore(client, None)
        first = await identity(run)
        assert await identity(ImageStore(client, None)) == first, "nothing has changed"
        other = await run.ensure(None, tmp_path / "base")
        await daemon.images.tag(other, "atropos-test-base", tag="moving")
        assert await identity(run) == first
        second = await identity(ImageStore(client, None))
        assert second != first
        await remove_images(daemon, "atropos-test-base:moving")
        assert await identity(ImageStore(client, None)) == second, "a base that is gone is no other"
    await remove_images(daemon, second, other)
    with contextlib.suppress(aiodocker.DockerError):  # containerd's store keeps no image without a name
        await remove_images(daemon, first)


async def test_a_pull_that_says_nothing_is_given_up(httpserver, monkeypatch):
    def answer(_request):
        def lines():
            yield b'{"status": "Pulling"}\n'
            over.wait(20)

        return Response(lines())

    over = threading.Event()
    monkeypatch.setattr("sandboxes.docker.images.store.SILENT_S", 0.2)
    httpserver.expect_request("/v1.41/images/x/json").respond_with_json({"message": "No such image"}, 404)
    httpserver.expect_request("/v1.41/images/create").respond_with_handler(answer)
    async with DaemonClient(httpserver.url_for("").rstrip("/"), api_version="v1.41") as client:
        with pytest.raises(ImageMissing, match=r"pull image x: nothing came for 0\.2 s\nImage 'x' is not on this host"):
            await asyncio.wait_for(ImageStore(client, None).ensure("x", None), 10)
    over.set()


@pytest.mark.docker
class TestImages:
    async def test_a_build_that_failed_leaves_no_images_behind(self, daemon, base_image, tmp_path):
        mark = f"made-by-a-test={time.time_ns()}"

        async def left():
            filters = json.dumps({"label": [mark]})
            return await daemon._query_json("images/json", params={"all": "1", "filters": filters})

        context = _context(tmp_path, f"LABEL {mark}\nRUN echo >/made\nRUN exit 3", base_image)
        async with connect() as client:
            store = ImageStore(client, None)
            for _ in range(2):
                with pytest.raises(SandboxError, match="exit 3"):
                    await store.ensure(None, context)
            assert len(await left()) == 2, "another try goes on from there"
            await store.remove_leftovers()
        assert not await left()

    async def test_a_present_image_is_taken(self, docker_backend, base_image):
        assert await docker_backend.ensure_image(base_image) == base_image

    async def test_a_missing_image_says_what_to_do(self, docker_backend):
        with pytest.raises(ImageMissing) as caught:
            await docker_backend.ensure_image("localhost:1/no/such-image:1")
        for hint in ("localhost:1/no/such-image:1", "docker load", "registry", "--env.base_image or --base-image"):
            assert hint in str(caught.value)

    async def test_opening_a_missing_image_raises(self, docker_backend):
        with pytest.raises(ImageMissing, match="no-such-image"):
            async with docker_backend.open(SandboxSpec("no-such-image:1")):
                pass

    async def test_concurrent_callers_share_one_build(self, docker_backend, daemon, tmp_path):
        context = _context(tmp_path, f"RUN echo {time.time_ns()} >/made; sleep 1")
        watch = Stopwatch()
        names = await asyncio.gather(*(docker_backend.ensure_image(None, context) for _ in range(6)))
        assert len(set(names)) == 1
        assert watch.seconds < 6  # six builds in a row would take longer
        watch = Stopwatch()
        assert await docker_backend.ensure_image(None, context) == names[0]
        assert watch.seconds < 1
        await remove_images(daemon, names[0])

    async def test_other_content_makes_another_image(self, docker_backend, daemon, tmp_path, base_image):
        context = _context(tmp_path, "COPY data /data")
        (context / "data").write_text("one")
        first = await docker_backend.ensure_image(None, context)
        (context / "data").write_text("two")
        second = await docker_backend.ensure_image(None, context)
        assert first != second
        async with docker_backend.open(SandboxSpec(second)) as box:
            assert await box.read_file("/data") == b"two"
        await remove_images(daemon, first, second)

    async def test_files_without_a_dockerfile_come_into_the_images_directory(self, docker_backend, daemon, tmp_path):
        inner = _context(tmp_path, "WORKDIR /srv/here\nUSER games")
        named = await docker_backend.ensure_image(None, inner)
        files = tmp_path / "files"
        (files / "sub").mkdir(parents=True)
        (files / "sub/data").write_text("one")
        (files / "again").hardlink_to(files / "sub/data")
        image = await docker_backend.ensure_image(named, files)
        async with docker_backend.open(SandboxSpec(image)) as box:
            assert (await box.exec("pwd; id -un; find . -type f | sort; cat again")).output == (
                "/srv/here\ngames\n./again\n./sub/data\none"
            )
        with pytest.raises(ImageMissing, match="no/such"):
            await docker_backend.ensure_image("localhost:1/no/such:1", files)
        await remove_images(daemon, image, named)

    async def test_a_links_target_stays_out_of_the_context(self, docker_backend, daemon, tmp_path):
        context = _context(tmp_path, "COPY . /all")
        (tmp_path / "secret").write_text("host")
        (context / "link").symlink_to(tmp_path / "secret")
        image = await docker_backend.ensure_image(None, context)
        async with docker_backend.open(SandboxSpec(image)) as box:
            assert (await box.exec("readlink /all/link; cat /all/link")).output.startswith(f"{tmp_path}/secret\ncat:")
        await remove_images(daemon, image)

    async def test_a_failing_build_shows_the_end_of_its_log(self, docker_backend, tmp_path):
        context = _context(tmp_path, "RUN echo the reason; exit 3")
        with pytest.raises(SandboxError, match="the reason") as caught:
            await docker_backend.ensure_image(None, context)
        assert "3" in str(caught.value)

    async def test_a_build_that_does_not_end_is_given_up(self, docker_backend, daemon, tmp_path, monkeypatch):
        monkeypatch.setattr("sandboxes.patience.BUILD_S", 3.0)
        with pytest.raises(ImageUnbuildable, match=r"did not end within 3 s"):
            await docker_backend.ensure_image(None, _context(tmp_path, "RUN sleep 1234"))
        async with asyncio.timeout(30):
            while "sleep 1234" in str(await daemon._query_json("containers/json")):  # noqa: ASYNC110 - the daemon tells no one
                await asyncio.sleep(0.2)

    async def test_a_dockerfile_whose_base_cannot_be_had_says_what_to_do(self, base_image, tmp_path):
        context = _context(tmp_path, "RUN true", base="localhost:1/no/such-base:1")
        async with DockerBackend() as backend:
            with pytest.raises(ImageMissing, match=r"such-base:1(.|\n)*base_image"):
                await backend.ensure_image(None, context)

    async def test_the_images_user_directory_and_environment_hold(self, docker_backend, daemon, tmp_path):
        lines = "RUN useradd -m -u 1234 -G games dev\nENV TOOL=hammer\nUSER dev\nWORKDIR /home/dev"
        image = await docker_backend.ensure_image(None, _context(tmp_path, lines))
        async with docker_backend.open(SandboxSpec(image)) as box:
            assert box.workdir == "/home/dev"
            shown = await box.exec("id -un; id -Gn; pwd; echo $HOME $TOOL")
            assert shown.output == "dev\ndev games\n/home/dev\n/home/dev hammer\n"
            await box.write_file("mine", b"1")
            assert (await box.exec("stat -c %U mine")).output == "dev\n"
            with pytest.raises(PermissionError):
                await box.write_file("/etc/passwd", b"")
            with pytest.raises(PermissionError):
                await box.read_file("/etc/shadow")
            assert (await box.exec("id -u; echo $HOME", user="root")).output == "0\n/root\n"
            assert (await box.exec("id -u; id -g", user="77:88")).output == "77\n88\n"
            assert (await box.exec("sleep 60", timeout=0.2)).timed_out
            with pytest.raises(SandboxError, match="no user 'stranger'"):
                await box.exec("true", user="stranger")
        await remove_images(daemon, image)


def _context(tmp_path: Path, lines: str, base: str = "debian:unobtainable") -> Path:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {base}\n{lines}\n")
    return context
