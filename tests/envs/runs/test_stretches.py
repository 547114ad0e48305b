"""Stretches of saved rollouts: every whole line once, from both ends, over all parts."""

import pytest

from envs.runs.stretches import before, behind, end_of, last_line_end, read_line


@pytest.fixture
def known(tmp_path):
    """Two parts of lines of different lengths, the last of which is torn."""
    first = b"".join(b"%d" % n * (n % 7 + 1) + b"\n" for n in range(40))
    second = b"long" * 40 + b"\n" + b"x\n" + b"torn"
    (tmp_path / "a").write_bytes(first)
    (tmp_path / "b").write_bytes(second)
    return [(0, tmp_path / "a"), (len(first), tmp_path / "b")], first + second[:-4]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_backwards_every_whole_line_is_met_once(known, size):
    parts, text = known
    low = high = last_line_end(parts)
    assert high == len(text)
    found = []
    while (stretch := before(parts, low, high, size)) is not None:
        assert stretch.low < low
        found = [*stretch.lines, *found]
        low = stretch.low
    assert b"".join(line for _, line in found) == text
    assert [place for place, _ in found] == [sum(len(line) for _, line in found[:n]) for n in range(len(found))]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_forwards_too_and_a_torn_line_waits_for_its_end(known, size):
    parts, text = known
    high, found = 0, []
    while (stretch := behind(parts, 0, high, size)) is not None:
        found += stretch.lines
        high = stretch.high
    assert b"".join(line for _, line in found) == text
    with parts[1][1].open("ab") as file:
        file.write(b" no more\n")
    assert [line for _, line in behind(parts, 0, high, size).lines] == [b"torn no more\n"]
    assert end_of(parts) == high + len(b"torn no more\n")


def test_a_torn_line_before_another_part_has_no_end_to_wait_for(known):
    parts, _ = known
    with parts[0][1].open("r+b") as file:
        file.truncate(parts[1][0] - 2)  # as a power cut leaves it
    found = behind(parts, 0, parts[1][0] - 7)
    assert (found.lines[0], found.high) == ((parts[1][0], b"long" * 40 + b"\n"), parts[1][0] + 163)


def test_a_part_that_was_moved_away_is_passed_over(known):
    parts, _ = known
    start = parts[1][0]
    assert before(parts[1:], start, start) is None
    assert behind(parts[1:], 0, 0).lines[0][0] == start
    assert read_line(parts[1:], 0) is None
    assert read_line(parts, 0) == b"0\n"
    assert read_line(parts, start) == b"long" * 40 + b"\n"
