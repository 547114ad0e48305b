"""What a sandbox is: the protocol that every backend implements, its values and its errors.

Three kinds of outcome are kept apart:

- A command that fails, times out or prints too much is a *result* (`ExecResult`).
- A file that is missing, a directory where a file was expected and so on is the caller's mistake
  and raises the same `OSError` subclass that the standard library would raise.
- Everything else is a failure of ours or of the Docker daemon and raises `SandboxError`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Self, get_args, runtime_checkable


class SandboxError(RuntimeError):
    """The sandbox or its Docker daemon failed; the command's outcome is unknown."""


class SandboxDied(SandboxError, ConnectionError):
    """The sandbox is gone (killed, removed, daemon restarted); open a new one."""


class SandboxEnded(SandboxDied):
    """What ran in the sandbox has ended it or made it fall silent, and that is proven: no failure of ours, but the
    outcome of what ran. Its files can still be downloaded.

    limit: at which it did that, as `Sandbox.overran` tells it."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class DaemonRestarted(SandboxError, ConnectionError):
    """The Docker daemon went away while the request was under way, and the sandbox has survived that. What the
    request did is unknown; what was running for it has been killed. The sandbox can be used on."""


class SandboxTimeout(SandboxError, TimeoutError):
    """The Docker daemon did not answer in time. A command's own time limit is a result instead."""


class ImageMissing(SandboxError, LookupError):
    """The image is neither present nor obtainable; the message says how to provide it."""


class ImageUnbuildable(SandboxError, ValueError):
    """The image's own Dockerfile is at fault, or needs a builder that isn't there: it fails again, however often it is
    tried. The message says where, and the remedy."""


class StorageFull(SandboxError):
    """The Docker daemon has no space left."""


class DaemonError(SandboxError):
    """The Docker daemon failed by itself or was in its own way (HTTP 5xx, a name conflict); it may work next time."""


class DaemonUnavailable(SandboxError, ConnectionError):
    """No Docker daemon answers; the message says how to start one."""


class DaemonRefused(SandboxError, PermissionError):
    """There is a Docker daemon that this user may not use, now and later; the message says how that is allowed."""


class NoSuchUser(SandboxError, LookupError):
    """The sandbox's image has no user of the name that was given."""


class NotSupported(SandboxError, NotImplementedError):
    """This backend cannot do what was asked, and says so rather than do something else.

    Also a NotImplementedError, for callers that know the standard library's errors alone."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did.

    exit_code: as a shell reports it: 128 + n when signal n ended it, 124 when `timed_out`.
    raw: stdout and stderr as one stream of bytes, in the order in which they were written. Where they are kept apart,
        it is the order in which they came: of what is written to both within a moment, either may be first.
    truncated: bytes were dropped from the middle of `raw`, which then says how many.
    shell_ended: in a session, the command ended the shell itself (`exit`, `exec`, a signal, its time
        limit); the next one finds the state as it was before this one.
    raw_stdout, raw_stderr: each by itself, where the command was run with `split=True`; each bounded as `raw` is.
    """

    exit_code: int
    raw: bytes
    timed_out: bool = False
    truncated: bool = False
    duration_s: float = 0.0
    shell_ended: bool = False
    raw_stdout: bytes | None = None
    raw_stderr: bytes | None = None

    @property
    def output(self) -> str:
        """Return `raw` as text; bytes that are not UTF-8 become U+FFFD."""
        return _text(self.raw)

    @property
    def stdout(self) -> str:
        """Return what went to stdout alone, as text. Raises ValueError where the streams were not kept apart."""
        return _text(self.raw_stdout)

    @property
    def stderr(self) -> str:
        """Return what went to stderr alone, as text. Raises ValueError where the streams were not kept apart."""
        return _text(self.raw_stderr)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


def _text(raw: bytes | None) -> str:
    if raw is None:
        raise ValueError("stdout and stderr came as one stream: run the command with split=True, or use output")
    return raw.decode("utf-8", errors="replace")


def argv_of(command: str | Sequence[str]) -> list[str]:
    """Return the program and arguments of a command: a string is the shell's. Raises ValueError for an empty one."""
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not argv:
        raise ValueError("an empty command")
    return argv


@dataclass(frozen=True, slots=True)
class PtySize:
    """How large a terminal is."""

    rows: int = 24
    cols: int = 80

    def __post_init__(self) -> None:
        if not (0 < self.rows < 2**16 and 0 < self.cols < 2**16):
            raise ValueError(f"a terminal has 1 to 65535 rows and columns, not {self.rows} and {self.cols}")


class OutputStream(Protocol):
    """Output of a running command. At most 128 KB of it wait to be read; then the command is held up."""

    async def read(self, size: int = 65536) -> bytes:
        """Return some bytes, at most `size`; none at the end. Raises what `Process.wait` raises."""
        ...

    async def readline(self) -> bytes:
        """Return a line with its end, or a piece of one that is longer than 128 KB; nothing at the end."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield it as it comes, in pieces."""
        ...


class Process(Protocol):
    """A command that runs, from `Sandbox.start`. With the block's end everything that it started is killed, if it has
    not ended; what it leaves running in the background when it ends lives on."""

    @property
    def stdout(self) -> OutputStream:
        """Return its output: of both streams in order, where they are not apart."""
        ...

    @property
    def stderr(self) -> OutputStream:
        """Return what goes to stderr. Raises ValueError where it was started without `split`."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Return how it ended; None while it has not."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the output as it comes. Raises ValueError where stdout and stderr are apart."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input, or type at its terminal; waits while it is 128 KB behind. Raises BrokenPipeError
        where it has closed that, or has ended."""
        ...

    async def close_stdin(self) -> None:
        """End its standard input, after what was written. At a terminal this types Ctrl-D."""
        ...

    async def send_signal(self, number: int) -> None:
        """Send a signal to its process group, as a terminal's Ctrl-C does. Does nothing where it has ended."""
        ...

    async def resize(self, size: PtySize) -> None:
        """Change the size of its terminal."""
        ...

    async def kill(self) -> None:
        """Kill it with everything that it has started, as a time limit does; returns when that is done."""
        ...

    async def wait(self) -> ExecResult:
        """Return what it did, when it has ended: as `exec` would, with all output within `max_output`.

        Output that this task has read before, or that no other one has read for a second, is read on here: it comes in
        the result alone, and to read it raises ValueError. Raises what `exec` raises."""
        ...


def check_port(port: int) -> int:
    """Return a port that can be connected to. Raises ValueError."""
    if not 0 < port < 2**16:
        raise ValueError(f"a port is from 1 to 65535, not {port}")
    return port


Capabilities = Literal["default", "none"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use. Memory is without swap; disk counts what is written.

    allowed_hosts: what can be reached without `network`, by HTTP and HTTPS through a proxy that the environment
        of commands names: "host.org", "*.host.org", "host:8080". Addresses that aren't public only where listed.
    capabilities: of root's commands. "default" is what root needs to add users, give files away, install packages,
        start services and become another user: Docker's default but for raw packets, device nodes and the machine's
        audit log. "none" is none. Other users have none, and nobody can gain any.
    """

    cpus: float = 1.0
    memory_mb: int = 1024
    pids: int = 256
    disk_mb: int = 2048
    network: bool = False
    allowed_hosts: tuple[str, ...] = ()
    capabilities: Capabilities = "default"

    def __post_init__(self) -> None:
        if self.network and self.allowed_hosts:
            raise ValueError("allowed_hosts mean nothing with network=True")
        if self.capabilities not in get_args(Capabilities):
            raise ValueError(f"capabilities are {' or '.join(get_args(Capabilities))}, not {self.capabilities!r}")


Door = Callable[[], asyncio.Protocol]
"""Makes what serves one connection out of a sandbox, as for `loop.create_server`."""

MOST_DOORS = 8

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A connection, as `asyncio.open_connection` gives it."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """How to make a sandbox.

    image: a name that the backend understands; the local backend ignores it.
    workdir: absolute path in which commands start; None takes the image's own.
    user: who runs the commands; None takes the image's own.
    switch_users: root's commands may become other users (setuid and setgid) where they have no other capabilities.
    doors: what programs inside reach at an address of their loopback, by name, whatever their network. Whoever is
        inside may use them. At most `MOST_DOORS`.
    mounts: folders of this machine that stand inside, by their absolute path there, for reading alone, without what
        is mounted below them. Where the engine is elsewhere each is sent there once, by its name, which so has to
        stand for its content.
    shared: a word for whoever may have had it before, and may have it after. A sandbox whose block ends well may be
        brought back to the state of its start and opened again for a spec with the same word, and else the same. Empty:
        nobody has had it before, nor has it after.
    """

    image: str
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    limits: Limits = Limits()
    switch_users: bool = False
    doors: Mapping[str, Door] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    shared: str = ""

    def __post_init__(self) -> None:
        if len(self.doors) > MOST_DOORS:
            raise ValueError(f"a sandbox has at most {MOST_DOORS} doors, not {len(self.doors)}")


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
    """One isolated machine for one rollout, open from `Backend.open` until its block ends.

    A backend's sandbox subclasses this. Required: `workdir`, `exec`, `read_file`, `write_file`, `upload`, `download`
    and `stop`. Optional: `start`, `connect`, `session` (the terminal tool needs it), `reset`, `fork` and `door`,
    which raise NotSupported here, and `overran`, which knows of nothing here.
    """

    workdir: str
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
        split: bool = False,
    ) -> ExecResult:
        """Run a command to its end and return what it did.

        A string runs in a fresh `/bin/sh -c`, a sequence runs without a shell. After `timeout`
        seconds every process that the command started is killed and the partial output returned.
        At most `max_output` bytes come back: the first and the last half, with a line between
        them that says how much was dropped. `env` adds to the sandbox's own.

        stdout and stderr come as one stream, in order, or with `split` each by itself as well: two pipes, between which
        no order is kept.

        Raises SandboxEnded where what ran here has ended the sandbox; SandboxDied, SandboxTimeout, SandboxError;
        OSError where `stdin` can't be held.
        """
        ...

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
        """Start a command and go on while it runs: `async with sandbox.start("make") as process`.

        stdin: it has a standard input that is written to; without, it meets the end at once. pty: it has a terminal of
        that size, by which it is written to and read. The others are as those of `exec`; there is no time limit.
        """
        raise NotSupported(f"{type(self).__name__} can't start commands that are followed; use exec")

    def connect(self, target: int | str, *, timeout: float = 10.0) -> AbstractAsyncContextManager[Streams]:
        """Connect to a server inside, by its port on loopback or by its unix socket's path, whatever the sandbox's
        network: `async with sandbox.connect(8000) as (reader, writer)`. The end of the block closes it.

        Raises ConnectionRefusedError where nobody listens, TimeoutError where nobody accepts it within `timeout`
        seconds, other OSErrors, SandboxError.
        """
        raise NotSupported(f"{type(self).__name__} has no way to servers inside")

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        """Return a regular file's content. Raises FileNotFoundError, IsADirectoryError,
        PermissionError, or ValueError when it is larger than `max_bytes`."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file, and its parent directories. Relative paths start at `workdir`. Where it fails, a
        file that was there is as it was."""
        ...

    async def upload(self, archive: bytes, path: str) -> None:
        """Unpack a tar archive into the directory `path`, which is created when missing. Raises OSError where something
        inside keeps it from being there."""
        ...

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        """Return the tree at `path` as a tar archive whose member names are relative to `path`.

        It is read from outside, so that no program in the sandbox can change what is seen; it also
        works after `stop`. Links come back as links, unfollowed.
        Raises FileNotFoundError, OSError where links go round in a circle, or ValueError when it is
        larger than `max_bytes`.
        """
        ...

    async def stop(self) -> None:
        """Kill every process in the sandbox, now. Its files stay readable by `download`."""
        ...

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        """Open a shell that keeps its state, for as long as the sandbox lives: bash where there is one, else sh."""
        raise NotSupported(f"{type(self).__name__} has no sessions, which the terminal tool needs")

    async def reset(self) -> None:
        """Bring back the state in which `open` gave it, whatever was done since; its processes and sessions are
        gone."""
        raise NotSupported(f"{type(self).__name__} can't be reset; open another sandbox")

    def door(self, name: str) -> str:
        """Return where programs inside reach the spec's door of that name: an address of loopback, "127.0.0.1:31281".
        Raises KeyError where the spec has none."""
        raise NotSupported(f"{type(self).__name__} has no doors, by which programs inside reach ours")

    async def overran(self) -> str | None:
        """Return the limit ("memory", "processes", "executor" for a program of ours that failed at what it was made to
        do) at which what runs here has ended the sandbox or made it fall silent; None where nothing proves that, as
        when it was killed from outside. To be asked after SandboxDied or SandboxTimeout."""
        return None

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        """Open `count` new sandboxes with this one's files as they are now, removed when the block ends. Its
        processes, sessions and /dev/shm are not copied."""
        raise NotSupported(f"{type(self).__name__} can't be forked; open other sandboxes and upload its files")


@runtime_checkable
class Backend(Protocol):
    """Makes sandboxes. Entering it checks what it is made of and reaps what dead owners left behind;
    leaving it removes everything that it made. A backend subclasses this; all but `image_id` and `prepare` is
    required."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Open a started sandbox, removed when the block ends, however it ends."""
        ...

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Return the name of an image that `open` can use at once: `name` when present or pullable, or
        one built from the Dockerfile in the directory `context` (once per content, shared by
        concurrent callers); without a Dockerfile there, `name` with these files in its working directory.
        Raises ImageMissing with the remedy."""
        ...

    async def image_id(self, name: str) -> str:
        """Return what tells the present image of that name from another that was made under it before; the name itself
        where nothing does. Raises ImageMissing, SandboxError."""
        return name

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        """Take the hint that `count` sandboxes like this will be opened soon. Their image must be there."""
        return
