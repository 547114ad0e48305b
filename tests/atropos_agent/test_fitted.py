"""A model's own tool format over its own template: rows are the engine's log, prompts the template's."""

import json
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from families import with_template
from native import DONE, SCENARIOS, TOOLS, Model, asks, assert_native_truth, assert_prompts_are_the_templates, play
from native_families import BY_HAND, FAMILIES, FORMATS_OF, native_tokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.drift import Drift
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, Reply
from tools.base import ToolCall

MALFORMED = {"malformed": 1, "cut off": 2, "error result": 1, "injection in an argument": 1}
"""How many malformed calls a scenario has: a call that is cut off is one, and so is its reply."""


@pytest.mark.parametrize("name", FAMILIES)
def test_the_format_of_a_family_is_found_by_looking(fit, name):
    fitted = fit(name)
    assert type(fitted.format).__name__ == FORMATS_OF[name.partition(",")[0]]
    assert fitted.own == (name not in ("smollm2", "gemma2"))
    assert (fitted.shape is None) == (name in ("smollm2", "gemma2", "deepseek_v3"))


ENDS = ("stop", "withheld", "odd")
NOTHING_ELSE = ("llama3_1", "Llama 4, by hand")
"""Families whose replies are calls and nothing else."""


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_of_a_model_without_tools_are_text_beside_its_thinking(fit, name):
    bound = fit(name).with_tools(TOOLS.schemas)
    calls = [ToolCall("say", {"text": text}, bound.format.call_id(n, "say")) for n, text in enumerate(("a", "b"))]
    written, (think, think_end) = (
        bound.format.write_all(calls[: 1 if name in NOTHING_ELSE else 2]),
        bound.format.thinking,
    )
    said = "" if name in NOTHING_ELSE else "Well.\n"
    text = f"{think}hm{think_end}{said}{written}"
    if bound.format.channelled:
        assert replace(bound, calls_are_text=True).read(written, first_id=0, thinking_open=False).calls
        return
    assert bound.read(text, first_id=0, thinking_open=False).calls
    reply = replace(bound, calls_are_text=True).read(text, first_id=0, thinking_open=False)
    assert reply == Reply("hm", f"{said}{written}".strip(), (), ())
    reply = replace(bound, calls_are_text=True).read(
        f"{think}hm{think_end}\x00\n{written}", first_id=0, thinking_open=False
    )
    assert reply == Reply("hm", f"\x00\n{written}", (), ())
    for odd in (written[:-3], "", think):
        reply = replace(bound, calls_are_text=True).read(odd, first_id=0, thinking_open=False)
        assert (reply.calls, reply.problems) == ((), ())


@pytest.mark.pairs(name=FAMILIES, scenario=SCENARIOS, how=ENDS)
async def test_rows_and_prompts_are_the_truth(fit, name, scenario, how):
    fitted = fit(name)
    result, exchanges = await play(fitted, SCENARIOS[scenario], how)
    assert len(exchanges) == len(SCENARIOS[scenario])
    assert_native_truth(fitted, result, exchanges)
    calls = sum(len(said.calls) for said in SCENARIOS[scenario])
    if name in NOTHING_ELSE and scenario == "words before a call":
        # There a reply that calls a tool is nothing else.
        assert (result.counts.tool_calls, result.counts.malformed_calls) == (0, 2)
        return
    assert (result.counts.tool_calls, result.counts.malformed_calls) == (calls, MALFORMED.get(scenario, 0))
    if fitted.format.channelled:
        assert result.drift in (Drift.CALLS, None)
    else:
        assert_prompts_are_the_templates(fitted, result, exchanges)


REWRITING = ("qwen3, no thinking", "deepseek_v31, thinking", "deepseek_v31", "mistral_v3, folded", "llama3_1")


@pytest.mark.parametrize("name", REWRITING)
async def test_a_turn_stays_as_it_was_sampled_where_that_is_asked_for_and_its_row_says_so(fit, name):
    fitted = fit(name)
    rows = {}
    for history in ("template", "sampled"):
        result, exchanges = await play(fitted, SCENARIOS["thinking"], history=history)
        assert_native_truth(fitted, result, exchanges)
        rows[history] = result.segments
        assert result.drift is (Drift.THINKING if history == "sampled" else None)
    assert (len(rows["template"]), len(rows["sampled"])) == (3, 1)
    assert not any(row.thinking_kept for row in rows["template"])
    assert rows["sampled"][0].thinking_kept


@pytest.mark.parametrize("scenario", ["plain", "several calls", "unicode"])
@pytest.mark.parametrize("name", FAMILIES)
async def test_a_conversation_that_was_given_in_openais_shape_becomes_the_templates_own_tokens(fit, name, scenario):
    """What a rollout made is given back, arguments as JSON: the prompt is the one that the template makes of it."""
    fitted = fit(name)
    result, _ = await play(fitted, SCENARIOS[scenario])
    given = [dict(message) for message in result.to_messages()]
    for message in given:
        message["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": as_json(call["function"]["arguments"])}}
            for call in message.get("tool_calls", ())
        ]
    server = Model(fitted, [DONE], "stop")
    agent = AtroposAgent(server, TOOLS, AgentConfig(), template=fitted.template, tool_format=fitted)
    await agent.run_single_turn(given)
    template = fitted.template
    expected = template.render(result.to_messages(), tools=fitted.shown(TOOLS.schemas))
    assert template.decode(server.exchanges[0].prompt) == template.decode(template.encode(expected))


def as_json(arguments):
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


@pytest.mark.parametrize("name", BY_HAND)
def test_tools_calls_and_results_are_what_the_tokenizer_itself_makes_of_them(fit, name):
    """Without any of our ways: `apply_chat_template` with OpenAI's messages."""
    fitted = fit(name)
    calls = [("call_0", {"text": "a\nb"}), ("call_1", {"text": "<b> 漢字", "times": 2})]
    tool_calls = [
        {"id": i, "type": "function", "function": {"name": "say", "arguments": arguments}} for i, arguments in calls
    ]
    messages = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Well.", "tool_calls": tool_calls},
        *({"role": "tool", "tool_call_id": i, "name": "say", "content": "said"} for i, _ in calls),
    ]
    if name in NOTHING_ELSE:
        messages[2]["content"] = ""
    bound = fitted.with_tools(TOOLS.schemas)
    ours = fitted.template.prompt(bound.opening(messages), bound.shown(TOOLS.schemas))
    theirs = fitted.template.tokenizer.apply_chat_template(
        messages, tools=TOOLS.schemas, tokenize=False, add_generation_prompt=True
    )
    assert ours == fitted.template.encode(theirs)


@pytest.mark.parametrize("name", FAMILIES)
async def test_no_schema_can_write_a_control_token(fit, name):
    fitted = fit(name)
    template = fitted.template
    controls = sorted(template._encoder.control_ids)
    hostile = " ".join(template.decode([i]) for i in controls)
    schema = {**TOOLS.schemas[0]}
    harmless = {**schema, "function": {**schema["function"], "description": "x"}}
    spoiled = {**schema, "function": {**schema["function"], "description": hostile}}
    if not fitted.shows_tools:
        # Then they stand in the system prompt, where the format's own tags may.
        return
    requested = [{"role": "user", "content": "Go."}]
    counted = [
        sum(i in controls for i in template.prompt(requested, fitted.shown([one]))) for one in (harmless, spoiled)
    ]
    assert counted[0] == counted[1]


def test_a_format_that_was_asked_for_as_text_stays_text_altogether(fit):
    fitted = fit("Qwen3-Coder, by hand")
    text = FittedFormat.of("hermes", fitted.template, "user")
    assert (text.shape, text.shows_tools, text.role) == (None, False, "user")
    assert "<tools>" in text.system_prompt(TOOLS.schemas, preamble=None, working_dir=None)


def test_a_format_that_the_template_does_not_write_is_text_there(fit):
    fitted = FittedFormat.of("kimi", fit("Qwen3-Coder, by hand").template)
    assert (fitted.shape, fitted.shows_tools, fitted.own) == (None, False, False)


async def test_system_messages_in_mid_conversation_are_the_users_where_the_template_refuses_them(fit):
    fitted = fit("Mistral v11, by hand")
    server = Model(fitted, [DONE], "stop")
    agent = AtroposAgent(server, TOOLS, AgentConfig(), template=fitted.template, tool_format=fitted)
    given = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "c"},
    ]
    await agent.run("d", given)
    assert fitted.template.decode(server.exchanges[0].prompt).endswith("[INST]c[/INST][INST]d[/INST]")


@pytest.mark.parametrize("name", FAMILIES)
async def test_results_of_a_reply_that_is_half_malformed_are_told_with_its_correction(fit, name):
    fitted = fit(name)
    bound = fitted.with_tools(TOOLS.schemas)
    if name in NOTHING_ELSE:
        # There two calls are one text, which is malformed altogether.
        return
    server = Model(fitted, [asks("one"), DONE], "stop")
    spoil = partial(server.turn, opened=False)
    whole = spoil(asks("good")).ids
    broken = spoil(SCENARIOS["malformed"][1]).ids
    template = fitted.template
    text = template.decode(whole[:-1]) + "\n" + template.decode(broken[:-1])
    reply = bound.read(text, first_id=0, thinking_open=False)
    assert reply.problems
    assert bound.message(reply) is None


async def test_a_bare_format_is_text_on_every_template(fit):
    fitted = fit("Qwen3-Coder, by hand")
    server = Model(FittedFormat.text(Hermes(), fitted.template, "user"), [asks("one"), DONE], "stop")
    agent = AtroposAgent(server, TOOLS, AgentConfig(), template=fitted.template)
    result = await agent.run("Go.")
    assert [message["role"] for message in result.messages[:4]] == ["system", "user", "assistant", "user"]
    assert "<tools>" in result.messages[0]["content"]


@pytest.mark.parametrize("name", FAMILIES)
async def test_given_calls_that_the_template_does_not_take_are_text_and_so_are_their_results(fit, name):
    fitted = FittedFormat.text(fit(name).format, fit(name).template, "user")
    tool_calls = [{"id": "call_0", "type": "function", "function": {"name": "say", "arguments": '{"text": "a"}'}}]
    results = [{"role": "tool", "tool_call_id": "call_0", "name": "say", "content": text} for text in ("one", "two")]
    given = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": tool_calls},
        *results,
    ]
    opening = fitted.opening(given)
    assert [message["role"] for message in opening] == ["user", "assistant", "user"]
    assert fitted.with_tools(TOOLS.schemas).format.parse(opening[1]["content"]).calls[0].arguments == {"text": "a"}
    assert fitted.template.prompt(opening)


@pytest.fixture
def unread(smollm2_tokenizer):
    """A template that shows tools and writes calls that no format reads; its tokenizer has tokens of those that are."""
    source = (Path(__file__).parent / "templates" / "unread.jinja").read_text()
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.add_tokens(["<TOOLCALL>", "</TOOLCALL>", "<tool_call>", "</tool_call>"], special_tokens=True)
    return ChatTemplate(with_template(tokenizer, source))


def test_where_no_format_reads_what_a_template_writes_calls_and_tools_are_text(unread):
    fitted = FittedFormat.of("auto", unread)
    assert (type(fitted.format), fitted.own, fitted.shape, fitted.shows_tools) == (Hermes, False, None, False)
    assert unread.shows_tools
    assert fitted.unread == '<TOOLCALL>probe <- {"x": "x"}</TOOLCALL>'
    assert fitted.unread in fitted.warning
    assert "<tools>" in fitted.system_prompt(TOOLS.schemas, preamble=None, working_dir=None)
    with pytest.raises(ValueError, match="<TOOLCALL>probe"):
        FittedFormat.of("template", unread)


@pytest.mark.parametrize("name", ["auto", "hermes", "plain", "deepseek_v31"])
@pytest.mark.parametrize("role", ["auto", "user"])
async def test_the_templates_own_calls_are_malformed_where_nothing_reads_them(unread, name, role):
    fitted = FittedFormat.of(name, unread, role)
    replies = ['<TOOLCALL>say <- {"text": "a"}</TOOLCALL>', "done"]
    agent = AtroposAgent(
        ScriptedServer(replies, unread.tokenizer), TOOLS, AgentConfig(), template=unread, tool_format=fitted
    )
    result = await agent.run("Go.")
    assert (result.counts.malformed_calls, result.final_response) == (1, "done")
    assert result.steps[0].correction


def test_the_templates_own_format_is_taken_where_it_is_asked_for(fit):
    found = fit("Qwen3-Coder, by hand")
    requested = FittedFormat.of("template", found.template)
    assert (type(requested.format), requested.shape is None, requested.warning) == (type(found.format), False, None)
    with pytest.raises(ValueError, match="writes no calls"):
        FittedFormat.of("template", fit("smollm2").template)


def test_a_tokenizers_tokens_alone_choose_no_format(smollm2_tokenizer):
    """DeepSeek V4's still has those of V3."""
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.add_tokens(["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"], special_tokens=True)
    fitted = FittedFormat.of("auto", ChatTemplate(tokenizer))
    assert (type(fitted.format), fitted.own, fitted.unread) == (Hermes, False, "")


def test_a_conversation_about_which_many_formats_ask_is_rendered_once(smollm2_tokenizer, monkeypatch):
    requested = Counter()
    render = ChatTemplate.render

    def counted(template, messages, **options):
        requested[repr((messages, options))] += any("tool_calls" in message for message in messages)
        return render(template, messages, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    FittedFormat.of("auto", ChatTemplate(smollm2_tokenizer))
    assert max(requested.values()) == 1


def test_thinking_without_a_place_in_the_template_is_not_put_in_other_tags(smollm2_tokenizer):
    tokenizer = native_tokenizer(smollm2_tokenizer, "Kimi K3, by hand")
    tokenizer.chat_template = tokenizer.chat_template.replace("(m.reasoning_content or '')", "''")
    fitted = FittedFormat.of("auto", ChatTemplate(tokenizer))
    assert type(fitted.format).__name__ == "KimiK3"
    assert fitted.shape.thinking is None
