"""Freezing the written files of a living sandbox, as the first files of others.

Its files so far become an unchangeable layer, and it goes on with a new folder above this layer: a new root takes the
old one's place under its processes. The kernel ensures that none of them can write to the old one. The written files
are copied instead if a process would notice: it runs in a directory or has a file open. (An idle shell of a session
finds its place again by itself.)
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

from sandboxes.base import SandboxError
from sandboxes.docker.crun import kernel
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.layers import MOUNT_FLAGS, Snapshot, Stack, acquire_layers, copy_layer
from sandboxes.docker.crun.mounts import change_root

_OWN_UID = 60417
"""The executor's, `self.c`."""


async def freeze(bundle: Bundle) -> Snapshot:
    """Return a sandbox's files as they are now, to be let go of in the end. Raises SandboxError. Not to cancel."""
    root = bundle.upper.stat()
    try:
        stack = await bundle.namespace.run(_freeze_in_place, bundle)
        if stack is None:
            layer = bundle.directory.layer(bundle.directory.new_name(), kept=False)
            stack = (layer, *bundle.stack)
            try:
                await asyncio.to_thread(copy_layer, bundle.upper, layer.path)
            finally:
                await asyncio.to_thread(bundle.cgroup.thaw)
    except OSError as error:
        raise SandboxError(f"sandbox {bundle.name} can't be forked: {error}") from error
    executor = bundle.directory.executor
    snapshot = Snapshot(
        (executor, *(one for one in stack if one is not executor)), stat.S_IMODE(root.st_mode), root.st_uid, root.st_gid
    )
    acquire_layers(snapshot.stack)
    return snapshot


def _freeze_in_place(bundle: Bundle) -> Stack | None:
    """Return layers with the sandbox's present files; None if they have to be copied, and then nothing in it
    moves until the copy. In the namespace's thread."""
    if not _has_content(bundle.upper):
        return bundle.stack
    still = False
    try:
        if bundle.cgroup.freeze() and not bundle.bound and _has_only_idle_shells(bundle) and _make_read_only(bundle):
            _put_new_root(bundle)
            return bundle.stack
        still = True
        return None
    finally:
        if not still:
            bundle.cgroup.thaw()


def _has_content(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _has_only_idle_shells(bundle: Bundle) -> bool:
    """Return whether all processes but the executor's own are idle shells of sessions, with none of its files open."""
    device = os.fstat(bundle.root).st_dev
    first = bundle.process.first
    shared = {name for name in _list_descriptors(first).values() if name.startswith("pipe:")}
    uids = {pid: _owner(pid) for pid in bundle.cgroup.processes() if _is_running(pid)}
    ours = {pid for pid, uid in uids.items() if uid == _OWN_UID}
    return first in ours and all(
        int(_stat(pid)[1]) in ours and _is_shell(pid, shared) and not _has_open_files(pid, device)
        for pid in uids.keys() - ours
    )


def _is_shell(pid: int, shared: set[str]) -> bool:
    """Return whether a process has the pipes of a session's loop; the executor holds their other ends."""
    streams = _list_descriptors(pid)
    return streams.get("3", "") in shared and streams.get("4", "") in shared


def _list_descriptors(pid: int) -> dict[str, str]:
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        found[fd.name] = os.readlink(fd)  # noqa: PTH115
    return found


def _has_open_files(pid: int, device: int) -> bool:
    """Return whether a process has a file of a device open, or may write to a file by its memory."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        if fd.stat().st_dev == device:
            return True
    if all(line.split(b" ", 2)[1][3:4] == b"p" for line in _lines(f"/proc/{pid}/maps")):
        return False
    # What may not be written to now may be made so, where the file was opened to be written to: "shared".
    return any(line.startswith(b"VmFlags:") and b"sh" in line.split() for line in _lines(f"/proc/{pid}/smaps"))


def _lines(path: str) -> list[bytes]:
    """Return the lines of a file of the kernel's. It escapes no line end in names but LF; `splitlines` knows others."""
    return [line for line in Path(path).read_bytes().split(b"\n") if line]


def _is_running(pid: int) -> bool:
    """Return whether a process has running threads; its first one may have ended before the others."""
    fields = _stat(pid)
    return fields[0] != "Z" or int(fields[17]) > 1


def _owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def _stat(pid: int) -> list[str]:
    """Return a process's state, its parent's id, and so on."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _make_read_only(bundle: Bundle) -> bool:
    """Make the processes' files read-only for ever. Returns False if one of them has a file open to write."""
    with bundle.namespace.enter_process(bundle.process.first):
        try:
            kernel.mount("none", "/", None, kernel.REMOUNT | kernel.BIND | kernel.READ_ONLY | MOUNT_FLAGS)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
    return True


def _put_new_root(bundle: Bundle) -> None:
    """Make the written files a layer, and put a new root above it under the processes."""
    try:
        tree = bundle.add_layer()
        with bundle.namespace.enter_process(bundle.process.first):
            kernel.move_mount(tree, "/")
            os.fchdir(tree)
            for name in bundle.top_mounts:
                kernel.mount("/" + name, name, None, kernel.MOVE)
            change_root()
    except (OSError, SandboxError) as error:
        bundle.process.kill()  # it has no root that it could go on with
        raise SandboxError(f"sandbox {bundle.name} has got no new root: {error}") from error
    os.close(bundle.root)
    bundle.root = tree
