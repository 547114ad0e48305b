"""One Docker container as a sandbox: commands and small files by its executor, trees by the starter of the
container."""

from __future__ import annotations

import asyncio
import math
import posixpath
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from sandboxes.base import (
    ExecResult,
    NoSuchUser,
    Process,
    PtySize,
    Sandbox,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
    SandboxTimeout,
    Session,
    Streams,
    argv_of,
    check_port,
)
from sandboxes.docker.executor.channel import Channel, Identity
from sandboxes.docker.executor.container import Container
from sandboxes.docker.executor.doors import door_ports
from sandboxes.docker.executor.proxy import ENVIRONMENT
from sandboxes.shell import LOOP, LOOP_VARIABLE, session_argv
from sandboxes.shielding import finish
from sandboxes.trees import Reader

_OWN_UID = 60417
"""The executor's, `self.c`."""


class _FailureAttribution(AbstractAsyncContextManager[None]):
    """Around each use of the sandbox: raises SandboxEnded if its own programs have ended it, and
    SandboxDied if files of its image are gone, since no result without them can be believed."""

    def __init__(self, sandbox: DockerSandbox) -> None:
        self._sandbox = sandbox

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (error is None or isinstance(error, Exception)) and not self._sandbox.container.is_intact():
            image = self._sandbox.container.kind.image
            raise SandboxDied(f"image {image} was removed while sandbox {self._sandbox.id} was made of it") from error
        if error is None or not isinstance(error, (SandboxDied, SandboxTimeout)) or isinstance(error, SandboxEnded):
            return
        self._sandbox.container.spoiled |= isinstance(error, SandboxTimeout)
        limit = await self._sandbox.overran()
        if limit is not None:
            what = f"sandbox {self._sandbox.id} was ended by what ran in it, at the limit of its {limit}"
            raise SandboxEnded(what, limit) from error


class DockerSession(Session):
    """A shell in a container with a life across commands. Made by `DockerSandbox.session`."""

    def __init__(self, channel: Channel, number: int, attribution: _FailureAttribution) -> None:
        self._channel = channel
        self._number = number
        self._attribution = attribution
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(
        self, command: str, *, timeout: float = 60.0, max_output: int = 1_000_000, split: bool = False
    ) -> ExecResult:
        text = command.encode(errors="surrogateescape")
        if b"\0" in text:
            raise ValueError("a command cannot hold NUL characters")
        async with self._turn, self._attribution:
            if self._closed:
                raise SandboxDied("the session was closed")
            return await self._channel.run_line(self._number, text, timeout=timeout, max_output=max_output, split=split)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._channel.close_session(self._number)


class ContainerProvider(Protocol):
    """The services of a backend for its sandboxes, beyond their own containers."""

    async def exchange(self, container: Container, spec: SandboxSpec) -> Container: ...

    async def check_room(self, container: Container) -> None: ...

    def fork(
        self, container: Container, spec: SandboxSpec, count: int
    ) -> AbstractAsyncContextManager[Sequence[Sandbox]]: ...


class DockerSandbox(Sandbox):
    """A running container. Made by `DockerBackend.open`."""

    def __init__(self, container: Container, spec: SandboxSpec, provider: ContainerProvider) -> None:
        self._spec = spec
        self._provider = provider
        self._attribution = _FailureAttribution(self)
        self._use_container(container)

    def _use_container(self, container: Container) -> None:
        known = [entry.partition("=")[0] for entry in container.image.get("Env") or []] + list(self._spec.env)
        self._container = container
        self._channel = container.channel
        self.workdir = self._spec.workdir or container.image.get("WorkingDir") or "/"
        self._user = self._spec.user if self._spec.user is not None else container.image.get("User") or ""
        self._sets_home = "HOME" in known
        self._identities: dict[str, Identity] = {"": Identity(), "root": Identity(), "0": Identity()}

    @property
    def id(self) -> str:
        return self._container.name

    @property
    def container(self) -> Container:
        """Return its present machine; `reset` takes another."""
        return self._container

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
        split: bool = False,
    ) -> ExecResult:
        argv = argv_of(command)
        async with self._attribution:
            identity = await self._identity(user)
            return await self._channel.execute(
                argv,
                cwd=self._absolute_path(cwd or "."),
                env=self._environment(identity, env),
                identity=identity,
                stdin=stdin,
                timeout=timeout,
                max_output=max_output,
                split=split,
            )

    @asynccontextmanager
    async def start(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = math.inf,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bool = False,
        pty: PtySize | None = None,
        split: bool = False,
        max_output: int = 1_000_000,
    ) -> AsyncIterator[Process]:
        argv = argv_of(command)
        terminal = {} if pty is None else {"TERM": "xterm-256color"}
        async with self._attribution:
            identity = await self._identity(user)
            process = await self._channel.start(
                argv,
                cwd=self._absolute_path(cwd or "."),
                env=terminal | self._environment(identity, env),
                identity=identity,
                timeout=timeout,
                max_output=max_output,
                stdin=stdin,
                pty=pty,
                split=split,
                attribution=self._attribution,
            )
        try:
            yield process
        finally:
            await finish(process.close())

    @asynccontextmanager
    async def connect(self, target: int | str, *, timeout: float = 10.0) -> AsyncIterator[Streams]:
        where = check_port(target) if isinstance(target, int) else self._absolute_path(target)
        async with AsyncExitStack() as stack:
            async with self._attribution:
                identity = await self._identity(None)
                streams = await stack.enter_async_context(self._channel.connect(where, identity, timeout))
            yield streams

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        async with self._attribution:
            identity = await self._identity(user)
            number = await self._channel.open_session(
                session_argv(self._absolute_path(cwd or "."), f"/dev/shm/.session-{secrets.token_hex(4)}"),
                cwd="/",
                env=self._environment(identity, env) | {LOOP_VARIABLE: LOOP},
                identity=identity,
            )
        return DockerSession(self._channel, number, self._attribution)

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        async with self._attribution:
            return await self._channel.read(self._absolute_path(path), max_bytes, await self._identity(None))

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        async with self._attribution:
            await self._channel.write(self._absolute_path(path), data, mode, await self._identity(None))

    async def upload(self, archive: bytes, path: str) -> None:
        """Unpack a tar archive; its members keep the archive's owners."""
        target = self._absolute_path(path)
        async with self._attribution:
            await self._channel.make_directory(target, await self._identity(None))
            await self._container.unpack(archive, target)

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        async with self._attribution:
            return await self._container.pack(self._absolute_path(path), max_bytes)

    async def read_tree(self, path: str, make: Callable[[], Reader], *, skip: Collection[str] = ()) -> Reader:
        async with self._attribution:
            return await self._container.read_tree(self._absolute_path(path), make, skip)

    async def stop(self) -> None:
        await self._provider.check_room(self._container)
        if not await self._container.quiesce():
            await self._container.channel.close()
            await self._container.kill()

    async def overran(self) -> str | None:
        return await self._container.overran()

    async def host_out_of_memory(self) -> bool:
        return await self._container.host_out_of_memory()

    async def reset(self) -> None:
        self._use_container(await self._provider.exchange(self._container, self._spec))

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        return self._provider.fork(self._container, self._spec, count)

    def door(self, name: str) -> str:
        return f"127.0.0.1:{door_ports(self._spec)[name]}"

    def _absolute_path(self, path: str) -> str:
        return posixpath.join(self.workdir, path)

    def _environment(self, identity: Identity, env: Mapping[str, str] | None) -> dict[str, str]:
        home = {} if self._sets_home else {"HOME": identity.home}
        proxy = ENVIRONMENT if self._spec.limits.allowed_hosts else {}
        return home | proxy | dict(self._spec.env) | dict(env or {})

    async def _identity(self, user: str | None) -> Identity:
        name = self._user if user is None else user
        if name not in self._identities:
            self._identities[name] = await self._look_up_user(name)
        return self._identities[name]

    async def _look_up_user(self, user: str) -> Identity:
        """Look up `name`, `uid`, `name:group` or `uid:gid` as Docker understands them, by the image's own files."""
        passwd = [e for e in await self._read_table("/etc/passwd", 6) if _is_id(e[2]) and _is_id(e[3])]
        groups = [e for e in await self._read_table("/etc/group", 3) if _is_id(e[2])]
        name, _, group = user.partition(":")
        entry = next((e for e in passwd if name in (e[0], e[2])), None)
        if entry is None and not _is_id(name):
            raise NoSuchUser(f"the image has no user {name!r}")
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

    async def _read_table(self, path: str, fields: int) -> Sequence[Sequence[str]]:
        """Return the lines of a file with this many fields; none if something else is in its place."""
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
