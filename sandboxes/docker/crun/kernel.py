"""System calls on mounts and paths that Python has no names for. Each raises OSError where the kernel refuses."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2 = 428, 429, 437
"""Numbers of calls that are younger than the numbering they share among architectures."""
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_CLONE_TREE, _FROM_FD = 1, 4
_IN_ROOT = 0x10

NEW_MOUNTS, NEW_IPC = 0x20000, 0x8000000
"""CLONE_NEWNS, CLONE_NEWIPC; a thread that asks for the first has a root, a directory and mounts of its own."""
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, MOVE, RECURSIVE, SLAVE = (
    *(1, 2, 4, 8, 0x20, 0x1000),
    *(0x2000, 0x4000, 0x80000),
)
NO_ATIME, RELATIME, STRICT_ATIME = 0x400, 0x200000, 0x1000000
_DETACH = 2


def _checked(result: int, *what: str | bytes) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *what[:1])
    return result


def unshare(flags: int) -> None:
    _checked(_LIBC.unshare(flags))


def enter(namespace: int, kind: int = NEW_MOUNTS) -> None:
    """Go over to a namespace, by its descriptor; to one of mounts, to its root as well."""
    _checked(_LIBC.setns(namespace, kind))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _checked(_LIBC.mount(*texts, ctypes.c_ulong(flags), os.fsencode(options)), target)


def unmount(target: str) -> None:
    """Take a mount out of sight at once; it ends with its last user."""
    _checked(_LIBC.umount2(os.fsencode(target), _DETACH), target)


def open_tree(path: str) -> int:
    """Return a descriptor of a copy of the mount at `path` that is nowhere to be seen."""
    flags = _CLONE_TREE | os.O_CLOEXEC
    return _checked(_LIBC.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags), path)


def move_mount(tree: int, target: str) -> None:
    """Mount what `open_tree` returned."""
    _checked(_LIBC.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_FD), target)


def pivot_root(new: str, old: str) -> None:
    _checked(_LIBC.pivot_root(os.fsencode(new), os.fsencode(old)), new)


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_in(root: int, path: str | bytes, flags: int, mode: int = 0) -> int:
    """Open a path as a process does whose root is the directory `root`: no link in it leads out, whoever changes it
    meanwhile."""
    how = _How(flags | os.O_CLOEXEC, mode, _IN_ROOT)
    found = _LIBC.syscall(_OPENAT2, root, os.fsencode(path) or b".", ctypes.byref(how), ctypes.sizeof(how))
    return _checked(found, path)


def remove_shared(kind: str, number: int) -> None:
    """Remove a "shm", "sem" or "msg" of System V's by its number, in the namespace that the thread is in."""
    remove = 0
    arguments = {"shm": (number, remove, None), "sem": (number, 0, remove), "msg": (number, remove, None)}
    _checked(getattr(_LIBC, f"{kind}ctl")(*arguments[kind]))
