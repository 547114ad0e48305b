"""Two evaluations compared task by task, and how sure the difference is."""

import pytest

from envs.records.comparison import NoEvaluation, Rates, compare, read_rates


def rates(values, temperature=0.0):
    named = {f"t{n}": value for n, value in enumerate(values)}
    return Rates(named, 4 * len(named), {"sampling": {"eval_temperature": temperature}})


def test_a_comparison_is_paired_and_says_what_stands_behind_it():
    found = compare(rates([0.0, 0.25, 0.5, 0.5, 0.75, 1.0]), rates([0.25, 0.25, 1.0, 0.75, 0.75, 1.0, 0.5], 1.0))
    assert found.difference == pytest.approx(1 / 6)
    assert found.interval is not None and found.interval.low < found.difference < found.interval.high
    said = str(found)
    assert "paired over 6 tasks (24 samples before, 28 now)" in said and "1 only in this one" in said
    assert "not the same: eval_temperature 0.0 then, 1.0 now" in said


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
