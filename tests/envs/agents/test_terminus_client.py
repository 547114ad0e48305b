"""Terminus' terminal, with a real shell at it."""

import pytest
from waiting import until

from envs.agents.terminus_client import HISTORY, Screen, Terminal, typed


@pytest.fixture
async def terminal():
    made = Terminal(80, 10)
    yield made
    made.close()


async def seen(terminal: Terminal, text: str, *, above: bool = False) -> str:
    """Return what the terminal shows, once a text is in it."""
    await until(lambda: text in terminal.shown(above=above))
    return terminal.shown(above=above)


async def test_a_shell_keeps_its_state_and_its_screen_has_the_output(terminal):
    await terminal.said.wait()
    assert terminal.shown(above=False).strip(), "its prompt"
    terminal.type(typed("cd /usr; n=41\n"))
    terminal.type(typed('echo "$PWD $((n + 1)) $TERM $(stty size)"\n'))
    shown = await seen(terminal, "/usr 42 linux 10 80")
    assert shown.count("\n") == 10, "one line for each of the screen's"


async def test_lines_that_left_the_screen_are_kept_and_no_more_than_so_many(terminal):
    terminal.type("seq 100; echo e''nd\n")
    shown = await seen(terminal, "end", above=True)
    lines = shown.splitlines()
    assert lines[lines.index("1") :][:100] == [str(number) for number in range(1, 101)]
    assert "\n50\n" not in terminal.shown(above=False)
    screen = Screen(80, 2, print)
    for _ in range(HISTORY + 5):
        screen.index()
    assert len(screen.above) == HISTORY


async def test_a_program_is_interrupted_and_a_shell_that_ended_is_not_alive(terminal):
    terminal.type("python3 -c 'import time; print(6 * 7, flush=True); time.sleep(100)'\n")
    await seen(terminal, "42\n")
    terminal.type(typed("C-c"))
    await seen(terminal, "KeyboardInterrupt")
    terminal.type("echo a''fter\n")
    await seen(terminal, "after\n")
    assert terminal.alive
    terminal.type("exit\n")
    await until(lambda: not terminal.alive)
    terminal.type("echo nobody reads this\n")


async def test_a_long_text_is_typed_whole_while_its_reader_is_slow(terminal):
    slow = "import sys, time; print(6 * 7, flush=True); time.sleep(1); print(len(sys.stdin.read()))"
    terminal.type(f"stty -echo; python3 -c '{slow}'\n")
    await seen(terminal, "42\n")
    terminal.type("\ud800" + "x" * 78 + "\n" + ("y" * 79 + "\n") * 2000 + "\x04")
    await seen(terminal, str(80 * 2001))


async def test_a_flood_holds_nobody_up(terminal):
    terminal.type("yes\n")
    await seen(terminal, "y\ny\n")
    terminal.type("\x03")
    terminal.type("echo qui''et\n")
    await seen(terminal, "quiet")


@pytest.mark.parametrize(
    "sequence",
    [
        r"\033[?1;2m",
        r"\033[>4;2m",
        r"\033[99999999999999999999L",
        r"\033]0;t\007",
        r"\033[;;;;H",
        r"\377\376",
        r"\033P1$r",
    ],
)
async def test_what_cannot_be_drawn_ends_nothing(terminal, sequence):
    terminal.type(f"clear; printf '{sequence}'; printf '\\033\\\\'; echo o''ver\n")
    await seen(terminal, "over")


async def test_a_program_that_asks_for_the_cursor_is_answered(terminal):
    terminal.type("clear; printf '\\033[6n'; IFS= read -rs -d R at; echo go''t ${at#*[}\n")
    await seen(terminal, "got 1;1\n")


@pytest.mark.parametrize(
    ("keys", "characters"),
    [
        ("ls\n", "ls\n"),
        ("Enter", "\r"),
        ("C-c", "\x03"),
        ("^D", "\x04"),
        ("C-[", "\x1b"),
        ("C-?", "\x7f"),
        ("M-x", "\x1bx"),
        ("M-Left", "\x1b\x1b[D"),
        ("Up", "\x1b[A"),
        ("F1", "\x1bOP"),
        ("F12", "\x1b[24~"),
        ("M-", "M-"),
        ("M-ore", "M-ore"),
        ("C-cat", "C-cat"),
        ("", ""),
    ],
)
def test_keys_are_read_as_tmux_reads_them(keys, characters):
    assert typed(keys) == characters
