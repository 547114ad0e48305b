"""Images without a libc of ours, Docker daemons elsewhere or in trouble, and owners that end by a signal."""

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import aiodocker
import pytest
from small_archives import archive
from stopwatch import Stopwatch
from uses import has_session_and_fork

from sandboxes.base import SandboxError, SandboxSpec, SandboxTimeout
from sandboxes.docker import DockerBackend
from sandboxes.owner import PREFIX

pytestmark = pytest.mark.docker


def busybox_root() -> bytes:
    """A root file system that holds nothing but busybox and the libraries it was linked with."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox on this machine")
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        tar.add(busybox, "bin/busybox")
        for library in {word for word in linked if word.startswith("/")}:
            tar.add(library, library)
        for applet in ("sh", "cat", "echo", "sleep", "ls", "grep", "id", "stat", "mkdir", "head", "tr", "setsid"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def bare_image(base_image):
    """An image without bash, /etc/passwd, /tmp, Python or anything else."""
    name = f"atropos-test-busybox:{os.getpid()}"
    subprocess.run(["docker", "import", "-", name], input=busybox_root(), check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "rmi", "-f", name], check=True, capture_output=True)


class TestBareImages:
    async def test_commands_files_and_limits_work(self, docker_backend, bare_image):
        async with docker_backend.open(SandboxSpec(bare_image, workdir="/work", env={"A": "b"})) as box:
            assert (await box.exec("pwd; echo $A; id -u; ls")).output == "/work\nb\n0\n"
            await box.write_file("deep/file", b"\xff\0")
            assert await box.read_file("deep/file") == b"\xff\0"
            assert (await box.exec("sleep 60", timeout=0.3)).timed_out
            assert (await box.exec("id -u", user="1000:1000")).output == "1000\n"

    async def test_sessions_work_without_bash(self, docker_backend, bare_image):
        async with docker_backend.open(SandboxSpec(bare_image)) as box:
            shell = await box.session()
            await shell.run("cd /bin; A='b c'; f() { echo in f; }")
            assert (await shell.run("pwd; echo $A; f")).output == "/bin\nb c\nin f\n"
            assert (await shell.run("exit 3")).exit_code == 3
            assert (await shell.run("pwd; echo $A")).output == "/bin\nb c\n"

    async def test_an_image_without_a_shell_runs_programs(self, docker_backend, bare_image):
        async with docker_backend.open(SandboxSpec(bare_image)) as box:
            await box.exec(["/bin/busybox", "rm", "/bin/sh"])
            assert (await box.exec(["/bin/busybox", "echo", "fine"])).output == "fine\n"
            assert (await box.exec("echo fine")).exit_code == 127


@pytest.mark.parametrize(
    ("workdir", "user", "error"),
    [("/sys", "root", OSError), ("/usr", "nobody", PermissionError)],
    ids=["mount", "folder"],
)
async def test_a_working_directory_that_cannot_be_written(docker_backend, base_image, workdir, user, error):
    async with docker_backend.open(SandboxSpec(base_image, workdir=workdir, user=user)) as box:
        assert (await box.exec("pwd")).output == f"{workdir}\n"
        assert "cannot create" in (await box.exec("echo x >new")).output
        shell = await box.session()
        assert (await shell.run("x=5; pwd")).output == f"{workdir}\n"
        assert (await shell.run("exit 3")).exit_code == 3
        assert (await shell.run("echo $x; pwd")).output == f"5\n{workdir}\n"
        for attempt in (
            box.write_file("new", b"x"),
            box.write_file("deep/new", b"x"),
            box.upload(archive({"a": b"1"}), "t"),
        ):
            with pytest.raises(error, match=f"{workdir}/"):
                await attempt
        await box.write_file("/tmp/new", b"x")
        assert await box.read_file("/tmp/new") == b"x"


class Relay:
    """The Docker daemon behind a TCP port, as on another machine; can stop answering and come back."""

    def __init__(self) -> None:
        self.silent = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        theirs, to_them = await asyncio.open_unix_connection(socket)
        await asyncio.gather(self._copy(reader, to_them), self._copy(theirs, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                while self.silent:  # noqa: ASYNC110  the test sets it
                    await asyncio.sleep(0.05)
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


class TestDaemonsElsewhere:
    async def test_everything_works_over_tcp(self, base_image):
        async with (
            Relay() as relay,
            DockerBackend(url=relay.url) as backend,
            backend.open(SandboxSpec(base_image, workdir="/app")) as box,
        ):
            await has_session_and_fork(box)


class TestTrouble:
    async def test_a_daemon_that_hangs_during_a_start_is_given_up(self, base_image):
        async with Relay() as relay, DockerBackend(url=relay.url, start_timeout_s=4) as backend:
            relay.silent = True
            watch = Stopwatch()
            with pytest.raises(SandboxTimeout):
                async with asyncio.timeout(20):
                    task = asyncio.create_task(backend.open(SandboxSpec(base_image)).__aenter__())
                    await asyncio.sleep(5)
                    relay.silent = False  # what was begun is then removed
                    await task
            assert watch.seconds < 20
            async with backend.open(SandboxSpec(base_image)) as box:
                assert (await box.exec("echo fine")).output == "fine\n"

    async def test_an_unknown_runtime_is_an_error_at_once(self, base_image):
        async with DockerBackend(runtime="no-such-runtime") as backend:
            with pytest.raises(SandboxError, match="no-such-runtime"):
                async with backend.open(SandboxSpec(base_image)):
                    pass


OWNER = """
import asyncio, contextlib, signal, sys
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

async def rollout(backend):
    async with backend.open(SandboxSpec(sys.argv[1])):
        ready.release()
        await asyncio.sleep(600)

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with DockerBackend(starter="docker") as backend, asyncio.TaskGroup() as rollouts:
        for _ in range(int(sys.argv[2])):
            rollouts.create_task(rollout(backend))
        for _ in range(int(sys.argv[2])):
            await ready.acquire()
        print(backend.owner.id, flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
ready = asyncio.Semaphore(0)
with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
    asyncio.run(main())
"""


async def ended_by(number: signal.Signals, image: str, count: int) -> tuple[str, float]:
    """An owner with `count` sandboxes that gets a signal: its id, and how many seconds it took to end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, image, str(count)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    owner = (await process.stdout.readline()).decode().strip()
    start = time.monotonic()
    process.send_signal(number)
    await process.wait()
    return owner, time.monotonic() - start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_leaves_nothing(base_image, number):
    owner, _ = await ended_by(number, base_image, 4)
    async with aiodocker.Docker() as daemon:
        assert await daemon.containers.list(all=True, filters={"label": [f"{PREFIX}owner={owner}"]}) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sixty_four_sandboxes_are_gone_ten_seconds_after_a_signal(base_image, number, capsys):
    owner, seconds = await ended_by(number, base_image, 64)
    with capsys.disabled():
        print(f"\n{number.name} with 64 sandboxes: {seconds:.1f} s")
    async with aiodocker.Docker() as daemon:
        assert await daemon.containers.list(all=True, filters={"label": [f"{PREFIX}owner={owner}"]}) == []
    assert seconds < 10
