"""Token rows over real chat templates: what was sent and what was sampled is what is trained."""

import asyncio
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import pytest
from families import TOKENIZERS, family
from scenarios import SCENARIOS, call, forged, sampled, say, spelled
from truth import PlaybackServer, Turn, assert_rows_are_the_truth, assert_truth, play

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.tokens.conversation import Completion, Conversation
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentError, EngineError, SequenceData, StopReason
from tools.base import ToolRegistry

ENDS = ("stop", "withheld", "another stop", "odd")


LONG = "a long result"
"""It is there for its length, which is the same however the reply ends, and it takes long: one a family is enough."""
SHORT = [scenario for scenario in SCENARIOS if scenario != LONG]


@pytest.mark.pairs(any_tokenizer=TOKENIZERS, scenario=SHORT, how=ENDS)
async def test_rows_and_prompts_are_the_truth(any_tokenizer, template, scenario, how):
    if scenario == "an empty reply" and how == "withheld":
        # A reply without any token is the inference server's failure: it has its end at least.
        how = "stop"
    await check_rows_and_prompts(any_tokenizer, template, scenario, how)


async def test_rows_and_prompts_are_the_truth_behind_a_long_result(any_tokenizer, template):
    await check_rows_and_prompts(any_tokenizer, template, LONG, "stop")


async def check_rows_and_prompts(tokenizer, template, scenario, how):
    turns = [sampled(template, text, how) for text in SCENARIOS[scenario]]
    result, exchanges = await play(tokenizer, turns, [say], template=template)
    assert len(exchanges) == len(turns)
    assert_truth(tokenizer, result, exchanges)


async def test_replies_cut_at_any_place_are_continued_with_the_end_of_turn_added_untrained(any_tokenizer, template):
    text = call("漢字 one", think=True)
    for length in (1, 2, 5, 9, 14, 22):
        turns = [replace(sampled(template, text, "stop"), reason="stop") for _ in range(3)]
        result, exchanges = await play(any_tokenizer, turns, [say], template=template, max_tokens=length)
        assert [len(e.ids) for e in exchanges] == [min(length, len(turns[0].ids))] * 3
        assert_truth(any_tokenizer, result, exchanges)


async def test_partial_characters_and_control_tokens_inside_a_reply_stay_as_sampled(any_tokenizer, template):
    pieces = template.encode("👩‍👩‍👧漢", continues=True)
    specials = [i for i, t in any_tokenizer.added_tokens_decoder.items() if t.special and i not in template.stop_ids]
    ids = [*pieces[1:4], *specials[:3], *template.encode(call("one"), continues=True)]
    turns = [Turn(ids), Turn([*specials[:1], *pieces[:1]], "length"), sampled(template, "done", "stop")]
    result, exchanges = await play(any_tokenizer, turns, [say], template=template)
    assert_rows_are_the_truth(result, exchanges)


async def test_a_stop_string_leaves_the_turn_open_so_the_end_is_added(any_tokenizer, template):
    turns = [sampled(template, call("one"), "withheld"), sampled(template, call("two"), "withheld")]
    result, exchanges = await play(any_tokenizer, turns, [say], template=template, stop=["</tool_call>"])
    assert_truth(any_tokenizer, result, exchanges)
    assert result.stop_reason is StopReason.MAX_STEPS


async def test_white_space_sampled_behind_the_end_of_turn_does_not_hide_it(any_tokenizer, template):
    if template.close_id is None:
        # Then nothing can be sampled after it.
        pytest.skip("the template ends turns with no token")
    newline = template.encode("\n", continues=True)
    first = sampled(template, call("one"), "stop")
    turns = [Turn([*first.ids, *newline], "length"), sampled(template, "done", "stop")]
    result, exchanges = await play(any_tokenizer, turns, [say], template=template)
    assert_rows_are_the_truth(result, exchanges)
    behind = template.decode(exchanges[1].prompt[-200:])
    assert behind.count(any_tokenizer.decode([template.close_id]) * 2) == 0


async def test_text_from_tools_and_tasks_can_not_write_control_tokens(any_tokenizer, template):
    source = any_tokenizer.chat_template
    added = {i: t.content for i, t in any_tokenizer.added_tokens_decoder.items()}
    control = {
        i
        for i, t in any_tokenizer.added_tokens_decoder.items()
        if len(t.content) > 1 and (t.special or (t.content.strip() and t.content in source))
    }
    control |= {i for i, content in added.items() if content in ("<tool_response>", "</tool_response>", "<|User|>")}
    hostile = " ".join(added[i] for i in sorted(control))
    done = [sampled(template, "done", "stop")]
    plain, _ = await play(any_tokenizer, done, [say], template=template, task="harmless")
    result, _ = await play(any_tokenizer, done, [say], template=template, task=hostile)
    assert any(hostile.strip() in message["content"] for message in result.to_messages())

    def written(row):
        return Counter(t for t in row.tokens if t in control)

    assert written(result.segments[0]) == written(plain.segments[0])


async def test_prompts_of_ordinary_text_are_what_the_tokenizer_makes_of_them(any_tokenizer, template):
    messages = [{"role": "user", "content": "def f(x):\n    return x  # naïve 漢字"}]
    expected = any_tokenizer.encode(template.render(messages), add_special_tokens=False)
    assert template.prompt(messages) == list(expected)


async def test_several_replies_to_one_prompt_stand_in_rows_of_their_own(template):
    opening = [{"role": "user", "content": "Go."}]
    prompts = []
    for text in (call("one"), "done", ""):
        server = PlaybackServer([sampled(template, text, "stop")])
        agent = AtroposAgent(server, ToolRegistry([say]), template=template)
        result = await agent.run_single_turn(opening)
        assert_rows_are_the_truth(result, server.exchanges)
        prompts.append(server.exchanges[0].prompt)
    assert prompts[0] == prompts[1] == prompts[2]


async def test_a_full_context_window_ends_the_rollout_with_what_was_sampled(tokenizer):
    template = ChatTemplate(tokenizer)

    class Full(PlaybackServer):
        async def tokens_and_logprobs_completion(self, **kwargs):
            if len(self.exchanges) == 2:
                raise ContextOverflow("maximum context length")
            return await super().tokens_and_logprobs_completion(**kwargs)

    server = Full([sampled(template, call("one"), "stop") for _ in range(3)])
    result = await AtroposAgent(server, ToolRegistry([say]), template=template).run("Go.")
    assert result.stop_reason is StopReason.MAX_TOKENS
    assert_truth(tokenizer, result, server.exchanges)


class Late(PlaybackServer):
    """Gives its second reply half a second late."""

    late = None

    async def tokens_and_logprobs_completion(self, **kwargs):
        if len(self.exchanges) < 1:
            return await super().tokens_and_logprobs_completion(**kwargs)
        self.late = asyncio.ensure_future(self._later(kwargs))
        return await asyncio.shield(self.late)

    async def _later(self, kwargs):
        await asyncio.sleep(0.5)
        return await super().tokens_and_logprobs_completion(**kwargs)


async def test_a_reply_that_comes_soon_after_the_end_is_the_last_and_in_a_row(tokenizer):
    template = ChatTemplate(tokenizer)
    server = Late([sampled(template, text, "stop") for text in (call("one"), call("late"), "no more")])
    result = await AtroposAgent(server, ToolRegistry([say]), AgentConfig(max_seconds=0.3), template=template).run("Go.")
    assert result.stop_reason is StopReason.TIME
    assert_truth(tokenizer, result, server.exchanges)
    assert len(result.steps) == len(server.exchanges) == 2
    assert result.counts.abandoned_requests == 0


async def test_a_reply_that_does_not_come_is_in_no_row_is_told_and_is_our_failure(tokenizer, monkeypatch):
    monkeypatch.setattr("atropos_agent.sampling.GRACE_S", 0.05)
    template = ChatTemplate(tokenizer)
    server = Late([sampled(template, call("one"), "stop"), sampled(template, "late", "stop")])
    with pytest.raises(EngineError) as caught:
        await AtroposAgent(server, ToolRegistry([say]), AgentConfig(max_seconds=0.3), template=template).run("Go.")
    result, kept = caught.value.partial, list(server.exchanges)
    await server.late
    assert_truth(tokenizer, result, kept)
    assert result.counts.abandoned_requests == 1


async def test_what_an_engine_sampled_but_can_not_be_trained_on_is_told(tokenizer):
    template = ChatTemplate(tokenizer)

    class Positive(PlaybackServer):
        async def tokens_and_logprobs_completion(self, **kwargs):
            prompt, ids, logprobs, reasons = await super().tokens_and_logprobs_completion(**kwargs)
            return prompt, ids, [[0.5] * len(logprobs[0])], reasons

    server = Positive([sampled(template, "done", "stop")])
    with pytest.raises(AgentError) as caught:
        await AtroposAgent(server, template=template).run("Go.")
    assert caught.value.partial.counts.refused_tokens == len(server.exchanges[0].ids)


async def test_consecutive_messages_of_one_role_are_joined_where_the_template_refuses_them(smollm2_tokenizer):
    strict = family(smollm2_tokenizer, "no system role, roles alternate")
    template = ChatTemplate(strict)
    server = PlaybackServer([sampled(template, call("one"), "stop"), sampled(template, "done", "stop")])
    agent = AtroposAgent(server, ToolRegistry([say]), template=template)
    result = await agent.run("Go.", [{"role": "user", "content": "First."}])
    assert "First.\n\nGo." in template.decode(server.exchanges[0].prompt)
    assert_truth(strict, result, server.exchanges)


def test_a_tool_role_that_the_template_drops_is_refused_at_once(smollm2_tokenizer):
    tokenizer = deepcopy(family(smollm2_tokenizer, "system in the first question, a start in every turn"))
    tokenizer.chat_template = tokenizer.chat_template.replace("{% else %}", "{% elif m['role'] == 'assistant' %}")
    with pytest.raises(ValueError, match="takes no messages of role 'tool'"):
        AtroposAgent(PlaybackServer([]), config=AgentConfig(tool_role="tool"), tokenizer=tokenizer)


THINKERS = ("drops earlier thinking", "drops earlier thinking, closes it", "drops earlier thinking, opens it")


@pytest.mark.parametrize("name", THINKERS)
async def test_plain_replies_behind_a_thinking_one_go_on_in_its_row(smollm2_tokenizer, name):
    tokenizer = family(smollm2_tokenizer, name)
    template = ChatTemplate(tokenizer)
    texts = [call("one", think=True, closed=template.opens_thinking), call("two"), call("three"), call("four"), "done"]
    result, exchanges = await play(
        tokenizer, [sampled(template, text, "stop") for text in texts], [say], template=template
    )
    assert_truth(tokenizer, result, exchanges)
    # Where the prompt opens thinking, each turn's is taken back.
    assert len(result.segments) == (5 if template.opens_thinking else 2)


async def test_what_plain_replies_add_behind_a_thinking_one_is_all_that_is_encoded(smollm2_tokenizer, monkeypatch):
    tokenizer = family(smollm2_tokenizer, "drops earlier thinking")
    template = ChatTemplate(tokenizer)
    whole = []
    prompt = ChatTemplate.prompt
    monkeypatch.setattr(ChatTemplate, "prompt", lambda *args: whole.append(1) or prompt(*args))
    texts = [call("one", think=True), *[call("two")] * 6, "done"]
    await play(tokenizer, [sampled(template, text, "stop") for text in texts], [say], template=template)
    assert len(whole) == 2


@pytest.mark.parametrize("tags", ["a</think>b", "<think>", "<think>x</think>", "</think></think>"])
@pytest.mark.parametrize("how", ["stop", "odd"])
async def test_thinking_tags_in_a_call_are_text(any_tokenizer, template, tags, how):
    if template.opens_thinking:
        # Then all of a reply is thinking up to the first such tag.
        pytest.skip("the prompt opens thinking")
    plain, _ = await play(
        any_tokenizer, [sampled(template, text, how) for text in (call("x"), "done")], [say], template=template
    )
    turns = [sampled(template, text, how) for text in (call(tags), "done")]
    result, exchanges = await play(any_tokenizer, turns, [say], template=template)
    assert_truth(any_tokenizer, result, exchanges)
    assert len(result.segments) == len(plain.segments)
    assert call(tags) in template.decode(exchanges[1].prompt)


BROKEN = (
    '<tool_call>\n{"name": "say", "arguments": {"text": "%s"\n</tool_call>',
    '<tool_call>\n{"name": "say", "arguments": {"text": "%s"}}\n' + call("x"),
    'Well. <tool_call>\n{"name": "say", "arguments": {"text": "%s',
)
"""Calls that are malformed, not closed before another one, cut off; with a place for their argument."""


async def test_thinking_tags_in_a_broken_call_are_text(any_tokenizer, template):
    if template.opens_thinking:
        # Then all of a reply is thinking up to the first such tag.
        pytest.skip("the prompt opens thinking")
    rows = []
    for arguments in (("x", "x", "x"), ("a</think>b", "<think>x</think>", "</think>")):
        texts = [form % argument for form, argument in zip(BROKEN, arguments, strict=True)]
        turns = [sampled(template, text, "withheld") for text in texts]
        result, exchanges = await play(
            any_tokenizer, [*turns, sampled(template, "done", "stop")], [say], template=template
        )
        assert_truth(any_tokenizer, result, exchanges)
        rows.append(len(result.segments))
        shown = template.decode(exchanges[-1].prompt)
        assert all(text in shown for text in texts)
    assert rows[0] == rows[1], "what stands in a call splits no row"


async def test_a_turn_that_the_model_spells_stays_text_when_the_template_writes_it(any_tokenizer, template):
    # Thinking tags are asked about elsewhere: a template may drop what stands before them.
    said = f"Hello.{forged(template)}And:".replace("<think>", "").replace("</think>", "")
    conversation = Conversation(template, [{"role": "user", "content": "Go."}])
    plain = Conversation(template, [{"role": "user", "content": "Go."}])
    spelled_out = spelled(template, said)
    conversation.add_reply(Completion(spelled_out, [-1.0] * len(spelled_out), "length"))
    ids = template.encode("Hello.", continues=True)
    plain.add_reply(Completion(ids, [-1.0] * len(ids), "length"))
    after = [{"role": "user", "content": "x"}]
    controls = {i for i, token in any_tokenizer.added_tokens_decoder.items() if token.content.strip()}

    def written(conversation):
        prompt = template.prompt([*conversation.messages, *after])
        return Counter(i for i in prompt if i in controls), template.decode(prompt)

    assert written(conversation)[0] == written(plain)[0]
    assert "".join(said.split()) in "".join(written(conversation)[1].split())


async def test_a_control_token_that_the_model_sampled_stays_one_when_the_template_writes_it(any_tokenizer, template):
    special = next(i for i, t in any_tokenizer.added_tokens_decoder.items() if t.special and i not in template.stop_ids)
    conversation = Conversation(template, [{"role": "user", "content": "Go."}])
    before = conversation.prompt.count(special)
    ids = [*template.encode("a", continues=True), special, *template.encode("b", continues=True)]
    conversation.add_reply(Completion(ids, [-1.0] * 3, "length"))
    again = template.prompt([*conversation.messages, {"role": "user", "content": "x"}])
    assert again.count(special) >= before + 1


async def test_thinking_that_is_spelled_is_dropped_like_any_other_and_writes_no_tag(any_tokenizer, template):
    tags = {any_tokenizer.backend_tokenizer.token_to_id(tag) for tag in ("<think>", "</think>")} - {None}
    thinking = "<think>\nhm\n</think>\n\nyes"
    kept = {}
    for how in ("stop", "odd"):
        conversation = Conversation(template, [{"role": "user", "content": "Go."}])
        ids = sampled(template, thinking, how).ids
        conversation.add_reply(Completion(ids, [-1.0] * len(ids), "stop"))
        again = template.prompt([*conversation.messages, {"role": "user", "content": "x"}])
        kept[how] = "".join(template.decode(again).split())
        if how == "odd":
            own = template.prompt([{"role": "user", "content": "Go."}]) * 2
            assert sum(i in tags for i in again) <= sum(i in tags for i in own)
    assert kept["stop"] == kept["odd"]


async def test_an_end_that_takes_up_white_space_leaves_none_behind_it(smollm2_tokenizer):
    tokenizer = family(smollm2_tokenizer, "an end takes up the white space after it")
    template = ChatTemplate(tokenizer)
    turns = [sampled(template, text, "stop") for text in SCENARIOS["three turns"]]
    result, exchanges = await play(tokenizer, turns, [say], template=template)
    assert_truth(tokenizer, result, exchanges)
    for exchange, end in zip(exchanges, (2, 4, 6), strict=True):
        assert exchange.prompt == tokenizer.encode(template.render(result.to_messages()[:end]))


async def test_a_system_prompt_that_moves_costs_a_row_a_turn_unless_it_is_folded(smollm2_tokenizer):
    moving = family(smollm2_tokenizer, "system in the last question")
    rows = {}
    for fold in (False, True):
        template = ChatTemplate(moving, fold_system=fold)
        turns = [sampled(template, text, "stop") for text in SCENARIOS["three turns"]]
        result, exchanges = await play(moving, turns, [say], template=template)
        assert_rows_are_the_truth(result, exchanges)
        rows[fold] = len(result.segments)
    assert rows == {False: 3, True: 1}


def test_a_fork_goes_on_from_a_place_that_was_passed_and_shares_nothing_that_changes(tokenizer):
    template = ChatTemplate(tokenizer)
    reply = Completion([*template.encode("Yes.", continues=True), template.close_id], [-0.5] * 3, "stop")
    whole = Conversation(template, [{"role": "user", "content": "go"}])
    whole.add_reply(Completion(reply.ids, [-0.5] * len(reply.ids), "stop"))
    place, before = whole.place(), list(whole.prompt)
    whole.add_messages([{"role": "user", "content": "one"}])
    whole.add_reply(Completion(reply.ids, [-0.25] * len(reply.ids), "stop"))
    forked, kept = whole.fork(place), list(whole.prompt)
    assert forked.prompt == before
    forked.add_messages([{"role": "user", "content": "two"}])
    again = Conversation(template, [{"role": "user", "content": "go"}])
    again.add_reply(Completion(reply.ids, [-0.5] * len(reply.ids), "stop"))
    again.add_messages([{"role": "user", "content": "two"}])
    assert forked.prompt == again.prompt
    assert whole.prompt == kept
    (fields,) = whole.cut({0: [(len(before) - len(reply.ids), len(before))]})
    assert SequenceData(**fields).trained == len(reply.ids)
