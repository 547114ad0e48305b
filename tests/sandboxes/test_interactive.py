"""A shell in a sandbox, on a terminal and on pipes."""

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import termios
from contextlib import ExitStack

import pytest

from sandboxes.base import SandboxDied, SandboxSpec
from sandboxes.interactive import _write, run_shell
from sandboxes.local import LocalBackend

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def box():
    async with LocalBackend() as backend, backend.open(SandboxSpec("")) as sandbox:
        yield sandbox


@pytest.fixture
def closing():
    """Closes descriptors at the end, but for those that a test has closed."""
    with ExitStack() as stack:
        yield lambda fd: stack.enter_context(os.fdopen(fd, "rb", buffering=0))


@pytest.fixture
def pipes(closing):
    """Pipes for stdin, stdout and stderr: their reading ends, then their writing ones."""
    made = [[closing(end) for end in os.pipe()] for _ in range(3)]
    return tuple(zip(*made, strict=True))


@pytest.fixture
def terminal(closing):
    """A terminal of 30 rows and 100 columns: the user's end and the program's."""
    user, program = map(closing, pty.openpty())
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    return user, program


class Screen:
    """A shell on a terminal, and the user in front of it."""

    def __init__(self, box, terminal):
        self.user, self.program = (end.fileno() for end in terminal)
        self.seen, self.before = b"", self.mode
        self.running = asyncio.create_task(run_shell(box, self.program, self.program))

    @property
    def mode(self):
        return termios.tcgetattr(self.program)

    def type(self, text):
        os.write(self.user, text)

    async def shows(self, text):
        """Wait until the terminal has shown a text after the last one."""
        while text not in self.seen:
            assert await asyncio.to_thread(select.select, [self.user], [], [], 30) != ([], [], []), self.seen
            self.seen += os.read(self.user, 65536)
        self.seen = self.seen.partition(text)[2]


@pytest.fixture
async def screen(box, terminal):
    shown = Screen(box, terminal)
    yield shown
    shown.running.cancel()
    await asyncio.wait({shown.running})


def on_pipes(box, pipes, given=None):
    """Run a shell on pipes, or on a file for stdin."""
    reading, writing = pipes
    return run_shell(box, (given or reading[0]).fileno(), writing[1].fileno(), writing[2].fileno())


async def run_script(box, pipes, script):
    """Run a script that comes from a pipe."""
    typing = pipes[1][0]
    os.write(typing.fileno(), script)
    typing.close()
    return await on_pipes(box, pipes)


async def test_without_a_terminal_it_reads_a_script_and_keeps_the_streams_apart(box, pipes):
    assert await run_script(box, pipes, b"echo out; echo err >&2; exit 7\n") == 7
    assert [os.read(end.fileno(), 99) for end in pipes[0][1:]] == [b"out\n", b"err\n"]


async def test_an_end_at_once_and_a_file_are_scripts_too(box, pipes, tmp_path):
    assert await run_script(box, pipes, b"") == 0
    (tmp_path / "script").write_text("exit 3")
    with (tmp_path / "script").open() as script:
        assert await on_pipes(box, pipes, script) == 3


async def test_output_comes_while_the_shell_waits_for_input(box, pipes):
    running = asyncio.create_task(on_pipes(box, pipes))
    typing, out = pipes[1][0].fileno(), pipes[0][1].fileno()
    for line in (b"one\n", b"two\n"):
        os.write(typing, b"echo " + line)
        assert await asyncio.to_thread(os.read, out, 99) == line
    os.write(typing, b"exit 4\n")
    assert await running == 4


async def test_much_output_comes_whole(box, pipes):
    running = asyncio.create_task(run_script(box, pipes, b"head -c 3000000 /dev/zero\n"))
    size = 0
    while size < 3_000_000:
        size += len(await asyncio.to_thread(os.read, pipes[0][1].fileno(), 1 << 20))
    assert (await running, size) == (0, 3_000_000)


async def test_a_reader_that_goes_away_ends_it(box, pipes):
    pipes[0][1].close()
    with pytest.raises(BrokenPipeError):
        await run_script(box, pipes, b"yes\n")


async def test_a_terminal_is_raw_follows_its_size_and_is_restored(screen):
    screen.type(b"stty size; [ -t 0 ] && [ -t 2 ] && echo ter''minal\r")
    await screen.shows(b"30 100")
    await screen.shows(b"terminal")
    assert not screen.mode[3] & (termios.ECHO | termios.ISIG | termios.ICANON)
    fcntl.ioctl(screen.program, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.kill(os.getpid(), signal.SIGWINCH)
    await asyncio.sleep(0.1)
    screen.type(b"stty size; printf '\\033[31m\\007'\r")
    await screen.shows(b"40 120")
    await screen.shows(b"\x1b[31m\x07")
    screen.type(b"exit 5\r")
    assert await screen.running == 5
    assert screen.mode == screen.before
    assert signal.getsignal(signal.SIGWINCH) == signal.SIG_DFL


async def test_ctrl_c_ends_the_program_inside_and_not_the_shell(screen):
    screen.type(b"sh -c 'echo be\"\"gun; exec sleep 1000'\r")
    await screen.shows(b"begun")
    screen.type(b"\x03")
    screen.type(b"echo sta''tus $?; exit 6\r")
    await screen.shows(b"status 130")
    assert await screen.running == 6


@pytest.mark.parametrize("program", [b"sleep 1000", b"exec yes"])
async def test_a_cancelled_shell_gives_the_terminal_back_whether_or_not_it_is_read(screen, program):
    screen.type(b"echo be''gun; " + program + b"\r")
    await screen.shows(b"begun")
    await asyncio.sleep(0.2)
    screen.running.cancel()
    await asyncio.wait({screen.running})
    assert screen.mode == screen.before


async def test_a_terminal_that_is_gone_takes_its_shell_along(screen, terminal):
    screen.type(b"echo be''gun; sleep 1000\r")
    await screen.shows(b"begun")
    terminal[0].close()
    assert await screen.running == 137


async def test_what_is_written_to_a_terminal_that_is_gone_is_lost():
    ours, theirs = os.openpty()
    os.close(ours)
    _write(theirs, b"too late")
    os.close(theirs)


async def test_a_sandbox_that_dies_gives_the_terminal_back_and_says_so(screen, box):
    screen.type(b"echo be''gun; sleep 1000\r")
    await screen.shows(b"begun")
    await box.stop()
    with pytest.raises(SandboxDied):
        await screen.running
    assert screen.mode == screen.before
