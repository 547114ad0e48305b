"""A sandbox as a mere temporary directory. No isolation whatsoever.

For tests and for developing tools on a machine without Docker. Commands run as the caller, on the
caller's file system, with the caller's network and without limits: never run a model's commands here
that you would not type yourself.

Paths: the sandbox's root directory is `<tmp>/root`, so the workdir `/app` is `<tmp>/root/app` and
`Sandbox.workdir` says so. The file methods and `cwd=` take absolute paths either as they are, when they
lie below `<tmp>`, or as paths inside this root. Commands see the host's real paths, so portable commands
use relative ones.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import io
import logging
import math
import os
import shutil
import stat
import tarfile
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, Self

from sandboxes.base import (
    Backend,
    ExecResult,
    NotSupported,
    Process,
    PtySize,
    Sandbox,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    Streams,
    argv_of,
    check_port,
)
from sandboxes.local.ports import streams_to
from sandboxes.local.process import LocalProcess
from sandboxes.local.session import LocalSession
from sandboxes.local.sweep import kill_marked
from sandboxes.owner import Owner, process_space, process_start
from sandboxes.shielding import finish
from sandboxes.trees import Reader, SelectingReader, pack, read_folder

logger = logging.getLogger(__name__)

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PREFIX = "atropos-sandboxes-"
_MARKER = "ATROPOS_SANDBOX"


class LocalBackend(Backend):
    """Makes sandboxes out of temporary directories. See the module's warning.

    own_commands: all commands are the caller's own, so that it need not be warned."""

    def __init__(self, *, own_commands: bool = False) -> None:
        self._own_commands = own_commands
        self._owner = Owner.of_this_process()
        self._base: Path | None = None

    async def __aenter__(self) -> Self:
        if not self._own_commands:
            logger.warning("The local backend isolates nothing: commands run as you, on this machine")
        await asyncio.to_thread(reap_dead_directories)
        # The owner is in the name so that a later start can tell that a crashed run left it behind.
        owner = self._owner
        prefix = f"{_PREFIX}{owner.space.replace('-', '')}-{owner.pid}-{owner.start}-{owner.id}-"
        self._base = await asyncio.to_thread(_make_base, prefix)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._base is not None:
            kill_marked(f"{_MARKER}={self._owner.id}")
            await finish(asyncio.to_thread(shutil.rmtree, self._base, ignore_errors=True))
            self._base = None

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        if self._base is None:
            raise SandboxError("enter the backend first: async with LocalBackend() as backend")
        _refuse_other_user(spec.user)
        if spec.switch_users:
            # Asked for by the verifier, whose root would work on this machine's own /tests.
            raise NotSupported("a local sandbox is not isolated: judge in containers, or without hidden tests")
        if spec.mounts:
            raise NotSupported("a local sandbox has this machine's folders where they are; mount none")
        async with self._sandbox(spec) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def _sandbox(self, spec: SandboxSpec) -> AsyncIterator[LocalSandbox]:
        home = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._base))
        sandbox = LocalSandbox(f"{self._owner.id}-{home.name}", home, spec, self._sandbox)
        try:
            await sandbox.open_doors()
            yield sandbox
        finally:
            await finish(sandbox.stop())
            await finish(asyncio.to_thread(shutil.rmtree, home, ignore_errors=True))

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Return the requested name; there are no images here."""
        return name or "local"


class LocalSandbox(Sandbox):
    """One temporary directory and its processes."""

    def __init__(
        self,
        sandbox_id: str,
        home: Path,
        spec: SandboxSpec,
        another: Callable[[SandboxSpec], AbstractAsyncContextManager[LocalSandbox]],
    ) -> None:
        self.id = sandbox_id
        self._spec = spec
        self._another = another
        self._home = home
        self._root = home / "root"
        self._env = dict(spec.env)
        self._stopped = False
        self._doors: dict[str, asyncio.Server] = {}
        self._sessions: list[LocalSession] = []
        self._processes: set[LocalProcess] = set()
        self._workdir = self._root / (spec.workdir or "/").lstrip("/")
        self.workdir = str(self._workdir)
        self._make_directories()

    def _make_directories(self) -> None:
        self._workdir.mkdir(parents=True)
        (self._home / "tmp").mkdir()

    async def open_doors(self) -> None:
        """Serve the doors, on ports of this machine's loopback: here they are everybody's."""
        loop = asyncio.get_running_loop()
        for name, door in self._spec.doors.items():
            self._doors[name] = await loop.create_server(door, "127.0.0.1", 0)

    def door(self, name: str) -> str:
        host, port = self._doors[name].sockets[0].getsockname()
        return f"{host}:{port}"

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
        # Input from a file rather than a pipe: a command that does not read it cannot block us.
        with tempfile.TemporaryFile() as source:
            source.write(stdin)
            source.seek(0)
            options = {"timeout": timeout, "stdin": False, "split": split, "max_output": max_output}
            async with self._start(command, cwd, env, user, None, options, source) as process:
                return await process.wait()

    def start(
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
    ) -> AbstractAsyncContextManager[Process]:
        options = {"timeout": timeout, "stdin": stdin, "split": split, "max_output": max_output}
        return self._start(command, cwd, env, user, pty, options)

    @asynccontextmanager
    async def _start(
        self,
        command: str | Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
        pty: PtySize | None,
        options: dict[str, Any],
        source: IO[bytes] | None = None,
    ) -> AsyncIterator[Process]:
        _refuse_other_user(user)
        self._refuse_if_stopped()
        argv, directory, marker = argv_of(command), self._host_path(cwd or "."), self._marker()
        terminal = {} if pty is None else {"TERM": "xterm-256color"}
        process = LocalProcess(marker, pty=pty, **options)
        self._processes.add(process)
        try:
            await process.begin(argv, terminal | self._environment(env) | _variable(marker), directory, source)
            yield process
        finally:
            await finish(process.close())
            if not process.is_open:
                self._processes.discard(process)

    @asynccontextmanager
    async def connect(self, target: int | str, *, timeout: float = 10.0) -> AsyncIterator[Streams]:
        """Connect to a server. Ports are this machine's."""
        self._refuse_if_stopped()
        where = check_port(target) if isinstance(target, int) else self._host_path(target)
        async with streams_to(where, timeout) as streams:
            yield streams

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> LocalSession:
        _refuse_other_user(user)
        self._refuse_if_stopped()
        directory = self._home / f"session-{len(self._sessions)}"
        session = LocalSession(directory, self._host_path(cwd or "."), self._environment(env), self._marker())
        self._sessions.append(session)
        return session

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise SandboxDied(f"sandbox {self.id} was stopped")

    def _marker(self) -> str:
        """Return "NAME=value" for the environment of a command and of all its processes, to find them by."""
        return f"{_MARKER}={self.id}.{uuid.uuid4().hex}"

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        own = {"PATH": _PATH, "HOME": str(self._home), "TMPDIR": str(self._home / "tmp"), "LANG": "C.UTF-8"}
        return own | self._env | dict(env or {})

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        return await asyncio.to_thread(_read, self._host_path(path), max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await asyncio.to_thread(_write, self._host_path(path), data, mode)

    async def upload(self, archive: bytes, path: str) -> None:
        target = self._host_path(path)

        def unpack() -> None:
            target.mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.4 brought it
                tar.extractall(target)

        await asyncio.to_thread(unpack)

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        return await asyncio.to_thread(pack, self._host_path(path), max_bytes=max_bytes)

    async def read_tree(self, path: str, make: Callable[[], Reader], *, skip: Collection[str] = ()) -> Reader:
        reader = make()
        await asyncio.to_thread(read_folder, self._host_path(path), SelectingReader(reader, path), skip=skip)
        return reader

    async def reset(self) -> None:
        await self._kill_all()
        for path in (self._root, self._home / "tmp"):
            await asyncio.to_thread(shutil.rmtree, path)
        self._make_directories()

    @asynccontextmanager
    async def fork(self, count: int) -> AsyncIterator[Sequence[Sandbox]]:
        async with AsyncExitStack() as stack:
            forks: list[Sandbox] = []
            for _ in range(count):
                fork = await stack.enter_async_context(self._another(self._spec))
                await asyncio.to_thread(_copy, self._root, fork._root)
                forks.append(fork)
            yield forks

    async def stop(self) -> None:
        self._stopped = True
        for process in self._processes:
            process.fail(SandboxDied(f"sandbox {self.id} was stopped"))
        for server in self._doors.values():
            server.close()
        await self._kill_all()

    async def _kill_all(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions))
        await asyncio.to_thread(kill_marked, f"{_MARKER}={self.id}")
        for process in self._processes:
            process.stop_reading()
        self._processes.clear()

    def _host_path(self, path: str) -> Path:
        """Return the place of a sandbox's path on the host; links out of the sandbox are refused."""
        given = Path(path)
        if not given.is_absolute():
            given = self._workdir / given
        elif not given.is_relative_to(self._home):
            given = self._root / path.lstrip("/")
        # The last component stays as it is: `download` returns links unfollowed.
        try:
            resolved = given.parent.resolve() / given.name if given.name not in ("", "..") else given.resolve()
            target = resolved.resolve()
        except RuntimeError as error:  # what Python 3.11 and 3.12 say of links that go round in a circle
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error
        if not resolved.is_relative_to(self._home) or not target.is_relative_to(self._home):
            raise PermissionError(f"{path} leads out of the sandbox")
        return resolved


def _variable(marker: str) -> dict[str, str]:
    name, _, value = marker.partition("=")
    return {name: value}


def _refuse_other_user(user: str | None) -> None:
    if user is not None and user not in (getpass.getuser(), str(os.getuid())):
        raise NotSupported(f"the local backend runs commands only as the current user, not as {user!r}")


def _make_base(prefix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix)).resolve()


def reap_dead_directories() -> int:
    """Remove the directories and processes of backends with a dead process. Returns how many."""
    removed, here = 0, process_space().replace("-", "")
    for left in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        parts = left.name.removeprefix(_PREFIX).split("-")
        if len(parts) != 5:
            continue  # not as we name them now
        space, pid, start, owner, _ = parts
        # Of another boot nothing lives; of another process namespace nothing is known.
        of_this_boot = space.partition(".")[0] == here.partition(".")[0]
        if (process_start(int(pid)) != start) if space == here else not of_this_boot:
            kill_marked(f"{_MARKER}={owner}-")
            shutil.rmtree(left, ignore_errors=True)
            removed += 1
    return removed


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target, symlinks=True, ignore=_sockets_and_pipes)


def _sockets_and_pipes(folder: str, names: list[str]) -> list[str]:
    kinds = {name: (Path(folder) / name).lstat().st_mode for name in names}
    return [name for name, mode in kinds.items() if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)]


def _open(path: Path, flags: int, mode: int = 0) -> int:
    """Open a regular file, and return its descriptor; never waits, as opening a pipe would."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EISDIR if path.is_dir() else errno.EINVAL, "not a regular file", str(path))
    return fd


def _read(path: Path, max_bytes: int) -> bytes:
    with os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{path} holds more than {max_bytes} bytes")
    return data


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(_open(path, os.O_WRONLY | os.O_CREAT, mode), "wb") as file:
        file.truncate()
        file.write(data)
    path.chmod(mode)
