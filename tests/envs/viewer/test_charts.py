"""Charts: their points are the sums of the index, the metrics and the timeline."""

import contextlib

import pytest
from shown_runs import indexed

from envs.records.metrics import Metrics
from envs.viewer.charts import POINTS, Chart, changes, pool_charts, step_charts, step_sums, time_charts


def test_points_are_means_over_the_rollouts_of_a_step(run_dir):
    with indexed(run_dir).reading() as db:
        sums = step_sums(db, evaluating=False)
    charts = {chart.title: chart for chart in step_charts(sums, None, [{"step": 1, "entropy": 0.5, "lag": None}])}
    assert charts["Reward"].x == [0, 1, 2, 3]
    assert charts["Reward"].values["reward"] == [0.5, 0.0, 0.75, 0.25]
    assert charts["Signs of cheating"].values["rollouts"] == [0.0, 0.25, 0.0, 0.0]
    assert charts["Staleness"].values["steps behind"] == [None] * 4, "the server did not tell"
    assert charts["The trainer's entropy"].values == {"entropy": [0.5]}
    assert "The trainer's lag" not in charts


def test_groups_are_counted_by_whether_their_rewards_differ(run_dir):
    with indexed(run_dir).reading() as db:
        rewards = db.execute("SELECT grp, min(reward), max(reward) FROM rollouts WHERE NOT evaluating GROUP BY grp")
        expected = [(least, most) for grp, least, most in rewards if grp is not None]
        (chart,) = pool_charts(db)
    assert sum(chart.values["rewards differ"]) == sum(least < most for least, most in expected) > 0
    assert sum(chart.values["all 0"]) == sum(most <= 0 for _, most in expected) > 0
    assert len(chart.x) == len(chart.values["all alike, above 0"]) == 4


def test_failures_are_those_of_the_metrics():
    metrics = Metrics()
    for step, kind in ((3, "engine"), (3, "engine"), (5, "sandbox")):
        metrics.count_failure(kind, step=step)
    sums = [dict.fromkeys(("rollouts", "sampled", "dated"), 1) | dict.fromkeys(SUMS, 0)]
    (chart,) = [chart for chart in step_charts(sums, metrics, []) if chart.title == "Infrastructure failures"]
    assert (chart.x, chart.values) == ([3, 5], {"engine": [2.0, 0.0], "sandbox": [0.0, 1.0]})


SUMS = (
    *("step", "reward", "solved", "tokens", "turns", "tool_errors", "malformed", "surprise", "stale", "open_s"),
    *("engine_s", "tools_s", "verifier_s", "seconds", "cheated"),
)


def test_many_steps_are_joined_without_losing_any(tmp_path):
    index = indexed(tmp_path)
    import sqlite3

    with contextlib.closing(sqlite3.connect(index.path)) as db, db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(steps)")]
        rows = [[2 * step, 0, *[1] * (len(columns) - 2)] for step in range(3 * POINTS + 1)]
        db.executemany(f"INSERT INTO steps VALUES ({', '.join('?' * len(columns))})", rows)
    with index.reading() as db:
        found = step_sums(db, evaluating=False)
    assert len(found) <= POINTS
    assert sum(line["rollouts"] for line in found) == 3 * POINTS + 1
    assert found[0]["step"] == 0
    assert found[-1]["last"] == 6 * POINTS


def test_a_rate_is_what_was_made_between_two_lines():
    lines = [
        {"t": 0.0, "sampled": 0, "limit": 8, "active": 2, "working": 1, "outbox": {"ready": 2, "queued": 5}},
        {"t": 5.0, "before": 8, "limit": 16, "why": "doubled"},
        {"t": 10.0, "sampled": 500, "limit": 16, "active": 9, "working": 3, "outbox": {}},
        {"t": 20.0, "sampled": 100, "limit": 16, "active": 9, "working": 3},
    ]
    charts = {chart.title: chart for chart in time_charts(lines)}
    assert charts["Tokens a second"].values["tokens/s"] == [None, pytest.approx(50.0), None]
    assert charts["Queue and outbox"].values == {
        "groups": [1, 3, 3], "outbox": [2.0, 0.0, 0.0], "trainer's queue": [5.0, 0.0, 0.0]
    }  # fmt: skip
    assert [change["why"] for change in changes(lines)] == ["doubled"]


def test_a_single_dot_is_no_chart():
    def chart(*line):
        return Chart("Reward", "", list(range(len(line))), {"reward": line})

    assert chart(0.5, None, 0.7).has_line
    assert not chart(0.5).has_line and not chart(None, 0.5).has_line and not chart(None, None).has_line


def test_a_chart_is_also_told_in_words():
    summary = Chart("Reward", "", [0, 1, 2, 3], {"reward": (0.25, 0.0, None, 0.125), "never": (None,) * 4}).summary
    assert summary == "reward: 0.125 at the end, from 0 to 0.25."
    assert Chart("Signs", "", [0, 1], {"rollouts": (0.0, 0.5)}, "share").summary.startswith(
        "rollouts: 50.0% at the end"
    )
