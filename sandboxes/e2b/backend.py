"""Sandboxes of an E2B server. In each, bubblewrap makes a container with the executor as its first process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from sandboxes.base import (
    DaemonUnavailable,
    ImageMissing,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
)
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.program import CAPABILITIES, ENDS, executor_arguments, program_for, root_capabilities
from sandboxes.docker.executor.tools import TOOL_S, ToolContainer
from sandboxes.docker.slots import Slots
from sandboxes.e2b.options import E2BOptions
from sandboxes.e2b.server import Envd, EnvdStream, Server
from sandboxes.owner import PREFIX, Owner
from sandboxes.remote.api import describe_cause
from sandboxes.remote.backend import GREET_S, RemoteBackend, open_channel, query_image
from sandboxes.remote.images import NamedImages
from sandboxes.shielding import finish, run_concurrently

logger = logging.getLogger(__name__)

_HIDDEN, _SHOWN = "/opt/.atropos", "/.atropos"
"""The executor's folder: outside of the container, where tools start, and in it."""
_PROGRAM = "executor"
_SOCKET = "atropos"
_TREES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
_READ_ONLY = ("/sys", "/proc/sys", "/proc/fs")
"""Settings of the machine's kernel, which root could change."""
_SHM, _RUN = 64 << 20, 16 << 20
"""Bytes of /dev/shm and /run: killing processes frees no memory of files."""
_WAIT = """
limit() {
  root=/sys/fs/cgroup file=$2
  test -e $root/cgroup.controllers || root=$root/$1 file=$3
  echo +$1 >$root/cgroup.subtree_control
  mkdir -p $root/atropos && echo $4 >$root/atropos/$file && echo 0 >$root/atropos/cgroup.procs
} 2>/dev/null
pids=$1 memory=$2 cpu=$3; shift 3
kills() { while read -r name count; do test "$name" != oom_kill || echo "$count"; done </proc/vmstat; }
before=$(kills)
(
  limit pids pids.max pids.max $pids
  limit memory memory.max memory.limit_in_bytes $memory
  limit cpu cpu.max cpu.cfs_quota_us $cpu
  echo 500 >/proc/self/oom_score_adj
  exec "$0" "$@"
)
code=$?
test "$code" != 137 || test "$(kills)" = "$before" || code=70
exit "$code"
"""
"""Limits a container by control groups of its own where the machine lets root make some, of version 2 or 1. Then it
waits for the container's end outside of it, and is killed after it if memory runs out. Exit code 70 if the machine's
kernel has killed meanwhile: only the programs in the container need much memory."""
_CPU_PERIOD_US = 100_000
_REMOVE_S = 60.0
_STATUS_S = 5.0


def container_command(kind: Kind) -> list[str]:
    """Return the command of a container: the template's files, and new processes, devices, and network if requested.

    /run is new, because a template's services listen there. /proc/1 is read-only: root could have the kernel kill the
    executor before the commands (/proc/self is this command, which becomes process 1)."""
    kept = dict.fromkeys((*CAPABILITIES, *_TREES, *root_capabilities(kind), "AUDIT_WRITE"))
    return [
        *("bwrap", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *(() if kind.limits.network else ("--unshare-net",)),
        *(
            "--json-status-fd",
            "2",
            "--cap-drop",
            "ALL",
            *(word for one in kept for word in ("--cap-add", f"CAP_{one}")),
        ),
        *("--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/self", "/proc/1"),
        *("--perms", "1777", "--size", str(_SHM), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(_RUN), "--tmpfs", "/run"),
        *(word for place in _READ_ONLY for word in ("--ro-bind-try", place, place)),
        *("--ro-bind", _HIDDEN, _SHOWN, "--tmpfs", _HIDDEN),
        *(f"{_SHOWN}/{_PROGRAM}", f"link={_SOCKET}", *executor_arguments(kind)),
    ]


class E2BContainer(ToolContainer):
    """A container in a sandbox of the server's."""

    def __init__(self, *args: Any, inside: NestedContainer, options: E2BOptions) -> None:
        super().__init__(*args)
        self._inside = inside
        self._options = options

    async def _run(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes:
        return await self._inside.server.retry(lambda: self._once(command, stdin, most), self._options.outage_timeout_s)

    async def _once(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes:
        async def feed() -> bytes:
            await stream.write(stdin)
            return b""

        try:
            stream = await self._inside.start_tool(*command, stdin=bool(stdin))
            try:
                async with asyncio.timeout(TOOL_S):
                    output, _ = await run_concurrently((stream.read_all(f"{command[0]} in {self.name}", most), feed()))
                return output
            finally:
                await stream.close()
        except (OSError, SandboxError) as error:
            await self._inside.check()
            if isinstance(error, SandboxError):
                raise
            raise DaemonUnavailable(f"{command[0]} in {self.name} broke off: {describe_cause(error)}") from error

    async def overran(self) -> str | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_S):
                return ENDS.get(await asyncio.shield(self._inside.ended))
        return None

    async def renew_lease(self) -> None:
        await super().renew_lease()
        await self._inside.extend_lease(self._options.lease_s)


class NestedContainer:
    """A container in a sandbox of the server's, seen from that sandbox. ended: its exit code, -1 if it is not known."""

    def __init__(self, server: Server, envd: Envd, sandbox: str) -> None:
        self.server = server
        self._envd = envd
        self._sandbox = sandbox
        self._first = ""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def build(self, kind: Kind) -> asyncio.Task[None]:
        """Start the container; returns the task that waits for its end. Raises ImageMissing, SandboxError."""
        await self._envd.write(f"{_HIDDEN}/{_PROGRAM}", program_for("amd64"))
        await self._envd.run("/bin/chmod", "755", f"{_HIDDEN}/{_PROGRAM}")
        program, *words = container_command(kind)
        limits = (kind.limits.pids, kind.limits.memory_mb << 20, round(kind.limits.cpus * _CPU_PERIOD_US))
        stream = await self._envd.start("/bin/sh", "-c", _WAIT, program, *map(str, limits), *words)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(stream.close)
            async with asyncio.timeout(GREET_S):
                while '"child-pid"' not in stream.error_text or "\n" not in stream.error_text:
                    if await stream.read_output() is None:
                        raise ImageMissing(
                            f"template {kind.image} has no working bubblewrap: {stream.error_text.strip()}; install it "
                            "in the template (apt-get install bubblewrap)"
                        )
            stack.pop_all()
        line = next(one for one in stream.error_text.splitlines() if "child-pid" in one)
        self._first = str(json.loads(line)["child-pid"])
        return asyncio.create_task(self._wait(stream), name=f"sandbox {self._sandbox}")

    async def _wait(self, stream: EnvdStream) -> None:
        try:
            await stream.forward_to(lambda data: None)
        except OSError as error:  # then nobody knows the limit
            logger.debug("%s: its end will not be reported: %r", self._sandbox, error)
        finally:
            await stream.close()
            if not self.ended.done():
                self.ended.set_result(-1 if stream.exit_code is None else stream.exit_code)

    async def start_tool(self, *command: str, stdin: bool) -> EnvdStream:
        return await self._envd.start(f"{_HIDDEN}/{_PROGRAM}", "within", self._first, *command, stdin=stdin)

    async def check(self) -> None:
        """Raise SandboxDied if the sandbox is gone, or what ran in it has ended."""
        try:
            found = await self.server.request("GET", f"/sandboxes/{self._sandbox}")
        except SandboxDied as error:
            raise SandboxDied(f"the server ended sandbox {self._sandbox}, or its time was over: {error}") from error
        if found.get("state", "running") != "running":
            raise SandboxDied(f"sandbox {self._sandbox} is {found['state']}")
        if self.ended.done() and self.ended.result() >= 0:
            raise SandboxDied(f"process 1 of {self._sandbox} has ended with exit code {self.ended.result()}")

    async def is_running(self) -> bool:
        await self.check()
        return True

    async def extend_lease(self, seconds: int) -> None:
        await self.server.request("POST", f"/sandboxes/{self._sandbox}/timeout", {"timeout": seconds})


class Templates(NamedImages):
    """Images of templates, which are made of Dockerfiles beforehand."""

    def unbuildable(self, context: Path) -> str:
        return (
            f"the server builds no images, and {context} has a Dockerfile: make a template of it, with bubblewrap, "
            "and name it as the task's docker_image"
        )


class E2BBackend(RemoteBackend):
    """Sandboxes of one server. base_image: the template of tasks that name none."""

    remains = "the server ends what is left after --env.e2b.lease_s"

    def __init__(self, *, e2b: E2BOptions | Mapping[str, Any] | None = None, base_image: str | None = None) -> None:
        super().__init__(Templates(base_image or "base"))
        self._options = E2BOptions.model_validate(e2b or {})
        self._slots = Slots(self._options.max_starts)
        self._server: Server | None = None
        self._known: dict[str, Mapping[str, Any]] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Server.connect(self._options))
            await reap(server, self.owner.host)
            stack.push_async_callback(_remove_all, server, self.owner.id)
            stack.callback(asyncio.create_task(self.renew_leases(), name="sandboxes of E2B").cancel)
            stack.push_async_callback(self._slots.close)
            self._server = server
            stack.callback(setattr, self, "_server", None)
            self._stack = stack.pop_all()
        return self

    async def launch(self, kind: Kind) -> ToolContainer:
        if self._server is None:
            raise SandboxError("enter the backend first: async with E2BBackend() as backend")
        server, options = self._server, self._options
        async with AsyncExitStack() as stack, self._slots:
            made = await self._create(server, kind)
            stack.push_async_callback(_remove, server, made["sandboxID"])
            envd = server.connect_envd(made)
            if kind.limits.network and not envd.token:
                raise SandboxError(
                    "the server gives no access token, so programs with a network could command its sandbox; leave "
                    "the task's network off"
                )
            inside = NestedContainer(server, envd, made["sandboxID"])
            try:
                async with asyncio.timeout(options.start_timeout_s):
                    waiting = await inside.build(kind)
                    stack.callback(waiting.cancel)
                    channel = await self._open_channel(stack, kind, inside, made["sandboxID"])
                    if kind.image not in self._known:
                        self._known[kind.image] = await query_image(channel) | {"User": ""}
            except TimeoutError as error:
                if isinstance(error, SandboxError):
                    raise
                raise SandboxTimeout(f"no start within {options.start_timeout_s:g} s") from error
            place = (kind, made["sandboxID"], channel, self._known[kind.image], stack.pop_all())
            return E2BContainer(*place, inside=inside, options=options)

    async def _create(self, server: Server, kind: Kind) -> Mapping[str, Any]:
        body = {
            "templateID": kind.image,
            "timeout": self._options.lease_s,
            "autoPause": False,
            "secure": True,
            "allow_internet_access": kind.limits.network,
            "metadata": self.owner.labels(),
        }
        try:
            return await server.retry(lambda: server.request("POST", "/sandboxes", body), self._options.room_timeout_s)
        except SandboxDied as error:
            raise ImageMissing(
                f"the server has no template {kind.image}: {error}; build one of the task's image, with bubblewrap"
            ) from error

    async def _open_channel(self, stack: AsyncExitStack, kind: Kind, inside: NestedContainer, name: str) -> Channel:
        async def attach() -> EnvdStream:
            return await inside.start_tool("relay", _SOCKET, "5", stdin=True)

        times = {"start_s": self._options.start_timeout_s, "return_s": self._options.outage_timeout_s}
        return await open_channel(
            stack, kind, name, attach, inside.is_running, api=inside.server, host="E2B server", **times
        )


async def _remove(server: Server, sandbox: str) -> None:
    try:
        with contextlib.suppress(SandboxDied):  # it is gone
            await finish(server.retry(lambda: server.request("DELETE", f"/sandboxes/{sandbox}"), _REMOVE_S))
    except SandboxError as error:
        logger.warning("sandbox %s stays until its time is over: %s", sandbox, error)


async def _list_by_label(server: Server, label: str, value: str) -> list[Mapping[str, Any]]:
    """Return sandboxes of ours, at most a page of them."""
    query = urlencode({PREFIX + label: value})
    found = await server.retry(lambda: server.request("GET", "/v2/sandboxes", metadata=query, limit="100"), _REMOVE_S)
    return [one for one in found.get("items", ()) if (one.get("metadata") or {}).get(PREFIX + label) == value]


async def _remove_all(server: Server, owner_id: str) -> None:
    """Remove an owner's sandboxes, each once: a server may go on listing one that it has removed, or won't remove."""
    removed: set[str] = set()
    while page := {one["sandboxID"] for one in await _list_by_label(server, "owner", owner_id)} - removed:
        await asyncio.gather(*(_remove(server, name) for name in page))
        removed |= page


async def reap(server: Server, host: str) -> int:
    """Remove the sandboxes of this host's dead drivers; the server ends others after their lease. Returns how many."""
    found = await _list_by_label(server, "host", host)
    dead = [one for one in found if Owner.from_labels(one["metadata"]).is_dead()]
    await asyncio.gather(*(_remove(server, one["sandboxID"]) for one in dead))
    return len(dead)
