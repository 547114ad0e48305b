"""The container engine: reaching it, the errors it gives, and starting one where there is none."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiodocker
import aiohttp

from sandboxes.base import (
    EngineTrouble,
    EngineUnavailable,
    ImageMissing,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
    StorageFull,
)
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_LOG = Path("/var/log/atropos-dockerd.log")
_LOCK = Path("/run/atropos-dockerd.lock")
_STARTUP_S = 60.0
_SSH_S = 20.0
_SSH_OPTIONS = [
    *("-o", "BatchMode=yes"),
    *("-o", "ExitOnForwardFailure=yes"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "StreamLocalBindUnlink=yes"),
]
_REMEDY = (
    "Start Docker (`systemctl start docker`, Docker Desktop), set DOCKER_HOST, or, as root on Debian or Ubuntu, "
    "run `python -m sandboxes setup`, which installs and starts one."
)


@asynccontextmanager
async def reach(url: str | None) -> AsyncIterator[str | None]:
    """The address to connect to. For ssh:// it is a socket of this machine that leads to the other's."""
    url = url or os.environ.get("DOCKER_HOST") or None
    if url is None or not url.startswith("ssh://"):
        yield url
        return
    if not shutil.which("ssh"):
        raise EngineUnavailable(f"{url} needs an ssh client on this machine")
    with tempfile.TemporaryDirectory(prefix="atropos-ssh-") as directory:
        socket = Path(directory) / "docker.sock"
        remote = urlsplit(url).path.rstrip("/") or "/var/run/docker.sock"
        command = ["ssh", "-nNT", *_SSH_OPTIONS, "-L", f"{socket}:{remote}", url.removesuffix(urlsplit(url).path)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stderr=pipe, start_new_session=True)
        try:
            deadline = time.monotonic() + _SSH_S
            while not socket.exists():
                if process.returncode is not None or time.monotonic() > deadline:
                    said = (await process.stderr.read(2000)).decode(errors="replace") if process.stderr else ""
                    raise EngineUnavailable(f"no ssh connection for {url}: {said.strip() or 'no answer in time'}")
                await asyncio.sleep(0.02)
            yield f"unix://{socket}"
        finally:
            if process.returncode is None:
                process.terminate()
            await finish(process.wait())


@asynccontextmanager
async def connect(url: str | None = None, timeout_s: float = 5.0) -> AsyncIterator[aiodocker.Docker]:
    """A client of an engine that answers. Raises EngineUnavailable with the remedy."""
    try:
        client = aiodocker.Docker(url)
    except (AssertionError, ValueError) as error:  # aiodocker asserts that it found a socket
        raise EngineUnavailable(
            f"No Docker engine found ({str(error) or 'no socket, no DOCKER_HOST'}). {_REMEDY}"
        ) from error
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await client.version()
        except (aiodocker.DockerError, aiohttp.ClientError, OSError) as error:
            why = f"did not answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise EngineUnavailable(
                f"The Docker engine at {client.docker_host} is not usable: {why}. {_REMEDY}"
            ) from error
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def engine_errors(doing: str) -> AsyncIterator[None]:
    """Turns the client's exceptions into ours; `doing` says what was tried."""
    try:
        yield
    except SandboxError:  # ours already; some are standard errors too, which are looked for below
        raise
    except aiodocker.DockerError as error:
        text = f"{doing}: {error.message} (HTTP {error.status})"
        if error.status == 404 and "image" in str(error.message).lower():
            raise ImageMissing(text) from error
        if error.status == 404 and "container" in str(error.message).lower():
            raise SandboxDied(text) from error
        if "no space left" in str(error.message).lower():
            raise StorageFull(text) from error
        # What the runtime refuses it refuses again, and old ones leave processes behind each time.
        if (error.status >= 500 and "oci runtime" not in str(error.message).lower()) or error.status == 409:
            raise EngineTrouble(text) from error
        raise SandboxError(text) from error
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise SandboxTimeout(f"{doing}: the Docker engine did not answer in time") from error
    except (aiohttp.ClientConnectionError, ConnectionError) as error:
        raise EngineUnavailable(f"{doing}: the Docker engine is not reachable: {error}. {_REMEDY}") from error
    except aiohttp.ClientError as error:
        raise SandboxError(f"{doing}: {str(error) or type(error).__name__}") from error
    except RuntimeError as error:
        if "Session is closed" not in str(error):
            raise
        raise SandboxDied(f"{doing}: its backend was left") from error


async def ensure_engine() -> int | None:
    """Install and start a Docker engine when none answers and we may.

    Returns the process id of the engine that this call started, for `stop_engine`; None when one answered.
    It goes on running when this process ends. Raises EngineUnavailable when there is nothing to be done.
    """
    try:
        async with connect():
            return None
    except EngineUnavailable:
        if "DOCKER_HOST" in os.environ or os.geteuid() != 0 or not sys.platform.startswith("linux"):
            raise
    lock = os.open(_LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)  # of two engines or installations at once one fails
        return await _start_engine()
    finally:
        os.close(lock)


async def _start_engine() -> int | None:
    try:
        async with connect():  # another process started one while this one waited for the lock
            return None
    except EngineUnavailable:
        pass
    if not shutil.which("dockerd"):
        await install("docker.io")
    logger.info("Starting dockerd; its log is %s", _LOG)
    pid = _spawn("dockerd", _LOG)
    deadline = time.monotonic() + _STARTUP_S
    while time.monotonic() < deadline and not _ended(pid):
        try:
            async with connect():
                return pid
        except EngineUnavailable:
            await asyncio.sleep(0.5)
    await stop_engine(pid)
    text = await asyncio.to_thread(_LOG.read_text, errors="replace")
    tail = "\n".join(text.splitlines()[-15:])
    raise EngineUnavailable(f"dockerd did not come up within {_STARTUP_S:.0f} s; the end of {_LOG}:\n{tail}")


async def stop_engine(pid: int | None) -> None:
    """Stop the engine that `ensure_engine` started in this process, with its containers. Nothing for None."""
    if pid is None or _ended(pid):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STARTUP_S
    while not _ended(pid):
        if time.monotonic() > deadline:
            logger.warning("dockerd (process %d) is still stopping", pid)
            return
        await asyncio.sleep(0.1)


def _spawn(program: str, log: Path) -> int:
    """Start a program in a session of its own. Python's process objects would kill it or warn at exit.

    Not `service docker start`: that fails where the hard limit on open files cannot be raised.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(program, [program], os.environ, file_actions=files, setsid=True)


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


async def install(*packages: str) -> None:
    """Install Debian packages. Raises EngineUnavailable when that is not possible here."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise EngineUnavailable(f"{', '.join(packages)} missing, and only root with apt-get can install it. {_REMEDY}")
    logger.info("Installing %s", ", ".join(packages))
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if await run(*command) != 0:
        await run("apt-get", "update")
        if await run(*command) != 0:
            raise EngineUnavailable(f"`{' '.join(command)}` failed; install it by hand. {_REMEDY}")


async def run(*command: str) -> int:
    """Run a program of the host with its output discarded; returns its exit code."""
    devnull = asyncio.subprocess.DEVNULL
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    process = await asyncio.create_subprocess_exec(*command, stdin=devnull, stdout=devnull, stderr=devnull, env=env)
    return await process.wait()
