"""A shell of this machine with a life across commands; in a container `executor/session.c` keeps one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandboxes.base import ExecResult, SandboxDied, Session
from sandboxes.local.pump import Pump
from sandboxes.local.spawn import spawn
from sandboxes.local.sweep import ProcessTimestamp, kill_marked
from sandboxes.output import CollectedOutput
from sandboxes.shell import LOOP, LOOP_VARIABLE, session_argv
from sandboxes.shielding import finish, on_failure

_SAVING_S = 1.0


@dataclass(slots=True)
class _Shell:
    process: asyncio.subprocess.Process
    control: int
    report: asyncio.StreamReader
    transport: asyncio.ReadTransport
    pumps: list[Pump]

    def take(self, output: CollectedOutput | None) -> None:
        """Give the shell's output to a command from now on, or to nobody; what lies in the pipes is still the last
        one's."""
        for stream, pump in enumerate(self.pumps):
            pump.read_available()
            pump.take = None if output is None else partial(output.add, stream=stream)

    def wait_saved(self) -> None:
        """Wait while it is busy with the state after the last command."""
        patience = time.monotonic() + _SAVING_S
        while any(fcntl.ioctl(self.control, termios.FIONREAD, bytes(4))) and time.monotonic() < patience:
            time.sleep(0.001)

    def close(self) -> None:
        os.close(self.control)
        self.transport.close()


class LocalSession(Session):
    """A session of a local sandbox, made by `LocalSandbox.session`.

    directory: a private one; marker: "NAME=value", in the environment of all the session's processes.
    """

    def __init__(self, directory: Path, cwd: Path, env: Mapping[str, str], marker: str) -> None:
        name, _, value = marker.partition("=")
        self._directory = directory
        self._cwd = cwd
        self._env = dict(env) | {LOOP_VARIABLE: LOOP, name: value}
        self._marker = marker
        self._turn = asyncio.Lock()
        self._shell: _Shell | None = None
        self._saved: int | None = None
        self._pumps: list[Pump] = []
        self._closed = False

    async def run(
        self, command: str, *, timeout: float = 60.0, max_output: int = 1_000_000, split: bool = False
    ) -> ExecResult:
        if "\0" in command:
            raise ValueError("a command cannot hold NUL characters")
        output, errors = CollectedOutput(max_output, split=split), 6 if split else 1
        async with self._turn:
            if self._closed:
                raise SandboxDied("the session was closed")
            start = time.monotonic()
            shell = await self._ready_shell(output, errors)
            moment = ProcessTimestamp.now(shell.process.pid)
            timed_out = False
            try:
                code = await asyncio.wait_for(self._run(shell, command, errors), timeout)
            except (TimeoutError, BlockingIOError, asyncio.CancelledError) as error:
                await finish(self._kill(shell, moment))
                if isinstance(error, asyncio.CancelledError):
                    raise
                timed_out = isinstance(error, TimeoutError)
                code = 124 if timed_out else 137  # something has filled the pipe to the shell
            finally:
                shell.take(None)
        if self._closed:
            raise SandboxDied("the sandbox was stopped")
        raw, truncated, stdout, stderr = output.result()
        took, ended = time.monotonic() - start, self._shell is None
        return ExecResult(code, raw, timed_out, truncated, took, ended, raw_stdout=stdout, raw_stderr=stderr)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(kill_marked, self._marker)
        for pump in self._pumps:
            pump.close()
        shell, self._shell = self._shell, None
        if shell is not None:
            _kill_shell(shell)
            await shell.process.wait()
            shell.close()

    async def _run(self, shell: _Shell, command: str, errors: int) -> int:
        slot = 1 if self._saved == 0 else 0
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "text").write_bytes(command.encode(errors="surrogateescape"))
        nonce = secrets.token_hex(8)
        os.write(shell.control, f"{slot} {nonce} {errors}\n".encode())
        while ended := await shell.report.readline():
            if ended.startswith(f"ended {nonce} ".encode()):  # reports on another command mean nothing
                self._saved = slot
                return int(ended.split()[2])
        code = await shell.process.wait()  # the command has ended or replaced the shell
        self._forget(shell)
        return 128 - code if code < 0 else code

    async def _kill(self, shell: _Shell, moment: ProcessTimestamp) -> None:
        await asyncio.to_thread(shell.wait_saved)
        await asyncio.to_thread(kill_marked, self._marker, since=moment)
        _kill_shell(shell)
        await shell.process.wait()
        self._forget(shell)

    def _forget(self, shell: _Shell) -> None:
        if self._shell is shell:
            shell.close()
            self._shell = None

    async def _ready_shell(self, output: CollectedOutput, errors: int) -> _Shell:
        """Return a shell in wait for a command, with output to `output`. A new shell's messages at its start, as
        of a missing directory, belong to the command; background output since the last command does not."""
        if self._shell is not None and self._shell.process.returncode is not None:
            self._forget(self._shell)  # something killed it between two commands
        shell = self._shell or await self._start()
        shell.take(output)
        if self._shell is None:
            self._shell, saved = shell, "" if self._saved is None else self._saved
            os.write(shell.control, f"-{saved} - {errors}\n".encode())
        return shell

    async def _start(self) -> _Shell:
        self._directory.mkdir(parents=True, exist_ok=True)
        control, report = self._directory / "control", self._directory / "report"
        for pipe in (control, report):
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe, 0o600)
        writes = os.open(control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        reads = os.open(report, os.O_RDONLY | os.O_NONBLOCK)
        pipes = [os.pipe() for _ in range(2)]
        pumps = [Pump(output) for output, _ in pipes]
        self._pumps += pumps
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reads, "rb")
        )
        redirect = 'd=$1; shift; exec "$@" 3<"$d/control" 4>"$d/report"'
        argv = session_argv(str(self._cwd), str(self._directory))
        try:
            with on_failure(lambda _: transport.close()), on_failure(lambda _: os.close(writes)):
                process = await spawn(
                    *("/bin/sh", "-c", redirect, "sh", str(self._directory), *argv),
                    env=self._env,
                    cwd="/",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=pipes[0][1],
                    stderr=pipes[1][1],
                )
        finally:
            for _, out in pipes:
                os.close(out)
        return _Shell(process, writes, reader, transport, pumps)


def _kill_shell(shell: _Shell) -> None:
    """Kill the process of a shell, which a program without the marker may have replaced."""
    with suppress(ProcessLookupError):
        shell.process.kill()
