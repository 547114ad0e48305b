"""doctor says which tool format a model has, why, what its template gives up, and how a call looks in ids."""

import sys
from copy import deepcopy
from pathlib import Path

import pytest

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.template import ChatTemplate
from envs.cli.checks import Status
from envs.cli.format_check import examine_format

FAMILIES = Path(__file__).parents[2] / "atropos_agent"


@pytest.fixture
def template(smollm2_tokenizer, monkeypatch):
    monkeypatch.syspath_prepend(FAMILIES)
    from native_families import native_tokenizer

    yield lambda name: ChatTemplate(native_tokenizer(smollm2_tokenizer, name))
    sys.modules.pop("native_families")


def test_the_format_is_named_with_its_reason_and_a_call_is_shown_token_by_token(template):
    mistral = template("Mistral v11, by hand")
    found, call = examine_format(FittedFormat.of("auto", mistral))
    assert found.status is Status.OK
    assert found.text.startswith(
        "mistral_args: the template writes a call as mistral_args reads it; the template shows"
    )
    assert found.data["given_up"] == ["system messages in mid-conversation are written as the user's"]
    pieces = [text for _, text in call.data["tokens"]]
    assert pieces[:3] == ["[TOOL_CALLS]", "look", "[ARGS]"]
    assert pieces[-1] == "[/TOOL_RESULTS]"
    assert [mistral.decode([i]) for i, _ in call.data["tokens"]] == pieces
    assert "[TOOL_CALLS] look [ARGS]" in call.text


def test_what_a_template_does_not_take_is_told(template):
    glm = template("GLM 4.5, by hand")
    single = "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}"
    glm.tokenizer.chat_template = glm.tokenizer.chat_template.replace(
        "{%- for m in messages -%}", "{%- for m in messages -%}" + single, 2
    )
    found, _ = examine_format(FittedFormat.of("auto", ChatTemplate(glm.tokenizer)))
    assert "several calls in one reply stay its text" in found.data["given_up"]


def test_a_format_that_is_text_is_told_too(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    found, call = examine_format(FittedFormat.of("auto", template))
    assert found.data == {
        "name": "hermes",
        "why": "the template writes no calls, and ChatML models are asked for Hermes",
        "tools_by_template": False,
        "calls_by_template": False,
        "given_up": [],
        "unread": "",
    }
    assert "the tools stand in the system prompt; calls are text; results are messages of role user" in found.text
    assert "".join(text for _, text in call.data["tokens"]).startswith("<tool_call>\n")


def test_without_a_template_there_is_no_call_to_show():
    (found,) = examine_format(FittedFormat.of("auto", None))
    assert "the inference server shows no template" in found.text
    assert isinstance(FittedFormat.of("auto", None).format, Hermes)


def test_calls_that_nothing_reads_are_a_note_with_what_the_template_writes(smollm2_tokenizer):
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}{% for c in m.tool_calls or [] %}"
        "{{ '<call>' + c.function.name + '|' + (c.function.arguments | tojson) + '</call>' }}{% endfor %}"
        "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    found, _ = examine_format(FittedFormat.of("auto", ChatTemplate(tokenizer)))
    assert found.status is Status.NOTE
    assert found.data["unread"] == '<call>probe|{"x": "x"}</call>'
    assert found.data["unread"] in found.text
