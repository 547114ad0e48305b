"""A prompt that is no longer the template's own is noticed, and what about it."""

import re
from copy import deepcopy

import pytest
from families import family, with_template
from scenarios import call, sampled, say
from tokenizers.normalizers import NFC, NFKC, Lowercase, Prepend, Replace, Sequence
from truth import assert_rows_are_the_truth, play

from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.conversation import Completion, Conversation
from atropos_agent.tokens.drift import Drift
from atropos_agent.tokens.record import problems
from atropos_agent.tokens.template import ChatTemplate
from tools.base import ToolResult

THINKING = [*[call(f"number {i}", think=True) for i in range(6)], "<think>\nhm\n</think>\n\ndone"]


async def rolled_out(smollm2, name, texts, template=None):
    tokenizer = family(smollm2, name)
    template = template or ChatTemplate(tokenizer)
    result, exchanges = await play(
        tokenizer, [sampled(template, text, "stop") for text in texts], [say], template=template
    )
    assert_rows_are_the_truth(result, exchanges)
    assert problems(result.segments, result.record) == [None] * len(result.segments)
    return result


@pytest.mark.parametrize(
    ("name", "texts", "drift"),
    [
        ("plain", THINKING, None),
        ("drops earlier thinking", THINKING, None),
        ("leaves empty thinking out", ["<think>\n\n</think>\n\n" + call("one")] * 4, None),
        ("opens empty thinking", THINKING, None),
        ("an end takes up the white space after it", THINKING, None),
        ("trims", [call("one"), call("two"), "done"], None),
        ("trims", [f" \n{call('one')}\n ", call("two"), "done"], Drift.WHITE_SPACE),
        ("keeps the last two thoughts", THINKING[:2], None),
        ("keeps the last two thoughts", THINKING, Drift.THINKING),
        ("shows the last messages", THINKING[:2], None),
        ("shows the last messages", THINKING, Drift.MESSAGES),
    ],
)
async def test_what_the_template_would_make_is_compared_with_what_was_sent(smollm2_tokenizer, name, texts, drift):
    assert (await rolled_out(smollm2_tokenizer, name, texts)).drift is drift


@pytest.mark.parametrize("sign", [[Replace(" ", "\u2581")], [Prepend("\u2581"), Replace(" ", "\u2581")]])
async def test_a_tokenizers_sign_for_white_space_is_white_space(smollm2_tokenizer, sign):
    tokenizer = with_template(deepcopy(smollm2_tokenizer), family(smollm2_tokenizer, "trims").chat_template)
    template = ChatTemplate(tokenizer)
    conversation = Conversation(template, [{"role": "user", "content": "go"}])
    for text in (" one", " two"):
        ids = template.encode(text, continues=True)
        conversation.add_reply(Completion(ids, [-0.5] * len(ids), "stop"))
        conversation.add_messages([{"role": "user", "content": "on"}])
    tokenizer.backend_tokenizer.normalizer = Sequence(sign)
    assert conversation.drift() is Drift.WHITE_SPACE


async def test_white_space_that_a_token_would_take_up_is_noticed(smollm2_tokenizer, monkeypatch):
    name = "an end takes up the white space after it"
    template = ChatTemplate(family(smollm2_tokenizer, name))
    whole = template.continuation
    line = template.encode("\n", continues=True)
    monkeypatch.setattr(template, "continuation", lambda *args, **rest: [*line, *whole(*args, **rest)])
    result = await rolled_out(smollm2_tokenizer, name, [call("one"), "done"], template)
    assert result.drift is Drift.WHITE_SPACE


async def test_other_text_is_noticed(smollm2_tokenizer, monkeypatch):
    template = ChatTemplate(family(smollm2_tokenizer, "plain"))
    whole = template.continuation
    words = template.encode("words", continues=True)
    monkeypatch.setattr(template, "continuation", lambda *args, **rest: [*words, *whole(*args, **rest)])
    assert (await rolled_out(smollm2_tokenizer, "plain", [call("one"), "done"], template)).drift is Drift.TEXT


@pytest.mark.parametrize("how", ["stop", "withheld", "odd"])
async def test_no_family_drifts_in_an_ordinary_conversation(any_tokenizer, template, how):
    texts = [call("one"), call("two", think=True), call("three"), "done"]
    turns = [sampled(template, text, how) for text in texts]
    result, _ = await play(any_tokenizer, turns, [say], template=template)
    # Where the template tells thinking from content, it may write other white space between them.
    assert result.drift in (None, Drift.WHITE_SPACE)


async def test_the_time_that_a_template_writes_is_none_of_the_conversations(smollm2_tokenizer, monkeypatch):
    """Midnight comes during a rollout."""
    tokenizer = family(smollm2_tokenizer, "default system and a date")
    template = ChatTemplate(tokenizer)
    turns = [sampled(template, text, "stop") for text in (call("one"), call("two"), "done")]
    render = template.render

    def dated(messages, **options):
        return re.sub(r"It is [\d-]+", f"It is 2026-01-{day}", render(messages, **options))

    monkeypatch.setattr(template, "render", dated)
    day = 1
    conversation = Conversation(template, [{"role": "user", "content": "go"}], Hermes.frame)
    for turn in turns:
        conversation.add_reply(Completion(turn.ids, [-0.5] * len(turn.ids), "stop"))
        if turn is not turns[-1]:
            conversation.add_messages(Hermes().messages([ToolResult("x")], None, role="user"))
    day = 2
    (row,) = conversation.rows()
    assert "2026-01-1" in row.full_text
    assert conversation.drift(row.full_text) is None


DECOMPOSED = "cafe\u0301 \u212b"


@pytest.mark.parametrize("normalizer", [NFC(), NFKC(), Lowercase()], ids=["NFC", "NFKC", "lower case"])
async def test_what_a_tokenizer_normalizes_is_no_drift(smollm2_tokenizer, normalizer):
    tokenizer = with_template(deepcopy(smollm2_tokenizer), family(smollm2_tokenizer, "plain").chat_template)
    tokenizer.backend_tokenizer.normalizer = normalizer
    plain = ChatTemplate(family(smollm2_tokenizer, "plain"))
    texts = (call(DECOMPOSED), f"{DECOMPOSED} done")
    turns = [sampled(plain, text, "stop") for text in texts]
    result, _ = await play(tokenizer, turns, [say], task=f"Say {DECOMPOSED}.")
    assert result.drift is None
