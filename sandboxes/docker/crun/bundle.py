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
from sandboxes.docker.crun.cgroups import Cgroup, set_weight
from sandboxes.docker.crun.layers import (
    Layer,
    Snapshot,
    Stack,
    acquire_layers,
    mount_overlay,
    release_layers,
    remove_tree,
)
from sandboxes.docker.crun.mount_namespace import MountNamespace
from sandboxes.docker.crun.mounts import Device, fresh_mounts, list_devices
from sandboxes.docker.crun.owner_directory import OwnerDirectory, make_folder
from sandboxes.docker.crun.process import CrunProcess, spawn
from sandboxes.docker.crun.template import Template, top_mounts

logger = logging.getLogger(__name__)

_END_S = 20.0
"""How long a killed container may take to be gone."""
_TICK_S = 0.005


class Bundle:
    """A sandbox on this host: an OCI bundle, its mounts and crun's process. `start` it, and in the end `remove` it.

    stack: the layers below its writable one.
    root: a descriptor of its root directory, until it is removed.
    written: layers of its own, frozen by forks.
    """

    def __init__(
        self,
        directory: OwnerDirectory,
        namespace: MountNamespace,
        name: str,
        cgroup: Cgroup,
        template: Template,
        *,
        bound: bool = False,
    ) -> None:
        self.directory = directory
        self.namespace = namespace
        self.name = name
        self.cgroup = cgroup
        self.top_mounts = top_mounts(template)
        """The mounts in its root directory."""
        self.bound = bound
        """Folders of this host are mounted in it as well, anywhere."""
        self.fresh = fresh_mounts(template)
        """The mounts to make again at a reset, and the other things in them; None if this is impossible."""
        self.devices: tuple[Device, ...] | None = None
        self.number = name.rpartition("-")[2]
        self.folder = directory.path / self.number
        self.snapshot = Snapshot(())
        """Its first files."""
        self.stack: Stack = ()
        self.written: list[Layer] = []
        self.upper = self.folder
        self.root = -1
        self._uppers = 0
        self._process: CrunProcess | None = None
        self._mounted = False
        self._background: set[asyncio.Task[None]] = set()

    @property
    def process(self) -> CrunProcess:
        if self._process is None:
            raise SandboxError(f"sandbox {self.name} was not started")
        return self._process

    async def start(self, crun: Path, snapshot: Snapshot, description: bytes, stream: socket.socket) -> None:
        """Start it, with its end of a stream; the executor has not spoken yet. Not to be cancelled."""
        self.snapshot, self.stack = snapshot, snapshot.stack
        acquire_layers(self.stack)
        with stream:
            self._process = CrunProcess(await self.namespace.run(self._start, crun, snapshot, description, stream))

    def _start(self, crun: Path, snapshot: Snapshot, description: bytes, stream: socket.socket) -> int:
        self.folder.mkdir(mode=0o700)
        self.root = self._mount(snapshot.mode, snapshot.uid, snapshot.gid)
        (self.folder / "config.json").write_bytes(description)
        return spawn(crun, self.directory.state, self.folder, self.name, stream)

    def _mount(self, mode: int, uid: int, gid: int) -> int:
        """Mount the stack with a new folder to write to at `root` in our folder. Returns a descriptor of it."""
        place = self.folder / "root"
        self._uppers += 1
        self.upper, work = self.folder / f"upper-{self._uppers}", self.folder / f"work-{self._uppers}"
        for folder in (place, self.upper, work):
            make_folder(folder)
        self.upper.chmod(mode)
        os.chown(self.upper, uid, gid)
        os.chdir(self.directory.storage)
        mount_overlay(place, self.upper, work, self.stack)
        self._mounted = True
        return kernel.open_tree(str(place))

    def add_layer(self) -> int:
        """Make its written files a layer, and begin a new one above it. Returns a descriptor of the new root, which is
        still invisible. In the namespace's thread."""
        layer, seen = self.directory.layer(self.directory.new_name(), kept=False), self.upper.stat()
        self.upper.rename(layer.path)
        acquire_layers((layer,))
        self.stack = (layer, *self.stack)
        self.written.append(layer)
        tree = self._mount(stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
        self.unmount()
        return tree

    def reset(self) -> int:
        """Begin again with the files of its start. Returns a descriptor of the new root, which is still invisible.
        In the namespace's thread."""
        snapshot = self.snapshot
        # The program of process 1 is there for its start alone.
        self.stack, self.written = tuple(layer for layer in snapshot.stack if layer is not self.directory.executor), []
        tree = self._mount(snapshot.mode, snapshot.uid, snapshot.gid)
        self.unmount()
        return tree

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside, at the latest when this is removed."""
        task = asyncio.create_task(work, name="what a reset sandbox has written")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def unmount(self) -> None:
        """Take the mount away from here: the container has its own of it. In the namespace's thread."""
        if self._mounted:
            self._mounted = False
            kernel.unmount(str(self.folder / "root"))

    async def note_first_process(self) -> None:
        """Learn the first process's id, after its first words: nothing else runs there yet."""
        self.process.note_first_process(*self.cgroup.processes())
        self._update_weight()
        await self.namespace.run(self._finish_start)

    def _finish_start(self) -> None:
        self.unmount()
        if self.fresh is not None:
            self.devices = list_devices(Path(f"/proc/{self.process.first}/root/dev"), self.fresh)
        if not self.cgroup.unified:  # crun leaves the folder above the hierarchies writable
            flags = kernel.REMOUNT | kernel.BIND | kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC
            with self.namespace.enter_process(self.process.first):
                kernel.mount("none", "/sys/fs/cgroup", None, flags)

    def filter(self) -> bytes:
        """Return crun's program of the seccomp profile."""
        return (self.directory.state / self.name / "seccomp.bpf").read_bytes()

    def log(self) -> str:
        """Return crun's complaints."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text(encoding="utf-8", errors="replace").strip()[-1000:]
        return ""

    def was_killed_for_memory(self) -> bool:
        """Return whether the memory killer has ended its first process, at its own limit."""
        return self.directory.log.has_killed(self.process.first) and not self.was_killed_for_host()

    def was_killed_for_host(self) -> bool:
        """Return whether the memory killer has ended one of its processes for want of memory on the machine."""
        return self.directory.log.was_killed_for_host(self.cgroup.path)

    async def remove(self) -> None:
        """End it and remove all of it. Raises OSError for a failed removal."""
        clean = self._process is None or await self._process.close(_END_S)
        await self.namespace.run(self.unmount)
        await asyncio.gather(*self._background)
        await asyncio.to_thread(self._remove_folder, clean)
        await release_layers(self.stack)
        self.stack = ()

    def _remove_folder(self, clean: bool) -> None:
        if self.root >= 0:
            os.close(self.root)
            self.root = -1
        if not clean:
            until = time.monotonic() + _END_S
            while not self.cgroup.remove() and time.monotonic() < until:
                self.cgroup.kill()
                time.sleep(_TICK_S)
            remove_tree(self.directory.state / self.name)
        self._update_weight()
        remove_tree(self.folder)

    def _update_weight(self) -> None:
        set_weight(self.directory.parent, self.cgroup.unified)
