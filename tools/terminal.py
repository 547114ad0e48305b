"""A terminal: one shell of the sandbox. Its state lasts from one command to the next."""

from __future__ import annotations

import asyncio
import re
import secrets

from pydantic import PositiveInt

from sandboxes.base import ExecResult, Sandbox, SandboxError, Session
from tools.base import ToolError, ToolResult
from tools.output import render_terminal, truncate

_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",
}
"""With these variables, programs wait for no key, draw for no screen and ask for no password."""

_MAX_COMMAND = 120_000
"""Bytes of a command. A longer one holds a file's content; another tool writes files."""

_MAX_OUTPUT = 1_000_000
"""Bytes fetched from the sandbox and kept in the file of a long output."""

_CHANGES_STATE = re.compile(r"\b(cd|pushd|popd|export|declare|unset|umask|alias|source|eval)\b|\w=|\(\)")
"""Matches a command that may have lost a change if it has ended its shell. The model then gets a notice. A plain
`exit 3` shows by its exit code alone."""

_AS_BEFORE = "the working directory and variables are as before"


class Terminal:
    """Runs shell commands in a session of the sandbox: bash if the image has it, else sh.

    All of the shell's state lasts from one command to the next: the working directory, the umask, variables (exported
    or not), functions, aliases, background jobs. Without any state every call would have to repeat `cd ... &&`: this
    costs tokens and is one more thing to forget. Settings that would end or flood the terminal last for one command:
    `set -e`, `-u`, `-v`, `-x` and a trap on EXIT. Such a trap runs at the end of its own command.

    If a command ends the shell (`exit`, `exec`, `set -e`, a signal, the memory killer) or times out, only its own
    changes are lost: the next one finds the state as it was before, and the model gets a notice. Only bash can hand its
    functions and aliases on to the shell that takes its place.

    The command stands in a file, not among the arguments of a process, so `pkill -f server.py` does not find and
    kill its own shell. A background job runs on, but its output to the terminal between two commands is lost,
    unless it was redirected to a file.
    """

    def __init__(self, sandbox: Sandbox, *, output_chars: PositiveInt = 8_000, timeout: PositiveInt = 600) -> None:
        """Make a terminal; its shell starts with the first command.

        output_chars: characters of a command's output shown to the model.
        timeout: the longest allowed one, in seconds."""
        self._sandbox = sandbox
        self._output_chars = output_chars
        self._longest = timeout
        self._opening = asyncio.Lock()
        self._session: Session | None = None
        self._directory: str | None = None
        self._calls = 0

    async def terminal(self, command: str, timeout: int = 60) -> ToolResult:
        """Run a shell command. The working directory and exported variables last.

        Args:
            command: one or more lines of shell.
            timeout: seconds until it is killed.
        """
        if not 1 <= timeout <= self._longest:
            raise ToolError(f"timeout must be from 1 to {self._longest} seconds, not {timeout}")
        if "\0" in command:
            raise ToolError("a command cannot contain null characters")
        if len(command.encode()) > _MAX_COMMAND:
            raise ToolError(f"a command can have {_MAX_COMMAND:,} bytes; put long texts into a file first")
        async with self._opening:
            if self._session is None:
                self._session = await self._sandbox.session(env=_ENV)
        self._calls += 1
        result = await self._session.run(command, timeout=timeout, max_output=_MAX_OUTPUT)
        metadata = {"exit_code": result.exit_code, "timed_out": result.timed_out, "duration_s": result.duration_s}
        return ToolResult(await self._format_output(command, result, timeout), metadata=metadata)

    async def _format_output(self, command: str, result: ExecResult, timeout: int) -> str:
        """Return the output as the model sees it. A cut output is kept in a file in the sandbox."""
        text, note = render_terminal(result.output).rstrip("\n"), ""
        if len(text) > self._output_chars:
            note = await self._save_output(result, self._calls)
        parts = [truncate(text, self._output_chars, note)] if text.strip() else []
        if result.timed_out:
            parts.append(f"[timed out after {timeout} s and was killed; {_AS_BEFORE}]")
        elif result.shell_ended and _CHANGES_STATE.search(command):
            parts.append(f"[exit code {result.exit_code}; the shell has ended: {_AS_BEFORE}]")
        elif result.exit_code:
            parts.append(f"[exit code {result.exit_code}]")
        return "\n".join(parts) or "(no output)"

    async def _save_output(self, result: ExecResult, number: int) -> str:
        """Write an output too long to be shown into a file, and return the file's place, in words for the model."""
        if self._directory is None:
            found = await self._sandbox.exec(["/bin/sh", "-c", "echo ${TMPDIR:-/tmp}"])
            if not found.ok:  # no process can be started, say
                return f"; they could not be kept: {found.output.strip()}"
            self._directory = f"{found.output.strip()}/.terminal-{secrets.token_hex(4)}"
        path = f"{self._directory}/output-{number}.txt"
        kept = f"the first and last {_MAX_OUTPUT // 2:,} bytes" if result.truncated else "full output"
        try:
            await self._sandbox.write_file(path, result.raw)
        except OSError as error:  # A full disk, or the command has put something in the way.
            if isinstance(error, SandboxError):
                raise
            return f"; they could not be kept: {error.strerror or error}"
        return f"; {kept}: {path}"
