"""Terminus 2 at a pseudo-terminal in place of tmux, for one task: it runs in the sandbox, on Python 3.12 or later.

python3 terminus_client.py HOME TASK SETTINGS

Harbor's class makes the prompts, reads the replies and compares screens; keys go to a login shell here, and its screen
is drawn by pyte. So the image needs no tmux. SETTINGS is JSON: the arguments of Harbor's class.
"""

import asyncio
import fcntl
import json
import os
import pathlib
import pty
import pwd
import re
import struct
import subprocess
import sys
import termios
import types
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyte

HISTORY = 50_000
"""Lines that are kept above the screen."""
_READ = 4096
_PROMPT_S = 5.0
"""Longest wait for the shell's prompt, which the first screen shows."""
_ARROWS = {"Up": "A", "Down": "B", "Right": "C", "Left": "D"}
_NUMBERS = {"Home": 1, "IC": 2, "Insert": 2, "DC": 3, "Delete": 3, "End": 4, "PageUp": 5, "PgUp": 5, "PPage": 5}
_NUMBERS |= {"PageDown": 6, "PgDn": 6, "NPage": 6, "F5": 15, "F6": 17, "F7": 18, "F8": 19, "F9": 20, "F10": 21}
_NUMBERS |= {"F11": 23, "F12": 24}
_KEYS = {"Enter": "\r", "CR": "\r", "KPEnter": "\r", "Tab": "\t", "Escape": "\x1b", "Space": " ", "BSpace": "\x7f"}
_KEYS |= {"BTab": "\x1b[Z"} | {f"F{number}": f"\x1bO{'PQRS'[number - 1]}" for number in range(1, 5)}
_KEYS |= {name: f"\x1b[{letter}" for name, letter in _ARROWS.items()}
_KEYS |= {name: f"\x1b[{number}~" for name, number in _NUMBERS.items()}
_CONTROL = re.compile(r"(?:C-|\^)([@-_a-z?])")


def typed(keys: str) -> str:
    """Return the characters of keys as tmux's send-keys reads them: the name of a key, or text."""
    if keys in _KEYS:
        return _KEYS[keys]
    if keys.startswith("M-") and ((rest := keys[2:]) in _KEYS or len(rest) == 1):
        return "\x1b" + _KEYS.get(rest, rest)
    control = _CONTROL.fullmatch(keys)
    return chr(ord(control[1].upper()) ^ 0x40) if control else keys


class Screen(pyte.Screen):
    """A screen that keeps the text of the lines that left it at the top."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        self.above: deque[str] = deque(maxlen=HISTORY)
        self._answer = answer
        super().__init__(columns, lines)

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.above.append(self.text(0))
        super().index()

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def text(self, line: int) -> str:
        """Return the characters of a line, without blanks at its end."""
        cells = self.buffer[line]
        return "".join(cells[column].data for column in range(self.columns)).rstrip()


class Stream(pyte.ByteStream):
    """A reader that goes on after a sequence that pyte can't draw: programs print what they like."""

    def _send_to_parser(self, data: str) -> Any:
        try:
            return super()._send_to_parser(data)
        except Exception:  # pyte reads on from a new beginning
            return self._taking_plain_text


class Terminal:
    """A login shell at a pseudo-terminal. It wants a running event loop, which reads and writes for it."""

    def __init__(self, columns: int, lines: int) -> None:
        self._screen = Screen(columns, lines, self.type)
        self._stream = Stream(self._screen)
        self._loop = asyncio.get_running_loop()
        self._unsent = b""
        self.said = asyncio.Event()
        """Set once there is text in the terminal, such as the shell's prompt."""
        self._end, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # What a login gives; the agent's own settings stay with the agent. TERM names the screen that pyte draws.
        self._shell = subprocess.Popen(
            ["bash", "--login"],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "linux", "SHELL": "/bin/bash", "HOME": _home()},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(inside)
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    @property
    def alive(self) -> bool:
        return self._shell.poll() is None

    def close(self) -> None:
        """Hang up."""
        self._hung_up()
        os.close(self._end)
        self._shell.wait()

    def type(self, text: str) -> None:
        """Type characters. They wait here while nothing in the terminal reads them."""
        self._unsent += text.encode(errors="replace")
        self._write()

    def shown(self, *, above: bool) -> str:
        """Return the screen's text, and with it the lines that left it at the top."""
        lines = [self._screen.text(line) for line in range(self._screen.lines)]
        return "\n".join([*self._screen.above, *lines] if above else lines) + "\n"

    def _read(self) -> None:
        try:
            said = os.read(self._end, _READ)
        except BlockingIOError:
            return
        except OSError:  # the last program of the terminal ended
            said = b""
        if not said:
            self._hung_up()
            return
        self._stream.feed(said)
        if not self.said.is_set() and self.shown(above=False).strip():
            self.said.set()

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._end, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""
        if self._unsent:
            self._loop.add_writer(self._end, self._write)
        else:
            self._loop.remove_writer(self._end)

    def _hung_up(self) -> None:
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without a name
        return "/"


async def main(home: str, task: str, settings: str) -> None:
    # Here, so that the terminal can be had without Harbor.
    from harbor.agents.terminus_2 import Terminus2, terminus_2  # noqa: PLC0415

    class Session(terminus_2.TmuxSession):
        """Harbor's session, with a terminal of ours in place of tmux."""

        async def start(self) -> None:
            self._terminal = Terminal(self._pane_width, self._pane_height)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._terminal.said.wait(), _PROMPT_S)

        async def is_session_alive(self) -> bool:
            return self._terminal.alive

        async def send_keys(self, keys: str | list[str], *, min_timeout_sec: float = 0.0, **_: object) -> None:
            for key in [keys] if isinstance(keys, str) else keys:
                self._terminal.type(typed(key))
            await asyncio.sleep(min_timeout_sec)

        async def capture_pane(self, capture_entire: bool = False) -> str:
            return self._terminal.shown(above=capture_entire)

    async def run(command: str, **_: object) -> types.SimpleNamespace:
        """Run a command for Harbor's class: it looks for a folder of skills."""
        piped = asyncio.subprocess.PIPE
        ran = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=piped, stderr=piped)
        out, said = await ran.communicate()
        told = {"stdout": out.decode(errors="replace"), "stderr": said.decode(errors="replace")}
        return types.SimpleNamespace(return_code=ran.returncode, **told)

    terminus_2.TmuxSession = Session
    sandbox = types.SimpleNamespace(exec=run, default_user=None, session_id="")
    agent = Terminus2(pathlib.Path(home), "openai/ours", record_terminal_session=False, **json.loads(settings))
    await agent.setup(sandbox)
    await agent.run(task, sandbox, types.SimpleNamespace())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[-3:]))
