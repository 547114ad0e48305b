"""The loop with a scripted model: every way in which a rollout goes on or ends."""

import asyncio
import json
from dataclasses import replace

import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.replies import Defect, UnsoundReply
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import IGNORED, AgentConfig, AgentError, EngineError, StopReason, TokenMismatch
from tools.base import ToolError, ToolRegistry, ToolResult


async def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return str(a + b)


async def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


async def finish(answer: str) -> ToolResult:
    """End the rollout."""
    return ToolResult(answer, done=True)


async def crash() -> str:
    """Crash."""
    raise OSError("disk on fire")


async def sleep() -> str:
    """Sleep."""
    await asyncio.sleep(60)
    return "awake"


TOOLS = ToolRegistry([add, fail, finish, crash, sleep])


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def agent_for(tokenizer, *replies, tools=TOOLS, **config):
    server = ScriptedServer(replies, tokenizer)
    return AtroposAgent(server, tools, AgentConfig(**config), tokenizer), server


def tool_messages(result):
    """What the model was told after each reply."""
    return [m["content"] for m in result.messages[2:] if m["role"] != "assistant"]


async def test_a_call_is_run_and_its_result_shown_before_the_answer(tokenizer):
    agent, _ = agent_for(tokenizer, call("add", a=1, b=2), "It is 3.")
    result = await agent.run("What is 1 + 2?")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.success
    assert result.final_response == "It is 3."
    assert tool_messages(result) == ["<tool_response>\n3\n</tool_response>"]
    assert [m["role"] for m in result.messages] == ["system", "user", "assistant", "user", "assistant"]


async def test_several_calls_in_one_reply_run_in_order(tokenizer):
    agent, _ = agent_for(tokenizer, call("add", a=1, b=2) + call("add", a=3, b=4), "done")
    result = await agent.run("Add.")
    assert [r.content for r in result.steps[0].results] == ["3", "7"]
    assert [r.call.id for r in result.steps[0].results] == ["call_0", "call_1"]
    assert result.counts.tool_calls == 2


async def test_a_finishing_tool_ends_the_rollout_and_the_calls_behind_it_do_not_run(tokenizer):
    agent, server = agent_for(tokenizer, call("finish", answer="42") + call("crash"))
    result = await agent.run("Finish.")
    assert result.stop_reason is StopReason.SUBMITTED
    assert result.final_response == "42"
    assert len(server.turns) == 1


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<tool_call>{oops</tool_call>", "not valid JSON"),
        ('<tool_call>{"name": "add"', "not valid JSON"),
        ("<think>" + call("add", a=1, b=1), "never closed"),
        (call("nothing"), "unknown tool"),
        (call("add", a=1), "b"),
        (call("add", a="1", b=2), "valid integer"),
        (call("add", a=1, b=2, c=3), "c"),
    ],
)
async def test_a_malformed_call_is_corrected_once_counted_and_survived(tokenizer, reply, expected):
    agent, _ = agent_for(tokenizer, reply, "sorry")
    result = await agent.run("Add.")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.counts.malformed_calls >= 1
    assert len(tool_messages(result)) == 1
    assert expected in tool_messages(result)[0]
    assert not any(r.content == "2" for step in result.steps for r in step.results)


@pytest.mark.parametrize("reply", ["<tool_call>{oops</tool_call>", '<tool_call>{"name": "add"'])
async def test_a_correction_shows_a_call_in_the_ids_that_the_model_must_write(any_tokenizer, reply):
    agent, server = agent_for(any_tokenizer, reply, "</think>sorry")
    result = await agent.run("Add.")
    prompt = server.turns[1].prompt
    for tag in ("<tool_call>", "</tool_call>"):
        assert tag in tool_messages(result)[0]
        one = any_tokenizer.backend_tokenizer.token_to_id(tag)
        if one in any_tokenizer.added_tokens_decoder:
            assert agent.template.decode(prompt).count(tag) == list(prompt).count(one)
    assert not Hermes().parse(tool_messages(result)[0]).calls


async def test_what_a_problem_quotes_of_the_model_stays_text(any_tokenizer, template):
    class Quoting(Hermes):
        def parse(self, text, **options):
            reply = super().parse(text, **options)
            return replace(reply, problems=[f"what is {text}?" for _ in reply.problems])

    reply_text = "<tool_call>{</tool_call></tool_call>"
    server = ScriptedServer([reply_text, "</think>sorry"], any_tokenizer)
    agent = AtroposAgent(server, TOOLS, AgentConfig(), template=template, tool_format=Quoting())
    result = await agent.run("Add.")
    quoted = tool_messages(result)[0].count(f"what is {reply_text}?")
    assert quoted
    added = {token.content for token in any_tokenizer.added_tokens_decoder.values()}
    tags = [tag for tag in ("<tool_call>", "</tool_call>") if tag in added]
    prompt, ids = server.turns[1].prompt, [any_tokenizer.get_vocab()[tag] for tag in tags]
    written = sum(template.decode(prompt).count(tag) for tag in tags) - sum(i in ids for i in prompt)
    assert written == quoted * sum(reply_text.count(tag) for tag in tags)


async def test_a_tool_error_is_shown_to_the_model_and_is_not_malformed(tokenizer):
    agent, _ = agent_for(tokenizer, call("fail", reason="no such file"), "ok")
    result = await agent.run("Fail.")
    assert "no such file" in tool_messages(result)[0]
    assert result.counts.tool_errors == 1
    assert result.counts.malformed_calls == 0


async def test_a_crashing_tool_is_our_failure_and_keeps_what_was_sampled(tokenizer):
    agent, server = agent_for(tokenizer, call("add", a=1, b=2), call("crash"))
    with pytest.raises(AgentError, match="disk on fire") as caught:
        await agent.run("Crash.")
    assert isinstance(caught.value.__cause__, OSError)
    partial = caught.value.partial
    assert partial.sampled_tokens == sum(len(e.ids) for e in server.turns)
    assert partial.stop_reason is None


async def test_the_step_budget_ends_the_rollout(tokenizer):
    agent, server = agent_for(tokenizer, *[call("add", a=1, b=2)] * 5, max_steps=3)
    result = await agent.run("Add.")
    assert result.stop_reason is StopReason.MAX_STEPS
    assert not result.success
    assert len(server.turns) == 3


async def test_the_token_budget_counts_prompt_and_replies_together(tokenizer):
    agent, server = agent_for(tokenizer, *[call("add", a=1, b=2)] * 50, max_total_tokens=1000)
    result = await agent.run("Add.")
    assert result.stop_reason is StopReason.MAX_TOKENS
    assert 900 < len(result.segments[0].tokens) <= 1000
    assert all(len(e.prompt) + len(e.ids) <= 1000 for e in server.turns)


async def test_a_reply_that_is_cut_off_is_said_to_be(tokenizer):
    agent, _ = agent_for(tokenizer, "word " * 100, "short", max_tokens=20)
    result = await agent.run("Talk.")
    assert "cut off after 20 tokens" in tool_messages(result)[0]
    assert result.stop_reason is StopReason.ANSWERED


async def test_the_time_budget_ends_a_running_tool(tokenizer):
    agent, _ = agent_for(tokenizer, call("sleep"), max_seconds=0.5)
    result = await agent.run("Sleep.")
    assert result.stop_reason is StopReason.TIME
    assert result.sampled_tokens > 0


async def test_an_engine_that_does_not_answer_is_our_failure(tokenizer):
    agent, server = agent_for(tokenizer, "never", request_timeout_s=0.1)

    async def hang(**_):
        await asyncio.sleep(60)

    server.tokens_and_logprobs_completion = hang
    with pytest.raises(EngineError, match="did not answer within"):
        await agent.run("Hang.")


def broken(server, change):
    """The server with `change` applied to each answer."""
    inner = server.tokens_and_logprobs_completion

    async def answer(**kwargs):
        return change(*await inner(**kwargs))

    server.tokens_and_logprobs_completion = answer


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p, i, q, r: ([*p, 5], i, q, r), "another prompt"),
        (lambda p, i, q, r: (p, i, [q[0][:-1]], r), "logprobs"),
        (lambda p, i, q, r: (p, i, [[1.0] * len(q[0])], r), "1.0 as the logprob of token 0"),
        (lambda p, i, q, r: (p, i, [[float("nan")] * len(q[0])], r), "nan as the logprob of token 0"),
        (lambda p, i, q, r: (p, i, [[None] * len(q[0])], r), "None as the logprob of token 0"),
    ],
)
async def test_an_answer_that_can_not_be_trained_on_is_refused(tokenizer, change, expected):
    agent, server = agent_for(tokenizer, "hello")
    broken(server, change)
    with pytest.raises(TokenMismatch, match=expected):
        await agent.run("Hi.")


@pytest.mark.parametrize(
    ("change", "defect"),
    [
        (lambda p, i, q, r: (p, i * 2, q * 2, r * 2), Defect.SEVERAL),
        (lambda p, i, q, r: (p, [], [], []), Defect.MISSING),
        (lambda p, i, q, r: (p, [[]], [[]], r), Defect.EMPTY),
        (lambda p, i, q, r: (p, i, q, ["abort"]), Defect.ABORTED),
        (lambda p, i, q, r: (p, i, q, [None]), Defect.ABORTED),
        (lambda p, i, q, r: (p, i, q, ["error"]), Defect.FAILED),
        (lambda p, i, q, r: (p, i, q, ["content_filter"]), Defect.FILTERED),
        (lambda p, i, q, r: (p, [[999999, *i[0][1:]]], q, r), Defect.UNKNOWN_IDS),
    ],
)
async def test_an_unsound_reply_is_the_inference_servers_failure(tokenizer, change, defect):
    agent, server = agent_for(tokenizer, call("add", a=1, b=2), "hello")
    good = server.tokens_and_logprobs_completion
    broken(server, change)
    spoiled = server.tokens_and_logprobs_completion

    async def second_only(**kwargs):
        return await (spoiled if server.turns else good)(**kwargs)

    server.tokens_and_logprobs_completion = second_only
    with pytest.raises(UnsoundReply) as caught:
        await agent.run("Hi.")
    assert caught.value.defect is defect
    partial = caught.value.partial
    assert partial.sampled_tokens == len(server.turns[0].ids)
    lost = {Defect.MISSING: 0, Defect.EMPTY: 0, Defect.SEVERAL: 2 * len(server.turns[1].ids)}
    assert partial.counts.refused_tokens == lost.get(defect, len(server.turns[1].ids))


async def test_a_single_turn_serves_callers_with_their_own_loop(tokenizer):
    agent, _ = agent_for(tokenizer, call("add", a=1, b=2), "3")
    first = await agent.run_single_turn([{"role": "user", "content": "Add."}])
    assert first.stop_reason is None
    assert first.steps[0].results[0].content == "3"
    second = await agent.run_single_turn(first.to_messages())
    assert second.stop_reason is StopReason.ANSWERED
    assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "user", "assistant"]


async def test_a_system_message_of_the_caller_replaces_ours(tokenizer):
    agent, _ = agent_for(tokenizer, "hi")
    result = await agent.run("Hi.", [{"role": "system", "content": "Speak French."}])
    assert [m["content"] for m in result.messages] == ["Speak French.", "Hi.", "hi"]


async def test_scored_data_has_a_row_for_each_segment(tokenizer):
    agent, _ = agent_for(tokenizer, call("add", a=1, b=2), "3")
    result = await agent.run("Add.")
    (item,) = result.to_scored_data(0.5)
    assert item["scores"] == 0.5
    assert len(item["tokens"]) == len(item["masks"]) == len(item["inference_logprobs"])
    trained = [t for t, m in zip(item["tokens"], item["masks"], strict=True) if m != IGNORED]
    assert len(trained) == result.sampled_tokens


class Slow(ScriptedServer):
    """Takes a while over each reply."""

    pause_s = 0.0

    async def tokens_and_logprobs_completion(self, **kwargs):
        await asyncio.sleep(self.pause_s)
        return await super().tokens_and_logprobs_completion(**kwargs)


async def test_the_time_of_a_slow_inference_server_is_not_the_rollouts(tokenizer, monkeypatch):
    monkeypatch.setattr("atropos_agent.sampling.FAIR_REPLY_S", 0.0)
    monkeypatch.setattr("atropos_agent.sampling.FAIR_TOKENS_PER_S", 1000.0)
    server = Slow([*[call("add", a=1, b=2)] * 4, "done"], tokenizer)
    server.pause_s = 1.0
    result = await AtroposAgent(server, TOOLS, AgentConfig(max_seconds=3.0), tokenizer).run("Add.")
    assert result.stop_reason is StopReason.ANSWERED, "five seconds, of which its tokens are worth a little"


async def test_sampling_at_a_fair_speed_is_the_rollouts_time(tokenizer, monkeypatch):
    monkeypatch.setattr("atropos_agent.sampling.FAIR_REPLY_S", 0.3)
    server = Slow([*[call("add", a=1, b=2)] * 9, "done"], tokenizer)
    server.pause_s = 0.3
    result = await AtroposAgent(server, TOOLS, AgentConfig(max_seconds=1.0), tokenizer).run("Add.")
    assert result.stop_reason is StopReason.TIME


async def test_a_request_without_an_answer_is_the_inference_servers_failure_however_little_time_is_left(
    tokenizer, monkeypatch
):
    monkeypatch.setattr("atropos_agent.sampling.GRACE_S", 0.1)
    server = Slow(["done"], tokenizer)
    server.pause_s = 60.0
    for limits in ({"max_seconds": 0.2}, {"request_timeout_s": 0.2}, {"max_seconds": 0.1, "request_timeout_s": 0.1}):
        with pytest.raises(EngineError, match="did not answer within"):
            await AtroposAgent(server, TOOLS, AgentConfig(**limits), tokenizer).run("Add.")


async def test_a_tool_that_does_not_end_when_it_is_cut_short_is_our_failure(tokenizer, monkeypatch):
    monkeypatch.setattr("atropos_agent.calls.LATE_S", 0.2)

    async def stands_still() -> str:
        """Stand still."""
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)

    agent, _ = agent_for(tokenizer, call("stands_still"), tools=ToolRegistry([stands_still]), max_seconds=0.2)
    with pytest.raises(AgentError, match="stands still"):
        await agent.run("Go.")


async def test_an_agent_that_was_made_for_one_rollout_goes_on_with_it_in_a_second_run(tokenizer):
    agent, server = agent_for(tokenizer, "one", "two", "three")
    agent.ledgers = []
    await agent.run("First.")
    result = await agent.run("Second.")
    assert [m["content"] for m in result.messages[1:]] == ["First.", "one", "Second.", "two"]
    (row,) = result.segments
    assert list(row.tokens[: len(server.turns[1].prompt)]) == list(server.turns[1].prompt)
    assert result.sampled_tokens == sum(len(turn.ids) for turn in server.turns)
    with pytest.raises(AgentError, match="another system prompt can't come after a reply"):
        await agent.run("Third.", [{"role": "system", "content": "Speak French."}])


async def test_runs_of_an_agent_that_was_made_for_none_are_rollouts(tokenizer):
    agent, _ = agent_for(tokenizer, "one", "two")
    for expected in ("one", "two"):
        result = await agent.run("Go.")
        assert ([m["content"] for m in result.messages[1:]], result.num_steps) == (["Go.", expected], 1)


async def test_a_single_turn_leaves_its_calls_to_the_caller(tokenizer):
    agent, _ = agent_for(tokenizer, call("crash"))
    result = await agent.run_single_turn([{"role": "user", "content": "Add."}], execute_tools=False)
    assert [one.name for one in result.steps[0].calls] == ["crash"]
    assert (result.stop_reason, result.steps[0].results, result.messages[-1]["role"]) == (None, (), "assistant")


async def test_how_long_a_reply_is_may_be_left_to_the_room_that_there_is(tokenizer):
    agent, server = agent_for(tokenizer, "word " * 5000, max_tokens=None, max_total_tokens=1000, max_steps=1)
    result = await agent.run("Talk.")
    assert result.total_tokens == len(server.turns[0].prompt) + len(server.turns[0].ids) == 1000


async def test_a_reply_of_which_no_length_is_known_is_refused_by_name(tokenizer):
    agent, server = agent_for(tokenizer, "word", max_tokens=None)
    with pytest.raises(AgentError, match=r"set max_tokens or max_total_tokens"):
        await agent.run("Talk.")
    assert not server.turns
