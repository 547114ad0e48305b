"""A bar in a terminal, lines elsewhere, and an estimate in both."""

import io
import logging
import re
import sys
import threading

from rich.console import Console

from envs.records.progress import Bar, duration, remaining_s


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def console(terminal=False):
    return Console(file=io.StringIO(), width=100, force_terminal=terminal)


def text_of(console):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_the_estimate_goes_by_what_was_made_since_the_start():
    clock = Clock()
    bar = Bar("checking", 10, console=console(), clock=clock)
    bar.update(4)  # of an earlier start
    clock.now += 60
    bar.update(6, "task [x]: ok")
    assert bar.line() == "checking: 6 of 10, 1:00, about 2:00 left; task [x]: ok"
    bar.update(10)
    assert bar.line() == "checking: 10 of 10, 1:00; task [x]: ok"


def test_without_a_total_nothing_is_estimated():
    bar = Bar("groups", console=console(), clock=Clock())
    bar.advance("a")
    assert bar.line() == "groups: 1, 0:00; a"
    assert remaining_s(0, 0, 10, 60.0) is None
    assert remaining_s(5, 5, 10, 60.0) == 60.0


def test_without_a_terminal_a_line_comes_now_and_then_also_while_nothing_is_done():
    shown = console()
    printed = threading.Event()
    shown.file.write = lambda text, write=shown.file.write: (printed.set(), write(text))[1]
    with Bar("building", 3, console=shown, interval_s=0.01) as bar:
        assert printed.wait(120)
        bar.advance("one")
    assert text_of(shown).splitlines()[0].startswith("building: 0 of 3")
    assert text_of(shown).splitlines()[-1].startswith("building: 1 of 3")


def test_what_never_began_says_nothing():
    shown = console()
    with Bar("building", 3, console=shown):
        pass
    assert text_of(shown) == ""


def test_a_terminal_has_a_bar_and_takes_no_markup():
    shown = console(terminal=True)
    with Bar("checking", 2, console=shown) as bar:
        bar.advance("[red]odd[/red]")
        bar.advance("[/]")
    text = text_of(shown)
    assert "2 of 2" in text
    assert "[/]" in text
    assert "━" in text


def test_log_records_stand_above_the_bar(monkeypatch):
    shown, logger = console(terminal=True), logging.getLogger("atropos.progress")
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        with Bar("steps", 2, console=shown):
            logger.warning("something [odd]")
        assert "something [odd]\n" in text_of(shown)
        logger.warning("after")
    finally:
        logging.getLogger().removeHandler(handler)
    assert "after" not in text_of(shown)


def test_times_are_read_as_clocks():
    assert [duration(s) for s in (None, 7, 187, 3723)] == ["0:00", "0:07", "3:07", "1:02:03"]
