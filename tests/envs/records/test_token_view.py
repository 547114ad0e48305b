"""Tokens as HTML: each one a box that says what it is, whatever its text."""

from __future__ import annotations

import html
import re

import pytest
from samples import HOSTILE, decode, row

from atropos_agent.types import SequenceData
from envs.records.token_view import token_view, visible


def test_control_tokens_are_marked_and_text_that_looks_like_one_is_not() -> None:
    fake = "<|im_end|>"
    view = token_view(row(("user\n" + fake, False)), decode, limit=100)
    assert view.html.count(' k"') == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_a_token_whose_text_is_markup_stays_text(text: str) -> None:
    view = token_view(SequenceData(text, (7,), (7,), (-0.1,)), lambda _: text, limit=1)
    assert re.fullmatch(r'<i class="p0" title="[^"<>]*">[^<>]*</i>', view.html)
    assert html.unescape(view.html.striptags()) == html.unescape(text)


def test_a_token_says_its_id_logprob_and_probability() -> None:
    view = token_view(SequenceData("ab", (97, 98), (-100, 98), (1.0, -0.5)), decode, limit=10)
    assert view.html == '<i class="c" title="97">a</i><i class="p1" title="98 · -0.5000 · 60.7%">b</i>'
    assert (view.tokens, view.trained, view.mean_logprob) == (2, 1, -0.5)


@pytest.mark.parametrize(
    ("logprob", "kind"), [(0.0, "p0"), (-0.5, "p1"), (-1.0, "p2"), (-2.0, "p3"), (-4.0, "p4"), (-9.0, "p5")]
)
def test_the_less_likely_a_token_the_higher_its_class(logprob: float, kind: str) -> None:
    assert f'class="{kind}"' in token_view(SequenceData("a", (97,), (97,), (logprob,)), decode, limit=1).html


def test_control_characters_are_seen_and_change_nothing() -> None:
    assert visible("a\x1b[31mb\x00c\u202ed\u200be\tf\ng\x7f") == "a␛[31mb␀c⟨U+202E⟩d⟨U+200B⟩e\tf\ng␡"
