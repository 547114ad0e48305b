"""What the model sees of raw output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stopwatch import Stopwatch

from tools.output import render_terminal, replace_unreadable, truncate


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext ü\n", "plain\ttext ü\n"),
        ("\x1b[1;31mred\x1b[0m \x1b[2K\x1b[?25lx", "red x"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(B\x1b=x", "x"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r30%\ndone", "30%\ndone"),
        ("last\r", "last"),
        ("spin |\b/\b-", "spin -"),
        ("N\bNA\bAME", "NAME"),
        ("a\0\0\0b\ufffd\ufffdc", "a\ufffdb\ufffdc"),
        ("half \x1b[", "half "),
        ("half \x1b", "half \ufffd"),
    ],
)
def test_output_is_shown_as_a_terminal_would_leave_it(raw, shown):
    assert render_terminal(raw) == shown


@given(st.text())
def test_nothing_but_text_and_layout_is_shown(raw):
    for shown in (render_terminal(raw), replace_unreadable(raw)):
        assert shown.encode().decode() == shown
        assert all(character in "\n\t" or character.isprintable() or ord(character) > 0x9F for character in shown)


@given(st.text(max_size=300), st.integers(2, 100))
def test_a_cut_keeps_head_and_tail_and_counts_the_rest(text, limit):
    shown = truncate(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        assert f"\n[... {len(text) - limit:,} characters cut ...]\n" in shown
        assert shown.startswith(text[: limit // 2]) and shown.endswith(text[-(limit // 2) :])


@pytest.mark.parametrize(
    "raw", ["\x1b]" * 300_000, "\x1b[" * 300_000, "\b" * 500_000, "a\r" * 500_000, "\x1bP" * 300_000]
)
def test_hostile_output_takes_no_time(raw):
    watch = Stopwatch()
    render_terminal(raw)
    assert watch.seconds < 3
