"""Install and start a missing Docker daemon."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon.client import DAEMON_REMEDY, DaemonSilent, connect
from sandboxes.shielding import ending

logger = logging.getLogger(__name__)

_LOG = Path("/var/log/atropos-dockerd.log")
_LOCK = Path("/run/atropos-dockerd.lock")
_STARTUP_S = 60.0
_SLOW_CONTAINERD = "timeout waiting for containerd to start"
"""The words of a dockerd that ends because its containerd took more than 15 s. The next one's is in the page cache."""
_APT_TRIES, _APT_PAUSE_S = 24, 5.0


async def ensure_daemon() -> int | None:
    """Install and start a Docker daemon if none answers and we may.

    Returns the process id of a Docker daemon started by this call, for `stop_daemon`; None if one answered.
    It goes on running when this process ends. Raises DaemonUnavailable if nothing can be done.
    """
    try:
        async with connect():
            return None
    except DaemonSilent:
        raise  # there is one, and another would not start
    except DaemonUnavailable:
        if "DOCKER_HOST" in os.environ or os.geteuid() != 0 or not sys.platform.startswith("linux"):
            raise
    lock = os.open(_LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        await asyncio.to_thread(
            fcntl.flock, lock, fcntl.LOCK_EX
        )  # of two Docker daemons or installations at once one fails
        return await _start_daemon()
    finally:
        os.close(lock)


async def _start_daemon() -> int | None:
    try:
        async with connect():  # another process started one while this one waited for the lock
            return None
    except DaemonUnavailable:
        pass
    if not shutil.which("dockerd"):
        await install("docker.io")
    logger.info("Starting dockerd; its log is %s", _LOG)
    deadline = time.monotonic() + _STARTUP_S
    while True:
        begin = await asyncio.to_thread(_size, _LOG)
        pid = _spawn("dockerd", _LOG)
        if await _comes_up(pid, deadline):
            return pid
        ended = _has_ended(pid)
        said = (await asyncio.to_thread(_LOG.read_bytes))[begin:].decode(errors="replace")
        if not ended or _SLOW_CONTAINERD not in said or time.monotonic() > deadline:
            break
        logger.info("dockerd gave up on a slow containerd; starting it again")
    await stop_daemon(pid)
    outcome = "ended" if ended else f"did not come up within {_STARTUP_S:.0f} s"
    tail = "\n".join(said.splitlines()[-15:])
    raise DaemonUnavailable(f"dockerd {outcome}; the end of {_LOG}:\n{tail}")


async def _comes_up(pid: int, deadline: float) -> bool:
    """Wait until the Docker daemon answers. Return False if its process ends, or the deadline is over."""
    while time.monotonic() < deadline and not _has_ended(pid):
        try:
            async with connect():
                return True
        except DaemonUnavailable:
            await asyncio.sleep(0.5)
    return False


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def stop_daemon(pid: int | None) -> None:
    """Stop the Docker daemon of an `ensure_daemon` in this process, with its containers. Nothing for None."""
    if pid is None or _has_ended(pid):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STARTUP_S
    while not _has_ended(pid):
        if time.monotonic() > deadline:
            logger.warning("dockerd (process %d) is still stopping", pid)
            return
        await asyncio.sleep(0.1)


def _spawn(program: str, log: Path) -> int:
    """Start a program in a session of its own. Python's process objects would kill it or warn at exit.

    Not `service docker start`: it fails if the hard limit on open files cannot be raised.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    heeded = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}  # A container would inherit what is ignored.
    return os.posix_spawnp(program, [program], os.environ, file_actions=files, setsid=True, setsigdef=heeded)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


async def install(*packages: str) -> None:
    """Install Debian packages. Raises DaemonUnavailable if this is impossible here."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise DaemonUnavailable(
            f"{', '.join(packages)} missing, and only root with apt-get can install it. {DAEMON_REMEDY}"
        )
    logger.info("Installing %s", ", ".join(packages))
    wait = f"DPkg::Lock::Timeout={_APT_TRIES * _APT_PAUSE_S:.0f}"
    command = ["apt-get", "-o", wait, "install", "-y", "--no-install-recommends", *packages]
    if await run(*command) != 0:
        # Unlike an installation, an update doesn't wait for another program of apt's, such as a new machine runs.
        for _ in range(_APT_TRIES):
            if await run("apt-get", "update") == 0:
                break
            await asyncio.sleep(_APT_PAUSE_S)
        if await run(*command) != 0:
            raise DaemonUnavailable(f"`{' '.join(command)}` failed; install it by hand. {DAEMON_REMEDY}")


async def run(*command: str) -> int:
    """Run a program of the host with its output discarded; returns its exit code."""
    devnull = asyncio.subprocess.DEVNULL
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    process = await asyncio.create_subprocess_exec(*command, stdin=devnull, stdout=devnull, stderr=devnull, env=env)
    async with ending(process, signal.SIGTERM):
        return await process.wait()
