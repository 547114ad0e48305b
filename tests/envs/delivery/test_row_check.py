"""What is refused in the rows of a group."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from samples import group

from envs.delivery.row_check import check_group

Change = Callable[[dict[str, Any]], None]


def test_a_good_group_has_no_problem() -> None:
    assert check_group(group()) == []


def test_a_group_without_advantages_has_no_problem() -> None:
    assert check_group(group() | {"advantages": None}) == []


def last_trained(bad: dict[str, Any], row: int) -> int:
    return max(place for place, mask in enumerate(bad["masks"][row]) if mask != -100)


def shorten(name: str) -> Change:
    return lambda bad: bad[name].pop()


def shorten_row(name: str) -> Change:
    return lambda bad: bad[name][2].pop()


def set_trained(name: str, value: object) -> Change:
    def change(bad: dict[str, Any]) -> None:
        bad[name][1][last_trained(bad, 1)] = value

    return change


def train_nothing(bad: dict[str, Any]) -> None:
    bad["masks"][3] = [-100] * len(bad["tokens"][3])
    bad["inference_logprobs"][3] = [1.0] * len(bad["tokens"][3])


def score_one_rollout_twice(bad: dict[str, Any]) -> None:
    bad["generation_params"]["rollout_ids"][1] = bad["generation_params"]["rollout_ids"][0]


BAD: dict[str, tuple[Change, str]] = {
    "no rows": (lambda bad: bad.update(tokens=[]), "no rows"),
    "too few masks": (shorten("masks"), "masks: 3 values for 4 rows"),
    "too few scores": (shorten("scores"), "scores: 3 values for 4 rows"),
    "too few logprobs": (shorten("inference_logprobs"), "inference_logprobs: 3 values for 4 rows"),
    "too few advantages": (shorten("advantages"), "advantages: 3 values for 4 rows"),
    "no logprobs": (lambda bad: bad.update(inference_logprobs=None), "inference_logprobs: none for 4 rows"),
    "no parameters": (lambda bad: bad.update(generation_params=None), "generation_params: missing"),
    "no ids": (lambda bad: bad.update(generation_params={"step": 1}), "none in rollout_ids for 4 rows"),
    "too few ids": (lambda bad: bad["generation_params"]["rollout_ids"].pop(), "3 values in rollout_ids"),
    "an empty id": (lambda bad: bad["generation_params"]["rollout_ids"].__setitem__(0, ""), "empty or no text"),
    "two scores for one rollout": (score_one_rollout_twice, "rollout g-0 has 1.0 in one row and 0.0 in another"),
    "an empty row": (lambda bad: bad["tokens"].__setitem__(2, []), "row 2: no tokens"),
    "a short mask": (shorten_row("masks"), "row 2: 19 tokens, 18 values in masks"),
    "short logprobs": (shorten_row("inference_logprobs"), "18 values in inference_logprobs"),
    "short advantages": (shorten_row("advantages"), "row 2: 19 tokens, 18 values in advantages"),
    "a mask that is another token": (set_trained("masks", 7), "row 1: token 17 is 1 but its mask says 7"),
    "a trained token without logprob": (set_trained("inference_logprobs", 1.0), "the impossible logprob 1.0"),
    "a missing logprob": (set_trained("inference_logprobs", None), "the impossible logprob None"),
    "a NaN logprob": (set_trained("inference_logprobs", float("nan")), "the impossible logprob nan"),
    "an infinite logprob": (set_trained("inference_logprobs", float("-inf")), "the impossible logprob -inf"),
    "a context logprob": (lambda bad: bad["inference_logprobs"][0].__setitem__(0, -0.5), "token 0 is not trained"),
    "nothing trained": (train_nothing, "row 3: no trained token"),
    "a NaN score": (lambda bad: bad["scores"].__setitem__(0, float("nan")), "row 0: the score nan"),
    "a missing score": (lambda bad: bad["scores"].__setitem__(0, None), "row 0: the score None"),
    "an infinite advantage": (set_trained("advantages", float("inf")), "token 17 has the advantage inf"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_group_is_caught(name: str) -> None:
    change, message = BAD[name]
    bad = copy.deepcopy(group())
    change(bad)
    assert any(message in problem for problem in check_group(bad)), check_group(bad)
