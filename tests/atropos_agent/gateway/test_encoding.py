"""What agents tell, as a template is given it."""

import pytest
from agents import AGENTS, SCHEMAS, ChatAgent, opened
from native import DONE, Said
from native_families import fitted_family

from atropos_agent.engines.anthropic import request
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.encoding import fold_messages, opening
from atropos_agent.gateway.requests import HistoryCall, HistoryMessage


def test_tools_stand_in_the_system_message_where_the_template_shows_none(fitted, with_calls):
    history = [HistoryMessage("system", "Be good."), HistoryMessage("user", "go")]
    (system, _) = opening(history, fitted, SCHEMAS, lambda _: None)
    assert system["content"].startswith("Be good.")
    assert "say" in system["content"]
    (plain, _) = opening(history, with_calls, SCHEMAS, lambda _: None)
    assert plain["content"] == "Be good."


def test_what_an_agent_tells_writes_no_control_tokens(fitted):
    (message,) = opening([HistoryMessage("user", "<|im_end|>")], fitted, (), lambda _: None)
    assert "<|im_end|>" not in message["content"]


@pytest.mark.parametrize("family", ["Kimi K2, by hand", "Mistral v11, by hand"])
async def test_ids_of_calls_write_no_control_tokens(smollm2_tokenizer, family):
    """Some templates write them."""
    fitted = fitted_family(smollm2_tokenizer, None, family)
    controls = sorted(fitted.template.tokenizer.get_added_vocab())
    prompts = []
    for number in ("c0", "c0" + "".join(controls), "c0\ud83d"):
        async with opened(fitted, [DONE]) as (client, engine):
            agent = ChatAgent(client)
            call = {"id": number, "type": "function", "function": {"name": "say", "arguments": '{"text": "a"}'}}
            agent.history.append({"role": "assistant", "content": "", "tool_calls": [call]})
            agent.history.append({"role": "tool", "tool_call_id": number, "content": "a"})
            await agent.ask()
        prompts.append([i for i in engine.exchanges[0].prompt if i in fitted.template.controls(controls)])
    assert prompts[0] == prompts[1] == prompts[2]


def test_calls_of_others_are_the_templates_and_broken_ones_text(with_calls):
    call = HistoryCall("a", "say", '{"text": "x"}')
    history = [
        HistoryMessage("user", "go"),
        HistoryMessage("assistant", "", [call]),
        HistoryMessage("tool", "y", call_id="a"),
        HistoryMessage("user", "more"),
    ]
    messages = opening(history, with_calls, SCHEMAS, lambda _: None)
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"text": "x"}
    assert messages[2]["name"] == "say"
    history[1] = HistoryMessage("assistant", "", [HistoryCall("a", "say", "{x")])
    assert opening(history, with_calls, SCHEMAS, lambda _: None)[1] == {"role": "assistant", "content": "say({x)"}
    history[1] = HistoryMessage("assistant", "", [HistoryCall("b", "fail", "{x"), call])
    _, both, result, _ = opening(history, with_calls, SCHEMAS, lambda _: None)
    assert (both["content"], len(both["tool_calls"])) == ("fail({x)", 1)
    assert (result["name"], result["tool_call_id"]) == ("say", both["tool_calls"][0]["id"])


def test_what_stands_behind_results_can_stand_in_the_last():
    history = [
        HistoryMessage("tool", "y", call_id="a"),
        HistoryMessage("user", "more"),
        HistoryMessage("user", "still"),
    ]
    assert fold_messages(history) == [HistoryMessage("tool", "y\n\nmore\n\nstill", call_id="a")]
    assert fold_messages([HistoryMessage("user", "a"), HistoryMessage("system", "b")]) == [
        HistoryMessage("user", "a"),
        HistoryMessage("system", "b"),
    ]


def test_an_endpoint_is_told_calls_of_a_history_in_openais_shape():
    history = [
        HistoryMessage("user", "go"),
        HistoryMessage("assistant", "", [HistoryCall("a", "say", {"text": "x"})]),
        HistoryMessage("tool", "y", call_id="a"),
    ]
    given = opening(history, FittedFormat.of("auto", None, takes_tools=True), SCHEMAS, lambda _: None)
    assert given[1]["tool_calls"][0]["function"] == {"name": "say", "arguments": '{"text": "x"}'}
    _, reply, _ = request("m", {"messages": given})["messages"]
    assert reply["content"] == [
        {"type": "tool_use", "id": given[2]["tool_call_id"], "name": "say", "input": {"text": "x"}}
    ]


TWO = Said((("say", {"text": "one"}), ("say", {"text": "two", "times": 2})))


def chat_ids_of_its_own(reply, results):
    for number, (call, result) in enumerate(zip(reply["tool_calls"], results, strict=True)):
        call["id"] = result["tool_call_id"] = f"own-{number}"


def google_without_ids(reply, results):
    for part in (*reply["parts"], *results[0]["parts"]):
        del part.get("functionCall", part.get("functionResponse"))["id"]


@pytest.mark.parametrize(("kind", "renames"), [("chat", chat_ids_of_its_own), ("gemini", google_without_ids)])
@pytest.mark.parametrize("family", ["Gemma 4, by hand", "Kimi K2, by hand", "Mistral v11, by hand"])
async def test_results_are_of_their_calls_whatever_ids_the_agent_gives_them(smollm2_tokenizer, family, kind, renames):
    fitted, found = fitted_family(smollm2_tokenizer, None, family), []
    for change in (lambda *_: None, renames):
        async with opened(fitted, [TWO, DONE]) as (client, engine):
            agent = AGENTS[kind](client)
            agent.user("go")
            reply = await agent.ask()
            before = len(agent.history)
            agent.results(reply, "first", "second")
            change(reply, agent.history[before:])
            await agent.ask()
            step, _ = (await client.session.result()).steps
        assert [result.call for result in step.results] == list(step.calls)
        found.append(fitted.template.decode(engine.exchanges[-1].prompt))
    assert found[0] == found[1]
