"""Text in pieces has the ids that it has in one, and content can't write control tokens."""

import copy

import pytest
from native_families import native_tokenizer

from atropos_agent.tokens.encoding import CUT, Encoder, replace_invalid_text
from atropos_agent.tokens.probes import MARK


@pytest.fixture
def encoder(any_tokenizer):
    return Encoder(any_tokenizer)


@pytest.mark.parametrize("text", ["two words", " leading", "\n\nnew lines\n", "漢字 naïve", "def f(x):\n\treturn x**2"])
def test_text_is_read_back_as_it_was(encoder, text):
    assert encoder.decode(encoder.encode(text, continues=True)) == text


def test_a_continuation_has_no_mark_of_a_beginning(encoder):
    whole = encoder.encode("one\ntwo", continues=True)
    assert encoder.encode("one\n", continues=True) + encoder.encode("two", continues=True) == whole


def test_quoted_control_tokens_are_text(encoder, any_tokenizer):
    for token in sorted(encoder.special_ids)[:5]:
        written = encoder.text_of(token)
        assert token in encoder.encode(written)
        assert token not in encoder.encode(encoder.quote(f"a{written}b"))
        assert encoder.decode(encoder.encode(encoder.quote(f"a{written}b"), continues=True)) == f"a{written}b"


def test_what_is_to_be_kept_stays_a_control_token(encoder):
    token = min(encoder.special_ids)
    written = encoder.text_of(token)
    assert encoder.quote(written, keep=[written]) == written


def test_what_is_no_text_is_replaced(encoder):
    assert replace_invalid_text(f"a{CUT}{MARK}\ud800b") == "a\ufffd\ufffd\ufffdb"
    assert CUT not in encoder.quote(f"a{CUT}b")


def test_the_control_token_in_front_is_found_behind_white_space(encoder):
    token = min(encoder.special_ids)
    assert encoder.leading_control(f" \n{encoder.text_of(token)}x") == token
    assert encoder.leading_control("x") is None


def test_ids_are_those_of_transformers_whatever_another_user_of_the_tokenizer_left(encoder, any_tokenizer):
    text = f"one two three four five {encoder.text_of(min(encoder.special_ids))}six"
    ids = any_tokenizer.encode(text, add_special_tokens=False)
    any_tokenizer("one", truncation=True, max_length=2, split_special_tokens=True)
    any_tokenizer.backend_tokenizer.enable_padding(length=64)
    assert encoder.encode(text) == ids


@pytest.mark.parametrize("family", ["MiniMax M2, by hand", "MiniMax M3, by hand", "DeepSeek V3.2, by hand"])
def test_tokens_that_end_as_they_begin_are_text_one_after_another_and_before_one_of_the_templates(
    smollm2_tokenizer, family
):
    encoder = Encoder(native_tokenizer(smollm2_tokenizer, family))
    for token in filter(lambda token: encoder.controls([token]), ("[e~[", "]~b]", "｜DSML｜")):
        ending = encoder.encode(token, continues=True)
        for text in (token * 3, token + token[1:], token[:-1], f"{token[:-1]} ", token[:-1] + token):
            assert encoder.control_ids.isdisjoint(encoder.encode(encoder.quote(text), continues=True))
            ids = encoder.encode(encoder.quote(text) + token, continues=True)
            assert ids[-len(ending) :] == ending
            assert encoder.control_ids.isdisjoint(ids[: -len(ending)])
            assert encoder.decode(ids) == text + token


def test_a_control_token_of_one_character_stays_one(smollm2_tokenizer):
    tokenizer = copy.deepcopy(smollm2_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["\u2021"]})
    encoder = Encoder(tokenizer)
    assert encoder.decode(encoder.encode(encoder.quote("a \u2021 b"))) == "a \u2021 b"
