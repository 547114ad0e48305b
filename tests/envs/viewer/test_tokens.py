"""A page of tokens: what stands there is the row's."""

import math
import re
from dataclasses import replace

import pytest
from samples import decode, rollout, row

from atropos_agent.types import IGNORED, SequenceData
from envs.delivery.estimators import Estimator
from envs.records.atif import to_atif
from envs.types import Reward
from envs.viewer.tokens import PAGE, NoRow, advantage_of, token_page

REWARDS = (1.0, 0.0, 0.0, 1.0)


def titles(page):
    return dict(re.findall(r'<i id="t(\d+)" class="[^"]*" data-about="([^"]*)"', page.html))


def test_every_token_has_its_mask_logprob_probability_and_advantage():
    one = rollout()
    (data,) = one.result.segments
    page = token_page(to_atif(one), decode, row=0, at=0, rewards=REWARDS)
    said = titles(page)
    assert len(said) == len(data.tokens) == page.tokens
    for place, (token, mask, logprob) in enumerate(zip(data.tokens, data.masked_tokens, data.logprobs, strict=True)):
        if mask == IGNORED:
            assert said[str(place)] == str(token)
        else:
            assert said[str(place)] == f"{token} · {logprob:.4f} · {math.exp(logprob):.1%} · advantage +1"
    assert page.trained == data.trained
    assert [start for _, start in page.turns] == [step.start for step in one.result.steps]


def test_the_advantage_is_that_of_the_runs_estimator():
    assert advantage_of(1.0, [1.0, 0.0, 0.0], Estimator("leave-one-out")) == 1.0
    assert advantage_of(1.0, [1.0, 0.0], Estimator(length_penalty=0.5)) is None, "lengths count, too"
    assert advantage_of(0.5, [1.0, 0.0]) is None, "another rollout has its place"


def test_turns_of_their_own_add_to_the_advantage():
    one = replace(rollout(), reward=Reward(1.0, (0.5, 0.0)))
    said = titles(token_page(to_atif(one), decode, row=0, at=0, rewards=REWARDS))
    first, second = one.result.steps
    assert said[str(first.start)].endswith("advantage +1.5")
    assert said[str(second.start)].endswith("advantage +1")


def test_without_a_complete_group_no_advantage_is_told():
    page = token_page(to_atif(rollout()), decode, row=0, at=0, rewards=None)
    assert page.advantage is None
    assert "advantage" not in page.html


def long_rollout(tokens):
    data = SequenceData("", (5, *range(3, tokens + 2)), (IGNORED,) * tokens, (1.0,) * tokens)
    one = rollout()
    return replace(one, result=replace(one.result, segments=(data,), steps=()))


def test_pages_together_hold_every_token_once():
    document = to_atif(long_rollout(2 * PAGE + 10))
    seen = []
    for at in (0, PAGE + 3, 2 * PAGE + 9):
        page = token_page(document, None, row=0, at=at, rewards=None)
        assert page.first <= at < page.last
        seen += map(int, titles(page))
    assert seen == list(range(2 * PAGE + 10))


@pytest.mark.parametrize(("row_number", "at"), [(1, 0), (-1, 0), (0, 10_000)])
def test_a_row_or_token_that_is_not_there_is_named(row_number, at):
    with pytest.raises(NoRow, match="there is no"):
        token_page(to_atif(rollout()), decode, row=row_number, at=at, rewards=None)


def test_a_doubled_control_token_is_pointed_out():
    good = row(("user\nGo.", False), ("Done.", True))
    doubled = SequenceData(good.full_text, (*good.tokens, 1), (*good.masked_tokens, -100), (*good.logprobs, 1.0))
    one = rollout()
    page = token_page(
        to_atif(replace(one, result=replace(one.result, segments=(doubled,)))), decode, row=0, at=0, rewards=None
    )
    assert page.doubled == [len(good.tokens)]


def test_trained_tokens_are_found_without_colours_and_without_a_pointer():
    one = rollout()
    masks = one.result.segments[0].masked_tokens
    page = token_page(to_atif(one), decode, row=0, at=0, rewards=None)
    trained = {place for first, last in page.spans for place in range(first, last + 1)}
    assert trained == {place for place, mask in enumerate(masks) if mask != IGNORED}
    heard = re.findall(r'<b class="unseen"> (\w+): </b><i id="t(\d+)"', page.html)
    assert [int(place) for kind, place in heard if kind == "trained"] == [first for first, _ in page.spans]
    # A screen reader would say the title, which is a number, in the place of a mark.
    assert "title=" not in page.html
