"""The option for branches, and the places that it names."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from envs.swe.config import SWEEnvConfig
from envs.swe.places import Branches
from tools.base import ToolResult


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2@errors", Branches(2, "errors")),
        ("1@every:4", Branches(1, "every", 4)),
        ("12@entropy", Branches(12, "entropy")),
        ("", None),
    ],
)
def test_the_option_is_short(text, found):
    assert Branches.of(text) == found


@pytest.mark.parametrize("text", ["2", "0@errors", "2@every", "2@every:0", "@errors", "2@Errors", "2@errors:3"])
def test_another_text_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="as 2@every:4"):
        SWEEnvConfig(branches=text)


def rollout(*mean_logprobs):
    return cast(Any, SimpleNamespace(replies=len(mean_logprobs), mean_logprobs=list(mean_logprobs)))


def is_place(text, at, *results):
    branches = Branches.of(text)
    assert branches is not None
    return branches.here(at, results or [ToolResult("done")])


def test_each_kind_of_place_is_known():
    refused, failed = ToolResult("no", is_error=True), ToolResult("no", metadata={"exit_code": 1})
    succeeded = ToolResult("yes", metadata={"exit_code": 0})
    assert is_place("1@errors", rollout(-1), succeeded, refused)
    assert is_place("1@errors", rollout(-1), failed)
    assert not is_place("1@errors", rollout(-1), succeeded)
    assert [is_place("1@every:2", rollout(*[-1] * n)) for n in range(1, 5)] == [False, True, False, True]
    assert is_place("1@entropy", rollout(-0.5, -0.1, -0.4))
    assert not is_place("1@entropy", rollout(-0.5, -0.1, -0.2)), "surer than before, in the mean"
    assert not is_place("1@entropy", rollout(-5)), "nothing came before"
