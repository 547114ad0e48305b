"""What a sandbox is: the protocol that every backend implements, its values and its errors.

Three kinds of outcome are kept apart:

- A command that fails, times out or prints too much is a *result* (`ExecResult`).
- A file that is missing, a directory where a file was expected and so on is the caller's mistake
  and raises the same `OSError` subclass that the standard library would raise.
- Everything else is a failure of ours or of the Docker daemon and raises `SandboxError`.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable


class SandboxError(RuntimeError):
    """The sandbox or its Docker daemon failed; the command's outcome is unknown."""


class SandboxDied(SandboxError, ConnectionError):
    """The sandbox is gone (killed, removed, daemon restarted); open a new one."""


class DaemonRestarted(SandboxError, ConnectionError):
    """The Docker daemon went away while the request was under way, and the sandbox has survived that. What the
    request did is unknown; what was running for it has been killed. The sandbox can be used on."""


class SandboxTimeout(SandboxError, TimeoutError):
    """The Docker daemon did not answer in time. A command's own time limit is a result instead."""


class ImageMissing(SandboxError, LookupError):
    """The image is neither present nor obtainable; the message says how to provide it."""


class StorageFull(SandboxError):
    """The Docker daemon has no space left."""


class DaemonError(SandboxError):
    """The Docker daemon failed by itself or was in its own way (HTTP 5xx, a name conflict); it may work next time."""


class DaemonUnavailable(SandboxError, ConnectionError):
    """No Docker daemon answers; the message says how to start one."""


class NotSupported(SandboxError, NotImplementedError):
    """This backend cannot do what was asked, and says so rather than do something else.

    Also a NotImplementedError, for callers that know the standard library's errors alone."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did.

    exit_code: as a shell reports it: 128 + n when signal n ended it, 124 when `timed_out`.
    raw: stdout and stderr as one stream of bytes, in the order in which they were written.
    truncated: bytes were dropped from the middle of `raw`, which then says how many.
    shell_ended: in a session, the command ended the shell itself (`exit`, `exec`, a signal, its time
        limit); the next one finds the state as it was before this one.
    """

    exit_code: int
    raw: bytes
    timed_out: bool = False
    truncated: bool = False
    duration_s: float = 0.0
    shell_ended: bool = False

    @property
    def output(self) -> str:
        """`raw` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.raw.decode("utf-8", errors="replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


FileKind = Literal["file", "directory", "link", "other"]
_KINDS: Mapping[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What is at a path.

    size: bytes; of a link the length of its target.
    mode: permission bits, such as 0o644.
    modified: seconds since 1970.
    target: where a link leads, as it was written; None for anything else.
    """

    name: str
    kind: FileKind
    size: int
    mode: int
    modified: float
    target: str | None = None

    @classmethod
    def of(cls, name: str, mode: int, size: int, modified_ns: int, target: str) -> FileInfo:
        """Of what `lstat` says, `mode` with the type; `target` counts for a link alone."""
        kind: FileKind = _KINDS.get(stat.S_IFMT(mode), "other")
        return cls(name, kind, size, stat.S_IMODE(mode), modified_ns / 1e9, target if kind == "link" else None)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use. Memory is without swap; disk counts what is written.

    allowed_hosts: what can be reached without `network`, by HTTP and HTTPS through a proxy that the environment
        of commands names: "host.org", "*.host.org", "host:8080". Addresses that aren't public only where listed.
    """

    cpus: float = 1.0
    memory_mb: int = 1024
    pids: int = 256
    disk_mb: int = 2048
    network: bool = False
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.network and self.allowed_hosts:
            raise ValueError("allowed_hosts mean nothing with network=True")


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """How to make a sandbox.

    image: a name that the backend understands; the local backend ignores it.
    workdir: absolute path in which commands start; None takes the image's own.
    user: who runs the commands; None takes the image's own.
    switch_users: root's commands may become other users (setuid and setgid); off, nobody can.
    """

    image: str
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    limits: Limits = Limits()
    switch_users: bool = False


@runtime_checkable
class Session(Protocol):
    """A shell in a sandbox whose state lasts from one command to the next: directory, variables, functions,
    aliases, background jobs. Options of `set` that would end or flood it (e, u, v, x) last one command, and a trap
    on EXIT runs at the end of the command that has set it.

    A command that ends the shell loses only what it changed itself; in a shell other than bash the functions
    go with it. What background jobs print while no command runs is dropped. Where the present directory is gone,
    the next command says so and starts where the session did.
    """

    async def run(self, command: str, *, timeout: float = 60.0, max_output: int = 1_000_000) -> ExecResult:
        """Run a command, after those that were given before. After `timeout` seconds it is killed with
        everything that it started; servers that earlier commands left running live on."""
        ...

    async def close(self) -> None:
        """End the shell and what it started. A session that isn't closed ends with its sandbox."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """One isolated machine for one rollout, open from `Backend.open` until its block ends."""

    @property
    def id(self) -> str:
        """Names the sandbox in logs and in the Docker daemon's own listing."""

    @property
    def workdir(self) -> str:
        """Absolute path in which commands start."""

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
        """Run a command to its end and return what it did.

        A string runs in a fresh `/bin/sh -c`, a sequence runs without a shell. After `timeout`
        seconds every process that the command started is killed and the partial output returned.
        At most `max_output` bytes come back: the first and the last half, with a line between
        them that says how much was dropped. `env` adds to the sandbox's own.

        Raises SandboxDied, SandboxTimeout, SandboxError.
        """
        ...

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        """A shell that keeps its state, for as long as the sandbox lives: bash where there is one, else sh."""
        ...

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        """A regular file's content. Raises FileNotFoundError, IsADirectoryError,
        PermissionError, or ValueError when it is larger than `max_bytes`."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file, and its parent directories. Relative paths start at `workdir`."""
        ...

    async def stat(self, path: str) -> FileInfo:
        """What is at a path; a link is told as a link. Raises FileNotFoundError, NotADirectoryError,
        PermissionError, OSError where links go round in a circle."""
        ...

    async def list(self, path: str = ".", *, max_entries: int = 10_000) -> Sequence[FileInfo]:
        """What is in a directory, by name; links are told as links. Raises FileNotFoundError, NotADirectoryError,
        PermissionError, or ValueError when there is more than `max_entries`."""
        ...

    async def upload(self, archive: bytes, path: str) -> None:
        """Unpack a tar archive into the directory `path`, which is created when missing."""
        ...

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        """The tree at `path` as a tar archive whose member names are relative to `path`.

        It is read by the Docker daemon from outside, so that no program in the sandbox can change
        what is seen; it also works after `stop`. Links come back as links, unfollowed.
        Raises FileNotFoundError, OSError where links go round in a circle, or ValueError when it is
        larger than `max_bytes`.
        """
        ...

    async def reset(self) -> None:
        """Back to the state in which `open` gave it, whatever was done since; its processes and sessions are
        gone, and `id` may be another one. Raises NotSupported where it can't be."""
        ...

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        """`count` new sandboxes with this one's files as they are now, removed when the block ends. Its
        processes, sessions and /dev/shm are not copied. Raises NotSupported where it can't be."""
        ...

    async def stop(self) -> None:
        """Kill every process in the sandbox, now. Its files stay readable by `download`."""
        ...


class Backend(Protocol):
    """Makes sandboxes. Entering it checks the Docker daemon and reaps what dead owners left behind;
    leaving it removes everything that it made."""

    async def __aenter__(self) -> Backend: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A started sandbox, removed when the block ends, however it ends."""
        ...

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        """A hint: `count` sandboxes like this will be opened soon. Their image must be there."""
        ...

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """The name of an image that `open` can use at once: `name` when present or pullable, or
        one built from the Dockerfile in the directory `context` (once per content, shared by
        concurrent callers). Raises ImageMissing with the remedy."""
        ...
