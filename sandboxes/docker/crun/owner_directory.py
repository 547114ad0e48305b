"""The folder of one backend's sandboxes, and the process that clears it up after a killed owner."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from pathlib import Path
from typing import Self

import sandboxes
from sandboxes.docker.crun.layers import Layer
from sandboxes.docker.crun.reap import CGROUP, LOCK, OWNERS, STATE, make_locked, remove_remains
from sandboxes.docker.executor.program import EXECUTOR, hosts_of
from sandboxes.docker.kernel_log import KernelLog
from sandboxes.shielding import finish

HOSTNAME = "sandbox"
_WATCH = f"""flock "$0/{LOCK}" sh -c '[ ! -e "$0" ] || exec "$@"' "$0" "$@" &"""
"""After an orderly end of the owner, its folder is gone by the time the lock is free."""


class OwnerDirectory:
    """The folder of an owner's sandboxes; used as `async with`, and then removed.

    storage: the Docker daemon's directory. parent: the control group above theirs. address: of the daemon; None
    for the default one.
    """

    def __init__(self, storage: Path, owner: str, parent: str, executor: bytes, address: str | None = None) -> None:
        self.storage = storage
        self.path = storage / OWNERS / owner
        self.owner = owner
        self.parent = parent
        self.state = self.path / STATE
        self.executor = self.layer("executor")
        """The program of process 1, above all changes of a fork."""
        self.etc = self.layer("etc")
        """The Docker daemon's own files above an image: names of hosts, places for mounts."""
        self.log = KernelLog()
        self._program = executor
        self._numbers = itertools.count(1)
        self._address = address
        self._lock = -1

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(lambda: finish(asyncio.to_thread(self._release)))
            await finish(asyncio.to_thread(self._make))
            undo.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._release)

    def new_name(self) -> str:
        """Return an unused name."""
        return str(next(self._numbers))

    def layer(self, name: str, *, kept: bool = True) -> Layer:
        return Layer(self.path / name, f"{OWNERS}/{self.owner}/{name}", kept)

    def _make(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._lock = make_locked(self.path)
        (self.path / CGROUP).write_text(self.parent, encoding="utf-8")
        self._start_reaper()
        self.state.mkdir(mode=0o700)
        _write(self.executor.path / EXECUTOR, self._program, 0o755)
        for name in ("dev", "proc", "sys"):
            make_folder(self.etc.path / name)
        for name, data in {
            "hosts": hosts_of(HOSTNAME),
            "hostname": f"{HOSTNAME}\n".encode(),
            "resolv.conf": b"",
        }.items():
            _write(self.etc.path / "etc" / name, data, 0o644)
        (self.etc.path / "etc" / "mtab").symlink_to("/proc/mounts")
        _write(self.etc.path / ".dockerenv", b"", 0o755)

    def _start_reaper(self) -> None:
        """Start a process that waits for the lock, so for the end of this process, and then removes the remains.

        It is nobody's child: a program that ends a process with all its children, as Ray does, does not find it.
        """
        reap = [sys.executable, "-m", "sandboxes.docker.crun.reap", str(self.path)]
        where = os.pathsep.join({str(Path(place).parent) for place in sandboxes.__path__})
        environment = os.environ | {"PYTHONPATH": where}
        if self._address is not None:
            environment["DOCKER_HOST"] = self._address
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        command = ["sh", "-c", _WATCH, str(self.path), *reap]
        shell = os.posix_spawnp("sh", command, environment, file_actions=quiet, setsid=True)
        with contextlib.suppress(ChildProcessError):  # something else has waited for it
            os.waitpid(shell, 0)

    def _release(self) -> None:
        self.log.close()
        remove_remains(self.path)
        if self._lock >= 0:
            os.close(self._lock)


def make_folder(path: Path) -> None:
    """Make a folder that everybody may read, despite this process's umask."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def _write(path: Path, data: bytes, mode: int) -> None:
    make_folder(path.parent)
    path.write_bytes(data)
    path.chmod(mode)
