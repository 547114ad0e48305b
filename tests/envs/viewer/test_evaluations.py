"""The figures of evaluations: pass@k with intervals, by tag, over the steps, and compared."""

from dataclasses import replace

import pytest
from shown_runs import evaluated, indexed, make_run

from envs.records.stats import summarise
from envs.runs.reader import step_of
from envs.viewer.evaluations import Attempt, attempts_in, compare_with, curve, parse_evaluation, with_attempts


def evaluation(name, solved):
    """Eight tasks with four samples, of which so many are solved."""
    rewards = {f"t{task}": [1.0] * count + [0.0] * (4 - count) for task, count in enumerate(solved)}
    return parse_evaluation(name, summarise(rewards).to_json())


def test_pass_at_k_has_the_interval_of_the_tasks():
    one = evaluation("eval-0", [0, 1, 2, 3, 4, 0, 0, 2])
    assert list(one.pass_at) == [1, 2, 4]
    assert one.pass_at[1].mean == pytest.approx(12 / 32)
    assert one.pass_at[4].mean == pytest.approx(5 / 8)
    for figure in one.pass_at.values():
        assert 0 <= figure.interval.low < figure.mean < figure.interval.high <= 1
    assert evaluation("eval-0", [1]).pass_at[1].interval is None, "one task tells nothing of the others"


def test_the_curve_has_a_point_for_each_step_and_none_with_a_single_one():
    points = [evaluation("eval-0", [0] * 8), evaluation("eval-16", [4] * 8), evaluation("eval-000008", [1, 2] * 4)]
    chart = curve(points)
    assert chart.x == [0, 8, 16]
    assert chart.values["pass@1"] == [0.0, 0.375, 1.0]
    assert chart.values["95% from"][1] < 0.375 < chart.values["95% to"][1]
    assert curve(points[:1]) is None
    assert curve([]) is None
    lost = [parse_evaluation(name, summarise({"t": []}).to_json()) for name in ("eval-0", "eval-8")]
    assert curve(lost) is None, "no sample of either was made"


@pytest.mark.parametrize(("name", "step"), [("eval-0", 0), ("eval-000008", 8), ("eval-12", 12), ("odd", 0)])
def test_a_name_tells_the_step(name, step):
    assert step_of(name) == step


def test_an_evaluation_is_compared_task_by_task():
    now, compared = compare_with(evaluation("eval-8", [2] * 8), evaluation("eval-0", [1] * 6))
    assert compared.difference == pytest.approx(0.25) and compared.tasks == 6
    assert [task.before for task in now.tasks] == [0.25] * 6 + [None] * 2


def test_attempts_and_tags_are_those_of_the_rollouts(run_dir):
    with indexed(run_dir).reading() as db:
        (step,) = db.execute("SELECT step FROM steps WHERE evaluating").fetchone()
        found = attempts_in(db, 3, step)
    attempts, tags = found["add-numbers"]
    assert [(at.run, at.solved) for at in attempts] == [(3, True), (3, False)] and tags
    one = with_attempts(None, found, f"eval-{step}")
    assert not one.over and one.samples == sum(len(attempts) for attempts, _ in found.values())
    assert [tag for tag, _, _ in one.by_tag()] == sorted({tag for _, tags in found.values() for tag in tags})
    assert with_attempts(None, {}, "eval-1") is None


async def test_a_sample_that_was_made_again_after_a_kill_is_one_attempt(tmp_path):
    """The first one was saved and not noted."""
    also = [evaluated("e-0", False, member=0), evaluated("e-1", True, member=1), evaluated("e-2", True, member=0)]
    with indexed(await make_run(tmp_path / "run", also=also)).reading() as db:
        found = attempts_in(db, 0, 2)
    (attempts, _) = found["add-numbers"]
    assert [at.solved for at in attempts] == [True, True]


def test_agents_are_told_apart_also_while_the_evaluation_goes_on():
    told = replace(summarise({"t": [1.0, 0.0]}), agents={"a": summarise({"t": [1.0]}), "b": summarise({"t": [0.0]})})
    found = {"t": ([Attempt(0, 0, 1.0, True, "a"), Attempt(1, 0, 0.0, False, "b")], [])}
    for one in (parse_evaluation("eval-0", told.to_json()), with_attempts(None, found, "eval-0")):
        assert [(agent, of.samples, more) for agent, of, more in one.by_agent()] == [("a", 1, "+0%"), ("b", 1, "-100%")]
        assert one.samples == 2
    assert not with_attempts(None, {"t": (found["t"][0][:1], [])}, "eval-0").agents


def test_a_damaged_file_is_an_error_of_its_own():
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_evaluation("eval-0", {"tasks": [{"task_id": "t"}]})
