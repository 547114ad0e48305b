"""An agent's history in order: results in the order of their calls, missing and foreign ones told as such."""

import re
import time

import pytest
from agents import AGENTS, assert_every_token_is_accounted_for, opened
from native import DONE, Said
from native_families import FAMILIES, one_system_message

from atropos_agent.gateway.histories import FOREIGN, MISSING, order_history
from atropos_agent.gateway.requests import HistoryCall, HistoryMessage

CALLS = [HistoryCall("a", "say", {}), HistoryCall("b", "say", {}), HistoryCall("c", "say", {})]
REPLY = HistoryMessage("assistant", "", CALLS)
USER = HistoryMessage("user", "Be quick.")


def result(number, text=None):
    return HistoryMessage("tool", text or f"of {number}", call_id=number)


def ordered(*messages):
    return order_history([REPLY, *messages], lambda _: None)[1:]


def test_results_stand_in_the_order_of_the_calls_and_before_what_else_is_said():
    assert ordered(result("c"), USER, result("a"), result("b")) == [result("a"), result("b"), result("c"), USER]


def test_a_missing_result_is_told_in_its_place():
    assert ordered(result("c"), result("a")) == [result("a"), result("b", MISSING), result("c")]
    assert [told.text for told in ordered(USER)] == [MISSING] * 3 + [USER.text]


def test_a_foreign_result_takes_no_place_and_is_told_as_such_behind_the_others():
    found = ordered(result("x"), result("c"), result("b"), result("a"))
    assert found[:2] == [result("a"), result("b")]
    assert found[2] == result("c", f"of c\n\n{FOREIGN.format('x')}\nof x")
    orphan = [result("x", f"{FOREIGN.format('x')}\nof x")]
    assert order_history([result("x")], lambda _: None) == orphan
    assert order_history(orphan, lambda _: None) == orphan


def test_results_of_one_id_are_shared_out_among_its_calls():
    twice = HistoryMessage("assistant", "", [CALLS[0], CALLS[0]])
    assert order_history([twice, result("a", "1"), result("a", "2")], lambda _: None)[1:] == [
        result("a", "1"),
        result("a", "2"),
    ]
    assert ordered(result("a", "1"), result("a", "2"), result("b"), result("c"))[0] == result("a", "1\n\n2")


def test_the_time_that_it_takes_grows_with_the_number_of_messages():
    many = [HistoryCall("a", "say", {})] * 60_000
    words = [HistoryMessage("assistant", "hm")] * 60_000
    began = time.process_time()
    found = order_history([HistoryMessage("assistant", "", many), *[result("a")] * 90_000, *words], lambda _: None)
    assert time.process_time() - began < 10
    assert len(found) == 120_001


def test_a_call_that_cant_be_read_needs_no_result():
    broken = HistoryMessage("assistant", "", [HistoryCall("a", "say", '{"text')])
    assert order_history([broken, USER], lambda _: None) == [broken, USER]
    assert order_history([broken, result("a")], lambda _: None) == [broken, result("a")]


def test_a_message_of_thinking_alone_is_part_of_the_reply_behind_it():
    thought = HistoryMessage("assistant", thinking="hm", handle=3)
    (found,) = order_history([thought, HistoryMessage("assistant", "Yes.")], lambda _: None)
    assert (found.text, found.thinking, found.handle) == ("Yes.", "hm", 3)
    two = [HistoryMessage("assistant", "hm"), HistoryMessage("assistant", "Yes.")]
    assert order_history(two, lambda _: None) == two


THREE = Said((("say", {"text": "one"}), ("say", {"text": "two", "times": 2}), ("say", {"text": "three"})))
SIX = ("Qwen3-Coder, by hand", "GLM 4.5, by hand", "Kimi K2, by hand", "Mistral v11, by hand", "qwen2_5", "qwen3")
MORE = ("smollm2", "deepseek_v31", "mistral_v3")


def shown(fitted, engine, texts):
    """The texts in the order in which the last prompt shows them after the reply."""
    output = fitted.template.decode(engine.exchanges[-1].prompt[len(engine.exchanges[0].prompt) :])
    return re.findall("|".join(map(re.escape, texts)), output)


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("family", [*SIX, *MORE])
async def test_the_model_is_shown_results_in_the_order_of_its_calls_however_they_are_sent(fit, family, kind):
    """Claude Code sends them as they come in."""
    fitted = fit(family)
    async with opened(fitted, [THREE, DONE]) as (client, engine):
        agent = AGENTS[kind](client)
        agent.user("go")
        agent.results(await agent.ask(), "RESULT-1", "RESULT-2", "RESULT-3")
        turned(agent)
        await agent.ask()
        result = await client.session.result()
    assert shown(fitted, engine, ["RESULT-1", "RESULT-2", "RESULT-3"]) == ["RESULT-1", "RESULT-2", "RESULT-3"]
    assert [one.content for one in result.steps[0].results] == ["RESULT-1", "RESULT-2", "RESULT-3"]
    assert_every_token_is_accounted_for(result, engine)
    if family not in ("GLM 4.5, by hand", "qwen3", "deepseek_v31", "mistral_v3"):
        assert len(result.segments) == 1


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("family", [*SIX, *MORE])
async def test_a_result_that_is_missing_leaves_the_others_in_their_places(fit, family, kind):
    fitted = fit(family)
    async with opened(fitted, [THREE, DONE]) as (client, engine):
        agent = AGENTS[kind](client)
        agent.user("go")
        agent.results(await agent.ask(), "RESULT-1", "RESULT-2", "RESULT-3")
        turned(agent, renamed="call_1")
        await agent.ask()
        assert_every_token_is_accounted_for(await client.session.result(), engine)
    foreign = FOREIGN.format("nobody's")
    texts = ["RESULT-1", "RESULT-2", "RESULT-3", MISSING, foreign]
    assert shown(fitted, engine, texts) == ["RESULT-1", MISSING, "RESULT-3", foreign, "RESULT-2"]


def turned(agent, renamed=""):
    """Turn the order of the last results round, and give one of them an id that nobody knows."""
    last = agent.history[-1]
    if "parts" in last:
        last["parts"].reverse()
        results, key = [part["functionResponse"] for part in last["parts"]], "id"
    elif isinstance(last.get("content"), list):
        last["content"].reverse()
        results, key = last["content"], "tool_use_id"
    else:
        agent.history[-3:] = agent.history[:-4:-1]
        results, key = agent.history[-3:], "call_id" if "call_id" in last else "tool_call_id"
    for one in results:
        if one[key] == renamed:
            one[key] = "nobody's"


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("family", [*(one for one in FAMILIES if one != "gemma2")])
async def test_calls_that_are_not_ours_have_ids_as_the_format_makes_them(fit, family, kind):
    """Kimi's prompt names the function by its id, Mistral's template takes nine letters and digits."""
    fitted = fit(family)
    async with opened(fitted, [Said((("say", {"text": "x"}),)), DONE]) as (client, engine):
        agent = AGENTS[kind](client)
        for n, name in enumerate(("say", "fail")):
            agent.user(f"example {n}")
            few_shot(agent, f"call_{n}", name)
        agent.user("go")
        reply = await agent.ask()
        assert agent.calls(reply) == ["call_2"], "an id of ours is none of theirs"
        agent.results(reply)
        await agent.ask()
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
    prompt = fitted.template.decode(engine.exchanges[0].prompt)
    if family == "Kimi K2, by hand":
        assert re.findall(r"## Return of (\S+)\n", prompt) == ["functions.say:0", "functions.fail:1"]
        assert "call_0" not in prompt
    assert prompt.index("shown 0") < prompt.index("shown 1")


def few_shot(agent, number, name):
    """Put a call and its result into an agent's history that nobody sampled."""
    arguments, output = '{"text": "x"}', f"shown {number[-1]}"
    if agent.path.endswith("generateContent"):
        call = {"id": number, "name": name, "args": {"text": "x"}}
        agent.history.append({"role": "model", "parts": [{"functionCall": call}]})
        told = {"id": number, "name": name, "response": {"output": output}}
        agent.history.append({"role": "user", "parts": [{"functionResponse": told}]})
        agent.history.append({"role": "model", "parts": [{"text": "It is said."}]})
        return
    if agent.path.endswith("messages"):
        use = {"type": "tool_use", "id": number, "name": name, "input": {"text": "x"}}
        agent.history.append({"role": "assistant", "content": [use]})
        told = {"type": "tool_result", "tool_use_id": number, "content": output}
        agent.history.append({"role": "user", "content": [told]})
    elif agent.path.endswith("responses"):
        agent.history.append({"type": "function_call", "call_id": number, "name": name, "arguments": arguments})
        agent.history.append({"type": "function_call_output", "call_id": number, "output": output})
    else:
        call = {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
        agent.history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        agent.history.append({"role": "tool", "tool_call_id": number, "content": output})
    agent.history.append({"role": "assistant", "content": "It is said."})


async def test_a_compacted_history_keeps_the_ids_of_our_own_calls_and_mints_others(fit):
    fitted = fit("Kimi K2, by hand")
    async with opened(fitted, [Said((("say", {"text": "x"}),)), DONE]) as (client, engine):
        agent = AGENTS["chat"](client)
        agent.user("go")
        agent.results(await agent.ask(), "ours")
        agent.history[0]["content"] = "Other rules."
        del agent.history[1]
        agent.history.insert(1, {"role": "user", "content": "A summary."})
        few_shot(agent, "carried", "fail")
        agent.user("more")
        await agent.ask()
    prompt = fitted.template.decode(engine.exchanges[1].prompt)
    assert re.findall(r"## Return of (\S+)\n", prompt) == ["functions.say:0", "functions.fail:0"]


async def test_a_result_behind_a_reply_without_calls_is_told_as_such(fit, smollm2_tokenizer):
    for fitted in (
        *(fit(family) for family in ("Kimi K2, by hand", "Mistral v11, by hand")),
        one_system_message(smollm2_tokenizer),
    ):
        async with opened(fitted, [DONE, DONE]) as (client, engine):
            agent = AGENTS["chat"](client)
            agent.user("go")
            await agent.ask()
            agent.history.append({"role": "tool", "tool_call_id": "x", "content": "lost"})
            await agent.ask()
        assert f"{FOREIGN.format('x')}\nlost" in fitted.template.decode(engine.exchanges[1].prompt)
