"""Evaluation statistics, against brute force and published numbers."""

from __future__ import annotations

import io
import itertools
import math
import statistics

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from envs.records.stats import Estimate, pass_at_k, summarise, wilson


@st.composite
def draws(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 9))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(draws())
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_correct_sample(case: tuple[int, int, int]) -> None:
    n, c, k = case
    subsets = list(itertools.combinations(range(n), k))
    share = sum(any(sample < c for sample in subset) for subset in subsets) / len(subsets)
    assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


@given(draws(), st.integers(1, 200))
def test_pass_at_k_stays_exact_for_many_samples(case: tuple[int, int, int], factor: int) -> None:
    n, c, k = case[0] * factor, case[1] * factor, case[2]
    product = math.prod(1 - k / place for place in range(n - c + 1, n + 1)) if n - c >= k else 0.0
    assert pass_at_k(n, c, k) == pytest.approx(1 - product, abs=1e-9)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4), (0, 0, 1)])
def test_pass_at_k_refuses_what_has_no_meaning(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@k needs"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_the_published_one(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_lies_in_0_to_1_around_the_share(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson(successes, n)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= successes / n <= high


def test_the_interval_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(3, 2)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=2, max_size=8))
def test_errors_are_taken_over_tasks(rewards: list[list[float]]) -> None:
    summary = summarise({f"t{n}": values for n, values in enumerate(rewards)}, ks=(1, 4))
    rates = [sum(value == 1 for value in values) / 4 for values in rewards]
    means = [sum(values) / 4 for values in rewards]
    assert summary.pass_at[1].mean == pytest.approx(statistics.fmean(rates))
    assert summary.pass_at[1].stderr == pytest.approx(statistics.stdev(rates) / len(rates) ** 0.5)
    assert summary.pass_at[4].mean == pytest.approx(statistics.fmean(any(v == 1 for v in values) for values in rewards))
    assert summary.reward is not None
    assert summary.reward.mean == pytest.approx(statistics.fmean(means))
    assert summary.reward.stderr == pytest.approx(statistics.stdev(means) / len(means) ** 0.5)


def test_repeating_the_samples_of_a_task_does_not_shrink_the_error() -> None:
    few = summarise({"a": [1.0], "b": [0.0], "c": [1.0]}).pass_at[1]
    many = summarise({"a": [1.0] * 50, "b": [0.0] * 50, "c": [1.0] * 50}).pass_at[1]
    assert few.stderr == many.stderr


def test_pass_at_k_is_left_out_where_a_task_has_too_few_samples() -> None:
    summary = summarise({"a": [1.0, 0.0, 0.0, 1.0], "b": [0.0, 0.0]}, ks=(1, 2, 4, 8))
    assert list(summary.pass_at) == [1, 2]


def test_a_task_without_samples_is_named_and_counts_nowhere() -> None:
    summary = summarise({"a": [1.0, 0.0], "broken": []}, ks=(1,))
    assert summary.unsampled == ("broken",)
    assert summary.pass_at[1] == Estimate(0.5, None, 1)
    assert summary.metrics() == {
        "eval/pass@1": 0.5,
        "eval/reward": 0.5,
        "eval/tasks": 1,
        "eval/unsampled_tasks": 1,
    }


def test_a_summary_of_nothing_is_empty_and_can_still_be_shown() -> None:
    summary = summarise({"broken": []})
    assert summary.reward is None
    assert not summary.pass_at
    assert "no task has a sample" in shown(summary.render())


def test_the_table_and_the_json_hold_every_task() -> None:
    summary = summarise({"a": [1.0, 0.0], "b": [0.0, 0.0], "broken": []}, ks=(1, 2))
    text = shown(summary.render())
    for part in ("a", "1/2", "0.50 [0.09, 0.91]", "broken", "pass@1 0.250 ± 0.250", "pass@2 0.500 ± 0.500"):
        assert part in text
    data = orjson.loads(orjson.dumps(summary.to_json()))
    assert data["pass_at"]["2"] == {"mean": 0.5, "stderr": 0.5, "tasks": 2}
    assert [task["task_id"] for task in data["tasks"]] == ["a", "b"]


def shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(renderable)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
