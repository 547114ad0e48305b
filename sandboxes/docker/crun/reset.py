"""Giving a living sandbox the state of its start: of its earlier life only process 1 stays, out of reach from inside.

By then process 1 has ended all others and has closed all ways to it (`executor/reset.c`). The rest outlives
processes and goes here: files, and all writable mounts, by putting a new root under process 1; segments,
queues and semaphores of System V's and POSIX's; addresses of connections. Some things can't be removed (the kernel
keeps a connection for a minute): a sandbox with such a thing is not reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from pathlib import Path

from sandboxes.base import SandboxError
from sandboxes.docker.crun import kernel
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.layers import release_layers, remove_tree
from sandboxes.docker.crun.mounts import TOP, change_root, mount_devices

_CLEAN_S = 1.0
"""How long ended processes may take to be gone."""
_TICK_S = 0.001


def can_reset(bundle: Bundle) -> bool:
    """Return whether all its mounts can be made again."""
    return not bundle.bound and bundle.fresh is not None and bundle.devices is not None


async def reset(bundle: Bundle, listening: int) -> None:
    """Bring back all but process 1, which is alone. Not to be cancelled.

    Raises SandboxError or OSError if the reset fails, or its success is unknown: then the sandbox is of no more use.

    listening: how many sockets process 1 has in the sandbox's network.
    """
    await _wait_until_alone(bundle, listening)
    old, upper, stack = bundle.root, bundle.upper, bundle.stack
    limit = await bundle.namespace.run(_reset, bundle)
    bundle.run_in_background(asyncio.to_thread(_remove_written, old, upper))
    await release_layers(tuple(layer for layer in stack if layer not in bundle.stack))
    if limit is not None:
        raise SandboxError(f"sandbox {bundle.name} is still at the limit of its {limit}")


async def _wait_until_alone(bundle: Bundle, listening: int) -> None:
    until = time.monotonic() + _CLEAN_S
    while left := _find_remains(bundle, listening):
        if time.monotonic() > until:
            raise SandboxError(f"sandbox {bundle.name} still has {left}")
        # Sockets that are on their way through nothing but each other the kernel looks for when one is closed.
        for one in socket.socketpair():
            one.close()
        await asyncio.sleep(_TICK_S)


def _reset(bundle: Bundle) -> str | None:
    """Replace everything writable. Returns the limit that the sandbox is at even so. In the namespace's thread."""
    connected = _has_connected(bundle.process.first)
    tree = bundle.reset()
    try:
        with bundle.namespace.enter_process(bundle.process.first, "ipc", "net"):
            _remove_ipc_objects()
            if connected:
                # Its own socket is there for some milliseconds more, for which a reset right after would wait.
                kernel.drop_tcp_metrics()
            _put_new_root(bundle, tree)
    except OSError:
        os.close(tree)
        raise
    bundle.root = tree
    bundle.cgroup.reset_counts()
    return bundle.cgroup.reached_limit()


def _find_remains(bundle: Bundle, listening: int) -> str:
    """Return the kind of things left beside process 1 and its `listening` sockets. Raises SandboxError for lasting
    ones."""
    first = bundle.process.first
    if bundle.cgroup.processes() != [first]:
        return "processes"
    # All sockets of its network, whatever holds them, and connections that have ended but keep their ports.
    text = Path(f"/proc/{first}/net/sockstat").read_text(encoding="ascii")
    used, ending = int(text.split()[2]), int(text.partition(" tw ")[2].split()[0])
    if ending:
        raise SandboxError(f"sandbox {bundle.name} has connections that have just ended")
    return "sockets" if used > listening else ""


def _has_connected(first: int) -> bool:
    """Return whether TCP has ever begun a connection, or taken one, in a process's network."""
    lines = Path(f"/proc/{first}/net/snmp").read_text(encoding="ascii").splitlines()
    names, numbers = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    counts = dict(zip(names, numbers, strict=True))
    return counts["ActiveOpens"] != "0" or counts["PassiveOpens"] != "0"


def _remove_ipc_objects() -> None:
    """Remove System V's objects in the thread's namespace. Raises OSError."""
    for kind in ("shm", "sem", "msg"):
        lines = Path(f"/proc/sysvipc/{kind}").read_text(encoding="ascii").splitlines()[1:]
        for line in lines:
            kernel.remove_ipc_object(kind, int(line.split()[1]))


def _put_new_root(bundle: Bundle, tree: int) -> None:
    """Put a still invisible root under process 1, with a new /dev."""
    kernel.move_mount(tree, "/")
    os.fchdir(tree)
    mount_devices(bundle.fresh or (), bundle.devices or ())
    for name in bundle.top_mounts:
        if name != TOP:
            kernel.mount("/" + name, name, None, kernel.MOVE)
    change_root()


def _remove_written(root: int, upper: Path) -> None:
    """Remove the written files, and only then let go of the old root: the kernel writes all its present files to the
    disk."""
    try:
        remove_tree(upper)
        with contextlib.suppress(OSError):
            # Process 1's program was in the first root, which so never ends: its names keep files that were removed.
            kernel.drop_unused_names(root)
    finally:
        os.close(root)
