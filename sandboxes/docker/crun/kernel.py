"""System calls on mounts and paths without a name in Python. Each raises OSError if the kernel refuses."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT, _FSCONFIG, _FSPICK, _OPENAT2 = 428, 429, 431, 433, 437
"""Numbers of newer calls, the same on all architectures."""
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_CLONE_TREE, _FROM_FD = 1, 4
_PICK_EMPTY_PATH, _RECONFIGURE = 8, 7
_IN_ROOT = 0x10
_TRIES = 1000

O_PATH = getattr(os, "O_PATH", 0)
"""Without it (macOS) the Docker daemon starts sandboxes; importing works."""
NEW_MOUNTS, NEW_IPC, NEW_NET = 0x20000, 0x8000000, 0x40000000
"""CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET; with the first a thread has root, directory, mounts of its own."""
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, MOVE, RECURSIVE, SLAVE = (
    *(1, 2, 4, 8, 0x20, 0x1000),
    *(0x2000, 0x4000, 0x80000),
)
NO_ATIME, RELATIME, STRICT_ATIME = 0x400, 0x200000, 0x1000000
_DETACH = 2

_NETLINK_GENERIC, _REQUEST, _ACKNOWLEDGE, _ERROR = 16, 1, 4, 2
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_METRICS, _FORGET = b"tcp_metrics\0", 2
"""linux/netlink.h, linux/genetlink.h, linux/tcp_metrics.h."""


def _raise_on_error(result: int, *what: str | bytes) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *what[:1])
    return result


def unshare(flags: int) -> None:
    _raise_on_error(_LIBC.unshare(flags))


def enter(namespace: int, kind: int = NEW_MOUNTS) -> None:
    """Go over to a namespace, by its descriptor; to one of mounts, to its root as well."""
    _raise_on_error(_LIBC.setns(namespace, kind))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _raise_on_error(_LIBC.mount(*texts, ctypes.c_ulong(flags), os.fsencode(options)), target)


def unmount(target: str) -> None:
    """Take a mount out of sight at once; it ends with its last user."""
    _raise_on_error(_LIBC.umount2(os.fsencode(target), _DETACH), target)


def open_tree(path: str) -> int:
    """Return a descriptor of an invisible copy of the mount at `path`."""
    flags = _CLONE_TREE | os.O_CLOEXEC
    return _raise_on_error(_LIBC.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags), path)


def move_mount(tree: int, target: str) -> None:
    """Mount the result of `open_tree`."""
    _raise_on_error(_LIBC.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_FD), target)


def drop_unused_names(root: int) -> None:
    """Have the kernel let go of a file system's unused names. root: a descriptor of its root directory."""
    picked = _raise_on_error(_LIBC.syscall(_FSPICK, root, b"", _PICK_EMPTY_PATH | 1))
    try:
        # This comes with any change of the file system.
        _raise_on_error(_LIBC.syscall(_FSCONFIG, picked, _RECONFIGURE, None, None, 0))
    finally:
        os.close(picked)


def pivot_root(new: str, old: str) -> None:
    _raise_on_error(_LIBC.pivot_root(os.fsencode(new), os.fsencode(old)), new)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_in_root(root: int, path: str | bytes, flags: int) -> int:
    """Open a path like a process with the root directory `root`: no link in it leads out, whoever changes it
    meanwhile."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _IN_ROOT)
    for _ in range(_TRIES):  # a `..` is refused where anybody on the machine renames something at the same moment
        found = _LIBC.syscall(_OPENAT2, root, os.fsencode(path) or b".", ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0 or ctypes.get_errno() != errno.EAGAIN:
            break
    return _raise_on_error(found, path)


def remove_ipc_object(kind: str, number: int) -> None:
    """Remove a "shm", "sem" or "msg" of System V's by its number, in the thread's namespace."""
    remove = 0
    arguments = {"shm": (number, remove, None), "sem": (number, 0, remove), "msg": (number, remove, None)}
    _raise_on_error(getattr(_LIBC, f"{kind}ctl")(*arguments[kind]))


def drop_tcp_metrics() -> None:
    """Remove the kernel's memory of past TCP connections, by their addresses, in the thread's network."""
    name = struct.pack("=HH", 4 + len(_METRICS), _FAMILY_NAME) + _METRICS
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as netlink:
        reply = _send_request(netlink, _CONTROL, _REQUEST, _GET_FAMILY, name)
        while reply and (size := struct.unpack_from("=H", reply)[0]):
            if struct.unpack_from("=H", reply, 2)[0] == _FAMILY_ID:
                _send_request(netlink, struct.unpack_from("=H", reply, 4)[0], _REQUEST | _ACKNOWLEDGE, _FORGET)
                return
            reply = reply[(size + 3) & ~3 :]


def _send_request(netlink: socket.socket, family: int, flags: int, command: int, attributes: bytes = b"") -> bytes:
    """Return the attributes of the answer."""
    netlink.send(struct.pack("=IHHIIBBH", 20 + len(attributes), family, flags, 0, 0, command, 1, 0) + attributes)
    answer = netlink.recv(1 << 16)
    kind, error = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 16)[0]
    if kind == _ERROR and error:
        raise OSError(-error, os.strerror(-error), "netlink")
    return answer[20:]
