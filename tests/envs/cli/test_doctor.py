"""doctor: right engines pass, and each way in which training would be wrong is named."""

import asyncio
import json
from copy import deepcopy

import pytest
from certificates import certificate, wrong
from scripted_engine import ScriptedEngine

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import EngineError
from envs.cli.checks import Status
from envs.cli.doctor import TASKS, examine_history, examine_rows, examine_scripted, examine_template
from envs.cli.program import doctor
from envs.config import AgentEnvConfig
from envs.swe.program import PROGRAM


def text(template):
    """Hermes as text altogether."""
    return FittedFormat.text(Hermes(), template, "user")


class FaultyEngine(ScriptedEngine):
    """Changes each choice of its answers."""

    change = staticmethod(lambda choice: None)

    async def _completions(self, request):
        response = await super()._completions(request)
        body = json.loads(response.body)
        for choice in body["choices"]:
            # Only what was asked by ids: a question in words is about the tokenizer.
            if not isinstance((await request.json())["prompt"], str):
                self.change(choice)
        return type(response)(body)


@pytest.fixture
def engine(smollm2_tokenizer):
    with FaultyEngine(lambda prompt: "one, two", smollm2_tokenizer) as engine:
        yield engine


async def test_an_engine_that_is_right_gets_its_certificate(engine, tokenizer_folder):
    found = await certificate(engine, tokenizer_folder)
    assert found.ok, found.render()
    names = [check.name for check in found.checks]
    assert names[:4] == ["inference server", "tokenizer", "template", "tool format"]
    assert names[4:7] == ["a call", "history", "scripted rows"]
    assert names[7:] == ["stop token", "rows", "logprobs", "sampling", "trainer API"]
    assert json.loads(json.dumps(found.to_json()))["ok"]


async def test_what_cuts_tokens_off_the_distribution_is_wrong_for_training(engine, tokenizer_folder):
    found = await certificate(engine, tokenizer_folder, top_p=0.8, eval_top_k=20)
    assert "for training: top_p 0.8 cuts unlikely tokens off" in wrong(found)["sampling"]


def drop_stop(choice):
    choice["token_ids"].pop()
    choice["logprobs"]["token_logprobs"].pop()


async def test_a_withheld_stop_token_is_told_and_rows_stay_right(engine, tokenizer_folder):
    engine.change = drop_stop
    found = await certificate(engine, tokenizer_folder)
    assert found.ok
    (check,) = [check for check in found.checks if check.name == "stop token"]
    assert "withheld in 9 of 9" in check.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["prompt_token_ids"].insert(7, 5), "encodes prompts again: place 7"),
        (lambda c: c.pop("prompt_token_ids"), "does not say which prompt ids"),
        (lambda c: c.pop("token_ids"), "without token ids"),
        (lambda c: c.pop("logprobs"), "no logprobs"),
        (lambda c: c["logprobs"]["token_logprobs"].pop(), "ids but"),
        (lambda c: c["logprobs"].update(token_logprobs=[None] * len(c["token_ids"])), "returned None as the logprob"),
    ],
    ids=["re-tokenised", "no prompt ids", "no ids", "no logprobs", "a logprob too few", "empty logprobs"],
)
async def test_an_engine_that_can_not_be_trained_on_is_refused_with_what_differs(
    engine, tokenizer_folder, change, said
):
    engine.change = change
    found = await certificate(engine, tokenizer_folder)
    assert not found.ok
    assert said in wrong(found)["rows"]


class OneRefusal:
    """A server that refuses its first request, and answers no other."""

    asked = under_way = 0

    async def tokens_and_logprobs_completion(self, **_):
        self.asked += 1
        self.under_way += 1
        try:
            await asyncio.sleep(0.01 if self.asked == 1 else 60)
            raise EngineError("refused")
        finally:
            self.under_way -= 1


async def test_after_a_refusal_no_other_request_goes_on_to_the_server_that_is_closed_then(smollm2_tokenizer):
    server = OneRefusal()
    rows = examine_rows(server, text(ChatTemplate(smollm2_tokenizer)), AgentEnvConfig())
    assert [check.text async for check in rows] == ["refused"]
    assert server.asked == len(TASKS)
    assert not server.under_way


async def test_an_engine_without_chat_is_no_hosted_model(engine, tokenizer_folder):
    found = await certificate(engine, tokenizer_folder, server_type="openai")
    assert "answered 404" in wrong(found)["inference server"]


async def test_another_tokenizer_is_shown_with_the_first_token_that_differs(engine, tokenizer_folder, tmp_path):
    folder = tmp_path / "other"
    engine.template.tokenizer.__class__.from_pretrained(tokenizer_folder).save_pretrained(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["merges"] = content["model"]["merges"][:2000]
    file.write_text(json.dumps(content))
    found = await certificate(engine, str(folder))
    assert "instead of" in wrong(found)["tokenizer"]


async def test_a_tool_role_that_the_template_drops_is_wrong(smollm2_tokenizer):
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages if m['role'] != 'tool' %}<|im_start|>{{ m['role'] }}\n"
        "{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    template = ChatTemplate(tokenizer)
    (check,) = examine_template(template)
    assert check.data["trims"]
    assert check.data["opens_thinking"]
    with pytest.raises(ValueError, match="takes no messages of that role"):
        FittedFormat.of("hermes", template, "tool")


async def test_prompts_that_are_not_the_templates_own_are_told(smollm2_tokenizer):
    tokenizer = deepcopy(smollm2_tokenizer)
    assert (await examine_scripted(text(ChatTemplate(tokenizer)))).status is Status.OK
    tokenizer.chat_template = (
        "{% for m in messages %}{% if loop.first or loop.revindex <= 9 %}"
        "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    check = await examine_scripted(text(ChatTemplate(tokenizer)))
    assert check.status is Status.NOTE
    assert "in messages (" in check.text
    assert check.data["drifts"]


def test_options_of_the_template_reach_it_and_folding_is_advised_where_it_helps(smollm2_tokenizer):
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.chat_template = (
        "{{ greeting }}{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
        "{% set ns.system = m['content'] %}{% else %}<|im_start|>{{ m['role'] }}\n"
        "{{ (ns.system if loop.last else '') + m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = AgentEnvConfig(chat_template_kwargs={"greeting": "Hello"})
    assert config.chat_template(tokenizer).render([{"role": "user", "content": "x"}]).startswith("Hello<|im_start|>")
    history = examine_history(text(config.chat_template(tokenizer)))
    assert history.status is Status.NOTE
    assert "plain replies and replies with <think> with --env.fold_system=true" in history.text
    folded = AgentEnvConfig(fold_system=True).chat_template(tokenizer)
    assert examine_history(text(folded)).status is Status.OK


def test_the_command_ends_with_1_where_there_is_no_engine_and_with_2_for_wrong_options(capsys):
    assert doctor(PROGRAM, ["--json", "--openai.base_url", "http://127.0.0.1:9/v1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert "no inference server answers" in found["checks"][0]["text"]
    assert doctor(PROGRAM, ["--env.nonsense", "1"]) == 2
