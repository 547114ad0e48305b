"""One Docker container as a sandbox: commands and small files by its executor, trees by the Docker daemon."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import posixpath
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import aiodocker

from sandboxes.base import (
    ExecResult,
    Sandbox,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
    SandboxTimeout,
    Session,
    argv_of,
)
from sandboxes.docker.channel import Channel, Ended, Identity
from sandboxes.docker.daemon import daemon_errors
from sandboxes.docker.launch import Machine
from sandboxes.docker.proxy import ENVIRONMENT
from sandboxes.output import dropped_line
from sandboxes.shell import LOOP, LOOP_VARIABLE, session_argv
from sandboxes.trees import rebase

_STATE_S = 10.0
"""How long the Docker daemon may take to say what became of a container."""
_ENDING_S = 2.0
"""How much later the Docker daemon hears that a container has ended."""
_STOP_S = 60.0
_TREE_S = 600.0
"""How long the Docker daemon may take over a tree."""
_ENDS = {70: "memory", 2: "processes"} | dict.fromkeys((71, 132, 134, 135, 136, 139), "executor")
"""How the executor ends where it can get no memory, gVisor where it can get no threads, and the executor where it fails
otherwise. Nobody outside ends them so."""
_OWN_UID = 60417
"""The executor's, `self.c`."""
_FULL = 0.97
"""The share of its memory from which on a container is at its limit."""


class _Blame:
    """Around what needs the sandbox, again and again: raises SandboxEnded where that has died of what ran in it."""

    def __init__(self, sandbox: DockerSandbox) -> None:
        self._sandbox = sandbox

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, (SandboxDied, SandboxTimeout)) or isinstance(error, SandboxEnded):
            return
        limit = await self._sandbox.overran()
        if limit is not None:
            what = f"sandbox {self._sandbox.id} was ended by what ran in it, at the limit of its {limit}"
            raise SandboxEnded(what, limit) from error


class DockerSession(Session):
    """A shell in a container that lives from command to command. Made by `DockerSandbox.session`."""

    def __init__(self, channel: Channel, number: int, blame: _Blame) -> None:
        self._channel = channel
        self._number = number
        self._blame = blame
        self._turn = asyncio.Lock()

    async def run(self, command: str, *, timeout: float = 60.0, max_output: int = 1_000_000) -> ExecResult:
        if max_output < 0:
            raise ValueError(f"max_output must not be negative, got {max_output}")
        text = command.encode(errors="surrogateescape")
        if b"\0" in text:
            raise ValueError("a command cannot hold NUL characters")
        async with self._turn, self._blame:
            start = time.monotonic()
            ended = await self._channel.run_line(self._number, text, timeout=timeout, max_output=max_output)
        return _result(ended, max_output, start)

    async def close(self) -> None:
        await self._channel.close_session(self._number)


class Care(Protocol):
    """What a sandbox needs of its backend beyond its own machine."""

    async def exchange(self, machine: Machine, spec: SandboxSpec) -> Machine: ...

    def fork(
        self, machine: Machine, spec: SandboxSpec, count: int
    ) -> AbstractAsyncContextManager[Sequence[Sandbox]]: ...


class DockerSandbox(Sandbox):
    """A running container. Made by `DockerBackend.open`."""

    def __init__(self, machine: Machine, spec: SandboxSpec, care: Care) -> None:
        self._spec = spec
        self._care = care
        self._blame = _Blame(self)
        self._take(machine)

    def _take(self, machine: Machine) -> None:
        known = [entry.partition("=")[0] for entry in machine.image.get("Env") or []] + list(self._spec.env)
        self._machine = machine
        self._channel = machine.channel
        self.workdir = self._spec.workdir or machine.image.get("WorkingDir") or "/"
        self._user = self._spec.user if self._spec.user is not None else machine.image.get("User") or ""
        self._sets_home = "HOME" in known
        self._identities: dict[str, Identity] = {"": Identity(), "root": Identity(), "0": Identity()}

    @property
    def id(self) -> str:
        return self._machine.name

    @property
    def machine(self) -> Machine:
        """Return the machine that it is made of now; `reset` takes another."""
        return self._machine

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 60.0,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        max_output: int = 1_000_000,
    ) -> ExecResult:
        argv = argv_of(command)
        if max_output < 0:
            raise ValueError(f"max_output must not be negative, got {max_output}")
        async with self._blame:
            identity = await self._identity(user)
            start = time.monotonic()
            ended = await self._channel.execute(
                argv,
                cwd=self._absolute(cwd or "."),
                env=self._environment(identity, env),
                identity=identity,
                stdin=stdin,
                timeout=timeout,
                max_output=max_output,
            )
        return _result(ended, max_output, start)

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        async with self._blame:
            identity = await self._identity(user)
            number = await self._channel.open_session(
                session_argv(self._absolute(cwd or "."), f"/dev/shm/.session-{secrets.token_hex(4)}"),
                cwd="/",
                env=self._environment(identity, env) | {LOOP_VARIABLE: LOOP},
                identity=identity,
            )
        return DockerSession(self._channel, number, self._blame)

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        async with self._blame:
            return await self._channel.read(self._absolute(path), max_bytes, await self._identity(None))

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        async with self._blame:
            await self._channel.write(self._absolute(path), data, mode, await self._identity(None))

    async def upload(self, archive: bytes, path: str) -> None:
        """Unpack a tar archive; its members keep the owners that it gives them."""
        target = self._absolute(path)
        async with self._blame:
            await self._channel.make_directory(target, await self._identity(None))
        async with daemon_errors(f"upload to {target} in sandbox {self.id}"), asyncio.timeout(_TREE_S):
            # As a file, which is sent piece by piece: a large body at once holds the event loop up.
            data = io.BytesIO(archive)
            try:
                await self._machine.container.put_archive(target, data)  # type: ignore[no-untyped-call]  # aiodocker's gap
            except aiodocker.DockerError as error:
                _raise_callers_mistake(error, target)
                raise

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        target = self._absolute(path)
        async with daemon_errors(f"download {target} from sandbox {self.id}"), asyncio.timeout(_TREE_S):
            archive = await self._fetch(target, max_bytes)
        return await asyncio.to_thread(rebase, archive)

    async def stop(self) -> None:
        await self._channel.close()
        async with daemon_errors(f"stop sandbox {self.id}"), asyncio.timeout(_STOP_S):
            try:
                await self._machine.container.kill()
            except aiodocker.DockerError as error:
                if error.status != 409:  # not running any more
                    raise
            await self._machine.container.wait()

    async def overran(self) -> str | None:
        container = self._machine.container
        try:
            async with daemon_errors(f"ask what became of sandbox {self.id}"), asyncio.timeout(_STATE_S):
                state = (await container.show())["State"]
                patience = time.monotonic() + _ENDING_S
                while state["Running"] and not self._channel.alive and time.monotonic() < patience:
                    await asyncio.sleep(0.1)
                    state = (await container.show())["State"]
                if state["Running"] and not state["Paused"]:
                    return full(await container.stats(stream=False))
                return ended_at(state)
        except SandboxError:
            return None

    async def _fetch(self, target: str, max_bytes: int) -> bytes:
        """Return the Docker daemon's archive of `target`, read in pieces so that a huge one costs no memory."""
        data = bytearray()
        request = self._machine.container.docker._query(
            f"containers/{self._machine.container.id}/archive", params={"path": target}
        )
        try:
            async with request as response:
                try:
                    async for piece in response.content.iter_chunked(1 << 18):
                        data += piece
                        if len(data) > max_bytes:
                            raise ValueError(f"{target} holds more than {max_bytes} bytes")
                finally:
                    response.close()
        except aiodocker.DockerError as error:
            _raise_callers_mistake(error, target)
            raise
        return bytes(data)

    async def reset(self) -> None:
        self._take(await self._care.exchange(self._machine, self._spec))

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        return self._care.fork(self._machine, self._spec, count)

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workdir, path)

    def _environment(self, identity: Identity, env: Mapping[str, str] | None) -> dict[str, str]:
        home = {} if self._sets_home else {"HOME": identity.home}
        proxy = ENVIRONMENT if self._spec.limits.allowed_hosts else {}
        return home | proxy | dict(self._spec.env) | dict(env or {})

    async def _identity(self, user: str | None) -> Identity:
        name = self._user if user is None else user
        if name not in self._identities:
            self._identities[name] = await self._look_up(name)
        return self._identities[name]

    async def _look_up(self, user: str) -> Identity:
        """Look up `name`, `uid`, `name:group` or `uid:gid` as Docker understands them, by the image's own files."""
        passwd = [e for e in await self._table("/etc/passwd", 6) if _is_id(e[2]) and _is_id(e[3])]
        groups = [e for e in await self._table("/etc/group", 3) if _is_id(e[2])]
        name, _, group = user.partition(":")
        entry = next((e for e in passwd if name in (e[0], e[2])), None)
        if entry is None and not _is_id(name):
            raise SandboxError(f"the image has no user {name!r}")
        uid = int(entry[2]) if entry else int(name)
        if uid == _OWN_UID:
            raise SandboxError(f"user id {uid} is what commands are watched by; choose another for {user!r}")
        gid = int(entry[3]) if entry else 0
        extra = [int(e[2]) for e in groups if entry and len(e) > 3 and entry[0] in e[3].split(",")]
        if group:
            found = next((e for e in groups if group in (e[0], e[2])), None)
            if found is None and not _is_id(group):
                raise SandboxError(f"the image has no group {group!r}")
            gid, extra = int(found[2] if found else group), []
        return Identity(uid, gid, tuple(dict.fromkeys([gid, *extra]))[:64], entry[5] if entry else "/")

    async def _table(self, path: str, fields: int) -> Sequence[Sequence[str]]:
        """Return the lines of a file that have so many fields; none where something else is in its place."""
        try:
            text = await self._channel.read(path, 1 << 20, Identity())
        except SandboxError:
            raise
        except (OSError, ValueError):
            return []
        lines = [line.split(":") for line in text.decode(errors="replace").splitlines() if "\0" not in line]
        return [line for line in lines if len(line) >= fields]


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**32 - 1


def _raise_callers_mistake(error: aiodocker.DockerError, target: str) -> None:
    """Raise the OSError that the Docker daemon's answer about a path stands for, if it stands for one."""
    said = str(error.message).lower()
    if error.status == 404 and "no such container" not in said:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory in the sandbox", target) from error
    for number, words in {errno.ELOOP: "too many links", errno.ENOTDIR: "not a directory"}.items():
        if words in said:
            raise OSError(number, os.strerror(number), target) from error


def ended_at(state: Mapping[str, Any]) -> str | None:
    """Return the limit at which a container has ended, by what the Docker daemon says of it; None for none."""
    return "memory" if state["OOMKilled"] else _ENDS.get(state["ExitCode"])


def full(stats: Sequence[Mapping[str, Any]]) -> str | None:
    """Return which of its limits a running container is at, by the Docker daemon's statistics; None for none."""
    now = stats[0] if stats else {}
    memory, pids = now.get("memory_stats") or {}, now.get("pids_stats") or {}
    pages = memory.get("stats") or {}
    # What files have in memory is given up when it is needed.
    cached = sum(pages.get(f"total_{name}", pages.get(name, 0)) for name in ("active_file", "inactive_file"))
    if memory.get("limit") and memory.get("usage", 0) - cached >= _FULL * memory["limit"]:
        return "memory"
    if pids.get("limit") and pids.get("current", 0) >= pids["limit"]:
        return "processes"
    return None


def _result(ended: Ended, max_output: int, start: float) -> ExecResult:
    raw = ended.data
    if ended.dropped:
        head = max_output // 2
        raw = raw[:head] + dropped_line(ended.dropped) + raw[head:]
    duration = time.monotonic() - start
    return ExecResult(ended.exit_code, raw, ended.timed_out, ended.dropped > 0, duration, ended.shell_ended)
