"""Two evaluations compared task by task, and how sure the difference is."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from envs.records.comparison import NoEvaluation, Rates, compare, difference, read_rates, table_of
from envs.records.stats import summarise


def rates(values, temperature=0.0):
    named = {f"t{n}": value for n, value in enumerate(values)}
    return Rates(named, 4 * len(named), {"sampling": {"eval_temperature": temperature}})


def test_a_comparison_is_paired_and_says_what_stands_behind_it():
    found = compare(rates([0.0, 0.25, 0.5, 0.5, 0.75, 1.0]), rates([0.25, 0.25, 1.0, 0.75, 0.75, 1.0, 0.5], 1.0))
    assert found.difference == pytest.approx(1 / 6)
    assert found.interval is not None and found.interval.low < found.difference < found.interval.high
    said = str(found)
    assert "paired over 6 tasks (24 samples before, 28 now)" in said and "only in this one: 1" in said
    assert "not the same: eval_temperature 0.0 then, 1.0 now" in said


def test_tasks_edited_between_two_evaluations_are_named():
    names = ("t0", "t1", "t2")
    then, now = (
        replace(rates([0.0, 0.5, 1.0]), digests=dict(zip(names, of, strict=True))) for of in (("a", "b", ""), "axc")
    )
    assert "not the same: 1 task edited in between, such as t1" in str(compare(then, now))


def test_a_sample_too_small_for_an_interval_gets_none():
    assert "no interval (too few tasks, or all alike)" in str(compare(rates([0.0, 0.5]), rates([0.5, 1.0])))
    assert compare(rates([0.5] * 9), rates([1.0] * 9)).interval is None


def test_what_is_no_evaluation_is_named(tmp_path):
    for text in ("", "{}", '{"tasks": [{"task_id": "x"}]}', "[]"):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(NoEvaluation, match=r"x\.json is no file of an evaluation"):
            read_rates(tmp_path / "x.json")
    with pytest.raises(NoEvaluation, match="no task in common"):
        compare(rates([1.0]), Rates({"other": 1.0}, 1, {}))


def shown(summary):
    console = Console(width=160, record=True, file=StringIO())
    console.print(table_of(summary))
    return console.export_text()


def test_the_agents_of_an_evaluation_stand_in_one_table_with_their_paired_differences():
    some = {f"t{task}": [1.0, float(task % 2)] for task in range(6)}
    few = {f"t{task}": [0.0, float(task % 3 == 0)] for task in range(6)}
    agents = {"codex": summarise(some, (1, 2)), "pi": summarise(few, (1, 2))}
    text = shown(replace(summarise({name: [*some[name], *few[name]] for name in some}), agents=agents))
    codex, pi = (next(line for line in text.splitlines() if line.startswith(name)) for name in agents)
    assert "9/12" in codex and "75% [46%, 100%]" in codex and "100%" in codex
    assert "2/12" in pi and "17%" in pi and difference({"t": 0.5}, {"t": 0.25}) == "-25%"
    assert "-58% [" in pi and "pass@1 − codex" in text


def test_an_agent_without_samples_has_no_figures_in_the_table():
    agents = {"codex": summarise({"t": [1.0]}), "pi": summarise({"t": []})}
    assert shown(replace(summarise({"t": [1.0]}), agents=agents)).count("—") == 3
    assert "rate [95% interval]" in shown(summarise({"t": [1.0]})), "the table of one agent is by task"
