"""The host's end of the stream to a container's executor. `executor/main.c` describes the frames."""

from __future__ import annotations

import asyncio
import math
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass

from sandboxes.base import (
    DaemonRestarted,
    Door,
    ExecResult,
    PtySize,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
    Streams,
)
from sandboxes.docker.executor.connection import MAX_FRAME, Call, Connection
from sandboxes.docker.executor.ports import streams_to
from sandboxes.docker.executor.process import DockerProcess
from sandboxes.output import dropped_line
from sandboxes.shielding import finish

_CHUNK = 1 << 18
_ANSWER_S = 30.0
"""How long after a command's own time limit, or after a file request's last byte, an answer may take."""
_TAKE_BACK_S, _SILENT_S = 10.0, 1.0
"""How long a request may take to be taken back, and how long if it has just been silent."""
_SPLIT, _FOLLOW, _INPUT, _TERMINAL = 1, 2, 4, 8
"""How a command runs."""
_MOST_STRINGS = 2**16 - 1
"""Arguments of a command, and its variables: the request counts each in 16 bits."""
_NOBODY = 2**32 - 1
"""An unused request number."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and groups of a command or a file operation."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = (0,)
    home: str = "/root"

    def pack(self) -> bytes:
        groups = self.groups
        return struct.pack(f"<IIH{len(groups)}I", self.uid, self.gid, len(groups), *groups)


class Channel:
    """The executor's requests. doors: servers of connections, by port; `open_door` adds to it."""

    def __init__(self, connection: Connection, doors: dict[int, Door] | None = None) -> None:
        self._connection = connection
        self._doors = {} if doors is None else doors
        self.has_run = False
        """Whether it was sent a command, so something may run inside."""
        self._moving = asyncio.Event()
        """Whether requests are made, not `hold_requests`."""
        self._moving.set()

    async def close(self) -> None:
        await self._connection.close()

    @property
    def alive(self) -> bool:
        return self._connection.alive

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        identity: Identity,
        stdin: bytes,
        timeout: float,
        max_output: int,
        split: bool = False,
    ) -> ExecResult:
        """Run a command. split: stdout and stderr are kept apart. Raises the OSError of a failure to hold its standard
        input."""
        request = _encode_command(argv, cwd, env, identity, timeout, max_output, _SPLIT if split else 0)
        self.has_run, start = True, time.monotonic()
        kind, payload, call = await self._request(stdin, (b"E", request), timeout + _ANSWER_S, most=max_output)
        if kind == b"F":
            _raise_errno(payload, "standard input")
        return _parse_end(payload, call, max_output, start, split=split)

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        identity: Identity,
        timeout: float,
        max_output: int,
        stdin: bool,
        pty: PtySize | None,
        split: bool,
        attribution: AbstractAsyncContextManager[None],
    ) -> DockerProcess:
        """Start a followed command. attribution: around waiting for its end."""
        how = _FOLLOW | _SPLIT * split | _INPUT * stdin | _TERMINAL * (pty is not None)
        request = _check_size(_encode_command(argv, cwd, env, identity, timeout, max_output, how, pty))
        await self._moving.wait()
        self.has_run = True
        process = DockerProcess(
            *(self._connection, attribution), timeout=timeout, stdin=stdin, pty=pty, split=split, max_output=max_output
        )
        await process.begin(request)
        return process

    def connect(self, target: int | str, identity: Identity, timeout: float) -> AbstractAsyncContextManager[Streams]:
        """Connect to a port of the sandbox's loopback, or to a socket's path. Raises OSError, SandboxError."""
        to = struct.pack("<I", target) if isinstance(target, int) else identity.pack() + _encode_path(target)
        return streams_to(self._connection, to, f"{target!r} in the sandbox", timeout)

    async def open_session(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], identity: Identity) -> int:
        """Declare a session; its shell starts with its first command. Returns its number."""
        await self._moving.wait()
        connection = self._connection
        era = await connection.ready()
        call = connection.call()
        connection.forget(call)  # it has no answer
        await connection.send(call.number, b"S", _encode_command(argv, cwd, env, identity, math.inf, 0), era)
        return call.number

    async def run_line(
        self, session: int, text: bytes, *, timeout: float, max_output: int, split: bool = False
    ) -> ExecResult:
        self.has_run, start = True, time.monotonic()
        head = struct.pack(
            "<4I", session, _check_max_output(max_output), _milliseconds(timeout), _SPLIT if split else 0
        )
        _, payload, call = await self._request(b"", (b"L", head + text), timeout + _ANSWER_S, most=max_output)
        return _parse_end(payload, call, max_output, start, split=split)

    async def close_session(self, session: int) -> None:
        era = await self._connection.ready()
        call = self._connection.call(session)
        try:
            await self._connection.send(session, b"K", b"", era)
            await self._connection.answer(call, _ANSWER_S)
        finally:
            self._connection.forget(call)

    async def open_door(self, port: int, door: Door) -> None:
        """Have a door serve connections to a port of the sandbox's loopback. Raises SandboxError if the port is
        taken."""
        self._doors[port] = door
        _, payload, _ = await self._request(b"", (b"P", struct.pack("<I", port)), _ANSWER_S)
        try:
            _raise_errno(payload, f"port {port}")
        except OSError as error:
            raise SandboxError(f"a door can't be opened: {error}") from error

    @contextmanager
    def hold_requests(self) -> Iterator[None]:
        """Let requests during the block wait for its end. One block at a time."""
        self._moving.clear()
        try:
            yield
        finally:
            self._moving.set()

    async def pause_processes(self) -> bool:
        """Stop every process in the sandbox until `resume_processes`. Returns whether they stand; else they go on."""
        try:
            await self._set_paused(True)
        except TimeoutError:
            return False
        return True

    async def resume_processes(self) -> None:
        """End `pause_processes`."""
        await self._set_paused(False)

    async def _set_paused(self, still: bool) -> None:
        _, payload, _ = await self._request(b"", (b"B", bytes([still])), _ANSWER_S, waits=False)
        _raise_errno(payload, "the processes")

    async def kill_everything(self, why: str) -> None:
        """Kill every process in the sandbox; the running commands report why."""
        await self._connection.send(0, b"Q", why.encode() + b"\0", self._connection.era)

    @property
    def busy(self) -> bool:
        return self._connection.busy

    def renew(self, name: str, why: str = "it was reset") -> Channel:
        """Return another on the same stream, for a new life of the sandbox: this one is over, with its sessions and
        doors."""
        connection, self._connection = self._connection, Connection.make_ended(name, why)
        self._doors.clear()
        return Channel(connection, self._doors)

    async def reset(self, *, new_devices: bool) -> None:
        """End every process, command, session and port. new_devices: /dev has been replaced. Raises OSError or
        SandboxError if this is impossible."""
        _, payload, _ = await self._request(b"", (b"N", bytes([new_devices])), _ANSWER_S)
        _raise_errno(payload, "a new beginning")
        # Their messages were of the earlier life.
        self._connection.end_tunnels(SandboxDied("the sandbox was reset"))

    async def renew_lease(self) -> None:
        """Keep the executor from ending at the end of its lease."""
        await self._connection.send(_NOBODY, b"K", b"", self._connection.era)

    async def read(self, path: str, max_bytes: int, identity: Identity) -> bytes:
        """Return a file's content. Raises the OSError of the open or read; ValueError if it is too large."""
        request = identity.pack() + struct.pack("<Q", max_bytes) + _encode_path(path)
        _, payload, call = await self._request(b"", (b"R", request), _ANSWER_S, most=max_bytes)
        if struct.unpack("<I", payload)[0] == _EFBIG:
            raise ValueError(f"{path} holds more than {max_bytes} bytes")
        _raise_errno(payload, path)
        return bytes(call.data)

    async def write(self, path: str, data: bytes, mode: int, identity: Identity) -> None:
        """Write a file. Raises the OSError of creating or writing; then an old one is unchanged."""
        request = identity.pack() + struct.pack("<I", mode) + _encode_path(path)
        _, payload, _ = await self._request(data, (b"C", b""), _ANSWER_S, first=(b"W", request))
        _raise_errno(payload, path)

    async def make_directory(self, path: str, identity: Identity) -> None:
        request = identity.pack() + struct.pack("<I", 0o755) + _encode_path(path)
        _, payload, _ = await self._request(b"", (b"M", request), _ANSWER_S)
        _raise_errno(payload, path)

    async def _request(
        self,
        data: bytes,
        last: tuple[bytes, bytes],
        timeout_s: float,
        first: tuple[bytes, bytes] | None = None,
        most: int = 0,
        *,
        waits: bool = True,
    ) -> tuple[bytes, bytes, Call]:
        """Send `first`, the data and `last`; return the answer's type and payload, and the call with the data before
        it.

        most: bytes of that data. waits: while the processes stand. A cancelled request is taken back in the sandbox
        before the cancellation goes on.
        """
        if waits:
            await self._moving.wait()
        _check_size(last[1])
        connection = self._connection
        era = await connection.ready()
        call = connection.call(most=most)
        try:
            if first is not None:
                await connection.send(call.number, *first, era)
            for start in range(0, len(data), _CHUNK):
                await connection.send(call.number, b"D", data[start : start + _CHUNK], era)
            await connection.send(call.number, *last, era)
            kind, payload = await connection.answer(call, timeout_s)
        except asyncio.CancelledError:
            await finish(self._cancel_request(call, era, _TAKE_BACK_S))
            raise
        except SandboxTimeout:
            await finish(self._cancel_request(call, era, _SILENT_S))
            raise
        finally:
            connection.forget(call)
        return kind, payload, call

    async def _cancel_request(self, call: Call, era: int, patience_s: float) -> None:
        if call.answer.done() and not call.answer.cancelled() and call.answer.exception() is None:
            return  # it was over at the same moment
        call.answer = asyncio.get_running_loop().create_future()
        try:
            await self._connection.send(call.number, b"K", b"", era)
            await self._connection.answer(call, patience_s)
        except (SandboxDied, DaemonRestarted, SandboxTimeout):
            return  # then nothing runs for it any more


_EFBIG = 27
"""Linux's number, whatever this side's system; so are the executor's other numbers."""


def _milliseconds(timeout: float) -> int:
    return min(max(1, math.ceil(timeout * 1000)), 2**32 - 1) if math.isfinite(timeout) else 0


def _encode_command(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    identity: Identity,
    timeout: float,
    max_output: int,
    how: int = 0,
    pty: PtySize | None = None,
) -> bytes:
    strings = [cwd, *argv, *(f"{name}={value}" for name, value in env.items())]
    if any("\0" in text for text in strings):
        raise ValueError("a command, its directory and its environment cannot hold NUL characters")
    if max(len(argv), len(env)) > _MOST_STRINGS:
        raise ValueError(
            f"a command can have {_MOST_STRINGS} arguments and as many variables; give it a longer list as a file"
        )
    groups = identity.groups
    head = struct.pack(
        f"<4I6H{len(groups)}I",
        *(_check_max_output(max_output), _milliseconds(timeout), identity.uid, identity.gid),
        *(len(groups), len(argv), len(env), how, pty.rows if pty else 0, pty.cols if pty else 0, *groups),
    )
    return head + b"".join(text.encode(errors="surrogateescape") + b"\0" for text in strings)


def _check_max_output(size: int) -> int:
    if not 0 <= size < 2**32:
        raise ValueError(f"max_output must be from 0 to {2**32 - 1} bytes, not {size}")
    return size


def _check_size(request: bytes) -> bytes:
    if len(request) > MAX_FRAME:
        raise ValueError(f"the command and its environment hold more than {MAX_FRAME} bytes")
    return request


def _parse_end(payload: bytes, call: Call, max_output: int, start: float, *, split: bool) -> ExecResult:
    exit_code, flags, *dropped = struct.unpack("<IB3Q", payload)
    outputs = [call.data, *(call.apart.get(kind, b"") for kind in ((b"o", b"e") if split else ()))]
    raw, *apart = [_with_note(data, less, max_output) for data, less in zip(outputs, dropped, strict=False)]
    stdout, stderr = apart or (None, None)
    took = time.monotonic() - start
    return ExecResult(exit_code, raw, bool(flags & 1), dropped[0] > 0, took, bool(flags & 2), stdout, stderr)


def _with_note(data: bytes | bytearray, dropped: int, max_output: int) -> bytes:
    """Return output without `dropped` bytes after its first half, with a line there that counts them."""
    head = max_output // 2
    return bytes(data[:head]) + dropped_line(dropped) + bytes(data[head:]) if dropped else bytes(data)


def _encode_path(path: str) -> bytes:
    if "\0" in path:
        raise ValueError("a path cannot hold NUL characters")
    return path.encode(errors="surrogateescape") + b"\0"


def _raise_errno(payload: bytes, path: str) -> None:
    (number,) = struct.unpack("<I", payload)
    if number:
        raise OSError(number, os.strerror(number), path)
