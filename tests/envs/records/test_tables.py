"""What commands print: tables that are whole in any width."""

import io

import pytest
from rich.console import Console

from envs.records.tables import Sheet, make_console

LONG = "tests/test_money.py::test_a_bill_is_split_among_those_who_came[three-people-and-a-dog]"


def printed(sheet: Sheet, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, soft_wrap=True)
    console.print(sheet)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def filled(*rows: tuple[str, ...]) -> Sheet:
    sheet = Sheet("task", "tests", "seconds", right=["seconds"])
    for row in rows:
        sheet.add(*row)
    return sheet


def test_a_row_is_a_line_if_there_is_room() -> None:
    assert printed(filled(("bill", LONG, "3.1")), 120) == [
        "task  tests" + " " * (len(LONG) - 3) + "seconds",
        f"bill  {LONG}      3.1",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(width: int) -> None:
    rows = [("bill", LONG, "3.1"), ("ledger", "two [bold]words[/]", "12.0")]
    lines = printed(filled(*rows), width)
    assert max(map(len, lines)) <= width
    for head in ("task", "tests", "seconds") if width < 120 else ():
        lines = [line.removeprefix(head) for line in lines]
    together = "".join("".join(lines).replace("↩", "").split())
    assert [cell for row in rows for cell in row if "".join(cell.split()) not in together] == []


def test_prose_is_wrapped_between_words_before_rows_leave_their_lines() -> None:
    lines = printed(filled(("bill", "the first one and the second one", "3.1")), 30)
    assert lines[0].startswith("task  tests") and lines[0].endswith("seconds")
    assert [line[6:21].strip() for line in lines[1:]] == ["the first one", "and the second", "one"]


def test_rows_without_room_stand_side_by_side_with_their_headings() -> None:
    sheet = Sheet("task", "outcome", "seconds-of-the-check", "megabytes-of-its-image")
    for number in range(3):
        sheet.add(f"long-name-of-task-{number}", "passed", f"{number}.5", "120")
    gap = " " * 15
    assert printed(sheet, 66) == [
        "task                    long-name-of-task-0  long-name-of-task-1",
        f"outcome                 passed{gap}passed",
        f"seconds-of-the-check    0.5   {gap}1.5",
        f"megabytes-of-its-image  120   {gap}120",
        "",
        "task                    long-name-of-task-2",
        "outcome                 passed",
        "seconds-of-the-check    2.5",
        "megabytes-of-its-image  120",
    ]


def test_a_word_that_is_longer_than_a_line_is_folded_with_a_mark() -> None:
    lines = printed(filled(("bill", LONG, "")), 40)
    assert [line for line in lines if line.endswith("↩")] == lines[1:-1]
    assert "".join(line[9:].rstrip("↩") for line in lines[1:]) == LONG
    assert not any("seconds" in line for line in lines), "an empty cell has no line"


def test_cells_cannot_steer_the_terminal() -> None:
    lines = printed(filled(("\x1b[31mbill\x1b[0m", "a\tb\r\nc\x1b]0;title\x07", "3.1")), 80)
    assert lines[1:] == ["bill  a       b      3.1", "      c]0;title"]


def test_totals_are_the_last_row_and_the_caption_stands_below() -> None:
    sheet = Sheet("task", "solved", title="pass@1", caption="of two tasks")
    sheet.add("bill", "1/2")
    sheet.totals = ("mean", "1/2")
    assert printed(sheet, 80) == ["pass@1", "task  solved", "bill  1/2", "mean  1/2", "of two tasks"]


def test_a_sheet_without_rows_has_its_headings() -> None:
    assert printed(filled(), 80) == ["task  tests  seconds"]


def test_a_path_in_a_line_is_printed_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console = make_console()
    console.print(f"results: {LONG}", markup=False)
    assert console.width == 30
    assert capsys.readouterr().out == f"results: {LONG}\n"


def test_the_width_is_80_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", io.StringIO())
    assert make_console().width == 80
