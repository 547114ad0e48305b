"""The live table and its plain lines."""

from __future__ import annotations

import io
import re

from rich.console import Console
from samples import rollout

from envs.lab.consumer import Statistics
from envs.lab.dashboard import Dashboard, Preparation, Progress, Steps
from envs.records.metrics import Metrics


def progress() -> Progress:
    metrics = Metrics(started=100.0)
    for number in range(4):
        metrics.count_rollout(rollout(f"r-{number}", reward=float(number % 2)))
    metrics.count_group(signal=True)
    metrics.count_failure("sandbox [died]")
    metrics.updated = 110.0
    statistics = Statistics(batches=1, groups=1, rows=4, good_rows=4, state="pulling batches")
    return Progress.of(metrics, statistics, elapsed_s=75.0, target=8)


def text_of(file: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())


def test_progress_holds_what_environment_and_consumer_say() -> None:
    shown = progress()
    assert (shown.groups_made, shown.groups_pulled, shown.rows, shown.solved) == (1, 1, 4, 2)
    assert (shown.reward_mean, shown.signal_share, shown.turns) == (0.5, 1.0, 2.0)
    assert shown.tokens_per_s == 4 * rollout().result.sampled_tokens / 10
    assert (shown.engine_s, shown.tool_s) == ((0.25, 0.5), (0.0625, 0.0625))
    assert shown.state == "pulling batches"


def test_the_table_shows_everything_in_80_columns_and_takes_no_markup_from_outside() -> None:
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True).print(progress().render("run [x]"))
    text = text_of(file)
    for part in (
        "run [x]",
        "1 of 8",
        "mean reward",
        "0.500",
        "100%",
        "250 ms / 500 ms",
        "62 ms / 62 ms",
        "answered 4",
        "sandbox [died] 1",
        "pulling batches",
        "1:15",
    ):
        assert part in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) == 80


def test_a_run_of_which_nothing_is_known_can_be_shown() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(Progress.of(None, None, elapsed_s=0.0).render("a run"))
    assert "not connected" in file.getvalue()
    assert "reward –" in Progress.of(None, None, elapsed_s=0.0).line()


def test_without_a_terminal_a_line_comes_every_fifteen_seconds_and_at_the_end() -> None:
    now = 0.0
    file = io.StringIO()
    with Dashboard(Console(file=file, width=40), clock=lambda: now) as dashboard:
        for second in range(25):
            now = float(second)
            dashboard.update(Progress(elapsed_s=now))
    lines = file.getvalue().splitlines()
    assert [text.split(" | ")[0] for text in lines] == ["0:00", "0:15", "0:24"]


def test_the_last_line_is_not_said_twice() -> None:
    file = io.StringIO()
    with Dashboard(Console(file=file)) as dashboard:
        dashboard.update(Progress())
    assert len(file.getvalue().splitlines()) == 1


def test_in_a_terminal_the_table_stays_when_the_run_ends() -> None:
    file = io.StringIO()
    with Dashboard(Console(file=file, width=80, force_terminal=True), title="demo") as dashboard:
        dashboard.update(Progress(state="first"))
        dashboard.update(progress())
    assert text_of(file).rindex("pulling batches") > text_of(file).rindex("first")


def test_the_last_state_can_be_kept_as_a_picture(tmp_path) -> None:
    with Dashboard(Console(file=io.StringIO()), title="a run") as dashboard:
        dashboard.update(progress())
        dashboard.save_svg(tmp_path / "run.svg")
    picture = (tmp_path / "run.svg").read_text()
    assert picture.startswith("<svg") and "solved" in picture


def test_steps_are_shown_one_by_one_or_as_a_table() -> None:
    lines = [{"step": number, "reward": number / 4, "seconds": {"wait": 2.0}} for number in range(1, 21)]
    plain, live = io.StringIO(), io.StringIO()
    consoles = Console(file=plain, width=40), Console(file=live, width=120, force_terminal=True)
    for console in consoles:
        with Dashboard(console, title="learn", interval_s=0.0) as dashboard:
            for number in range(1, 21):
                dashboard.update(Steps(lines[:number]))
    assert [text.split("  ")[:2] for text in plain.getvalue().splitlines()] == [
        [f"step {number}", f"reward {number / 4:.3f}"] for number in range(1, 21)
    ]
    last = text_of(live).rpartition("learn")[2]
    assert "5.000" in last and "1.500" in last and "1.250" not in last, "the last 15 steps"


def test_what_is_made_ready_side_by_side_is_named_with_how_far_it_is() -> None:
    shown = Preparation(75.0, {"warm start": "8 of [80] transcripts", "trainer API": "ready"})
    assert shown.line() == "1:15 | warm start: 8 of [80] transcripts | trainer API: ready"
    file = io.StringIO()
    Console(file=file, width=80).print(shown.render("a run"))
    assert "8 of [80] transcripts" in file.getvalue() and "1:15" in file.getvalue()


def test_what_is_left_is_estimated() -> None:
    assert "1:15, about 8:45 left" in progress().line()
    lines = [{"step": step, "seconds": {"wait": 20.0, "train": 10.0}} for step in (3, 4)]
    assert Steps(lines, 10).line().endswith("about 3:00 left")
    assert "left" not in Steps(lines, 4).line()
