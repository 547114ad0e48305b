"""The folder, mounts and process of one sandbox of crun's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sandboxes.base import SandboxError
from sandboxes.docker.crun import kernel
from sandboxes.docker.crun.cgroups import Cgroup, weigh
from sandboxes.docker.crun.home import Home, make_folder
from sandboxes.docker.crun.layers import Layer, Point, Stack, hold, let_go, mount_overlay, remove_tree
from sandboxes.docker.crun.mounts import Device, fresh_mounts, look_at_devices
from sandboxes.docker.crun.process import Container, spawn
from sandboxes.docker.crun.stage import Stage
from sandboxes.docker.crun.template import Template, tops

logger = logging.getLogger(__name__)

_END_S = 20.0
"""How long a killed container may take to be gone."""
_TICK_S = 0.005


class Box:
    """A sandbox in this machine's terms. `start` it, and in the end `bury` it.

    stack: the layers below its writable one.
    root: a descriptor of its root directory, until it is buried.
    written: layers of its own, frozen by forks.
    """

    def __init__(
        self, home: Home, stage: Stage, name: str, cgroup: Cgroup, template: Template, *, bound: bool = False
    ) -> None:
        self.home = home
        self.stage = stage
        self.name = name
        self.cgroup = cgroup
        self.tops = tops(template)
        """The mounts in its root directory."""
        self.bound = bound
        """Folders of this machine are mounted in it as well, anywhere."""
        self.fresh = fresh_mounts(template)
        """The mounts to make again at a reset, and the other things in them; None if this is impossible."""
        self.devices: tuple[Device, ...] | None = None
        self.number = name.rpartition("-")[2]
        self.folder = home.path / self.number
        self.point = Point(())
        """Its first files."""
        self.stack: Stack = ()
        self.written: list[Layer] = []
        self.upper = self.folder
        self.root = -1
        self._uppers = 0
        self._container: Container | None = None
        self._mounted = False
        self._clearing: set[asyncio.Task[None]] = set()

    @property
    def container(self) -> Container:
        if self._container is None:
            raise SandboxError(f"sandbox {self.name} was not started")
        return self._container

    async def start(self, crun: Path, point: Point, description: bytes, stream: socket.socket) -> None:
        """Start it, with its end of a stream; the executor has not spoken yet. Not to be cancelled."""
        self.point, self.stack = point, point.stack
        hold(self.stack)
        with stream:
            self._container = Container(await self.stage.do(self._start, crun, point, description, stream))

    def _start(self, crun: Path, point: Point, description: bytes, stream: socket.socket) -> int:
        self.folder.mkdir(mode=0o700)
        self.root = self._mount(point.mode, point.uid, point.gid)
        (self.folder / "config.json").write_bytes(description)
        return spawn(crun, self.home.state, self.folder, self.name, stream)

    def _mount(self, mode: int, uid: int, gid: int) -> int:
        """Mount the stack with a new folder to write to at `root` in our folder. Returns a descriptor of it."""
        place = self.folder / "root"
        self._uppers += 1
        self.upper, work = self.folder / f"upper-{self._uppers}", self.folder / f"work-{self._uppers}"
        for folder in (place, self.upper, work):
            make_folder(folder)
        self.upper.chmod(mode)
        os.chown(self.upper, uid, gid)
        os.chdir(self.home.storage)
        mount_overlay(place, self.upper, work, self.stack)
        self._mounted = True
        return kernel.open_tree(str(place))

    def stack_up(self) -> int:
        """Make its written files a layer, and begin a new one above it. Returns a descriptor of the new root, which is
        still invisible. In the stage's thread."""
        layer, seen = self.home.layer(self.home.new_name(), kept=False), self.upper.stat()
        self.upper.rename(layer.path)
        hold((layer,))
        self.stack = (layer, *self.stack)
        self.written.append(layer)
        tree = self._mount(stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
        self.unmount()
        return tree

    def start_over(self) -> int:
        """Begin again with the files of its start. Returns a descriptor of the new root, which is still invisible.
        In the stage's thread."""
        point = self.point
        # The program of process 1 is there for its start alone.
        self.stack, self.written = tuple(layer for layer in point.stack if layer is not self.home.executor), []
        tree = self._mount(point.mode, point.uid, point.gid)
        self.unmount()
        return tree

    def clear(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside, at the latest when this is buried."""
        task = asyncio.create_task(work, name="what a reset sandbox has written")
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    def unmount(self) -> None:
        """Take the mount away from here: the container has its own of it. In the stage's thread."""
        if self._mounted:
            self._mounted = False
            kernel.unmount(str(self.folder / "root"))

    async def began(self) -> None:
        """Learn the first process's id, after its first words: nothing else runs there yet."""
        self.container.began(*self.cgroup.processes())
        self._weigh()
        await self.stage.do(self._settle)

    def _settle(self) -> None:
        self.unmount()
        if self.fresh is not None:
            self.devices = look_at_devices(Path(f"/proc/{self.container.first}/root/dev"), self.fresh)
        if not self.cgroup.unified:  # crun leaves the folder above the hierarchies writable
            flags = kernel.REMOUNT | kernel.BIND | kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC
            with self.stage.visiting(self.container.first):
                kernel.mount("none", "/sys/fs/cgroup", None, flags)

    def filter(self) -> bytes:
        """Return crun's program of the seccomp profile."""
        return (self.home.state / self.name / "seccomp.bpf").read_bytes()

    def log(self) -> str:
        """Return crun's complaints."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text(encoding="utf-8", errors="replace").strip()[-1000:]
        return ""

    def was_taken(self) -> bool:
        """Return whether the memory killer has ended its first process."""
        return self.home.log.has_taken(self.container.first)

    async def bury(self) -> None:
        """End it and remove all of it. Raises OSError for a failed removal."""
        clean = self._container is None or await self._container.close(_END_S)
        await self.stage.do(self.unmount)
        await asyncio.gather(*self._clearing)
        await asyncio.to_thread(self._clear, clean)
        await let_go(self.stack)
        self.stack = ()

    def _clear(self, clean: bool) -> None:
        if self.root >= 0:
            os.close(self.root)
            self.root = -1
        if not clean:
            until = time.monotonic() + _END_S
            while not self.cgroup.remove() and time.monotonic() < until:
                self.cgroup.end()
                time.sleep(_TICK_S)
            remove_tree(self.home.state / self.name)
        self._weigh()
        remove_tree(self.folder)

    def _weigh(self) -> None:
        weigh(self.home.parent, self.cgroup.unified)
