"""Hosted models over each protocol: tools are native, refusals are followed, usage is counted, doctor knows."""

import json
import re
from collections import Counter

import orjson
import pytest
from hosted import Hosted
from sums import Sums

from atropos_agent.engines import chat
from envs import cli
from envs.config import AgentEnvConfig
from envs.records.read import read_rollouts

PROTOCOLS = ("openai", "responses", "anthropic")


@pytest.fixture
def hosted(httpserver, monkeypatch):
    monkeypatch.setattr(chat, "wait_exponential", lambda **_: lambda _state: 0.0)
    return Hosted(httpserver)


def evaluate(hosted, protocol, run_dir, *more):
    options = ["--openai.server_type", protocol, "--openai.base_url", hosted.url, "--openai.model_name", "m"]
    options += ["--openai.api_key", "x", "--env.run_dir", str(run_dir), *more]
    return cli.main(Sums, "evaluate", options)


def refusal(text, param=None):
    return 400, {"error": {"message": text, "type": "invalid_request_error", "param": param}}, {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tools_are_the_endpoints_own(hosted, protocol, tmp_path, capsys):
    assert evaluate(hosted, protocol, tmp_path, "--openai.prices", "2.5,10") == 0
    told = orjson.loads((tmp_path / "eval-0.json").read_bytes())
    assert told["pass_at"]["1"]["mean"] == 1.0
    assert "<tool_call>" not in json.dumps(hosted.asked), "nothing of it is text"
    (usage,) = told["usage"]
    assert (usage["requests"], usage["input"], usage["cached"], usage["output"]) == (6, 600, 240, 60)
    assert usage["cost"] == pytest.approx(6 * (100 * 2.5 + 10 * 10) / 1e6)
    assert "m: 6 requests, 600 input (240 cached) and 60 output tokens, $0.00" in capsys.readouterr().out
    for rollout in read_rollouts(tmp_path):
        step = rollout.result.steps[0]
        assert (step.calls[0].name, step.prompt_tokens, step.completion_tokens) == ("calculator", 100, 10)
        assert [message["role"] for message in rollout.result.messages] == [
            *("system", "user", "assistant", "tool", "assistant")
        ]


class Cut(Hosted):
    """Its first replies to a tool's result are cut off: so many of each rollout."""

    cuts = 2

    def __init__(self, httpserver):
        super().__init__(httpserver)
        self.cut = Counter()

    def _chat(self, body):
        answer, asked = super()._chat(body), json.dumps(body["messages"])
        if body["messages"][-1]["role"] == "tool" and self.cut[asked] < self.cuts:
            self.cut[asked] += 1
            answer["choices"][0] |= {"finish_reason": None}
        return answer


@pytest.mark.parametrize(("cuts", "attempts"), [(2, 1), (3, 2)])
def test_a_reply_that_was_cut_off_costs_its_turn_and_not_the_rollout(httpserver, tmp_path, monkeypatch, cuts, attempts):
    monkeypatch.setattr(Cut, "cuts", cuts)
    hosted = Cut(httpserver)
    assert evaluate(hosted, "openai", tmp_path) == 0
    assert [rollout.result.counts.refused_tokens for rollout in read_rollouts(tmp_path)] == [10 * (cuts % 3)] * 3
    first = [body for body in hosted.asked if len(body["messages"]) == 2]
    assert len(first) == 3 * attempts, "of three tasks"


def test_signed_thinking_goes_back_as_it_came(hosted, tmp_path):
    evaluate(hosted, "anthropic", tmp_path)
    assistant = next(body["messages"][1] for body in hosted.asked if len(body["messages"]) == 3)
    assert [block["type"] for block in assistant["content"]] == ["thinking", "tool_use"]
    assert assistant["content"][0]["signature"] == "sig"


def test_encrypted_reasoning_goes_back_and_nothing_is_stored(hosted, tmp_path):
    evaluate(hosted, "responses", tmp_path)
    later = next(body for body in hosted.asked if len(body["input"]) == 5)
    assert [item.get("type") for item in later["input"][2:]] == ["reasoning", "function_call", "function_call_output"]
    assert later["store"] is False
    assert later["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parameters_that_a_model_refuses_are_left_out_and_named(hosted, protocol, tmp_path, caplog):
    def refuses(body):
        if "temperature" in body:
            return refusal("Unsupported value: 'temperature' does not support 0.0 with this model.", "temperature")
        if "max_tokens" in body and protocol == "openai":
            return refusal("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
        return None

    hosted.refuses = refuses
    assert evaluate(hosted, protocol, tmp_path) == 0
    (usage,) = orjson.loads((tmp_path / "eval-0.json").read_bytes())["usage"]
    assert usage["left_out"] == ["temperature"]
    assert "takes no temperature, so that the model's own default holds" in caplog.text
    names = {name for body in hosted.asked for name in body if name.startswith("max_")}
    limits = {"openai": "max_completion_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}
    assert names == {limits[protocol]}
    assert not {"top_p", "n", "stop"} & {name for body in hosted.asked for name in body}, "nothing neutral is sent"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_only_model_is_asked_where_none_is_named(httpserver, hosted, protocol, tmp_path):
    httpserver.expect_request("/v1/models").respond_with_json({"object": "list", "data": [{"id": "only"}]})
    hosted.refuses = lambda body: None if body["model"] == "only" else refusal("no such model")
    options = ["--openai.server_type", protocol, "--openai.base_url", hosted.url, "--env.run_dir", str(tmp_path)]
    assert cli.main(Sums, "evaluate", options) == 0
    assert orjson.loads((tmp_path / "eval-0.json").read_bytes())["usage"][0]["model"] == "only"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_providers_pause_is_kept_however_often_it_is_asked_for(hosted, protocol, tmp_path):
    hosted.first.extend([(200, None, {}), *[(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})] * 9])
    assert evaluate(hosted, protocol, tmp_path, "--env.attempts", "1", "--env.max_concurrent_rollouts", "1") == 0
    assert orjson.loads((tmp_path / "eval-0.json").read_bytes())["pass_at"]["1"]["mean"] == 1.0


def test_an_endpoint_without_tools_gets_them_as_text(hosted, tmp_path, capsys):
    said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    hosted.refuses = lambda body: refusal(said) if "tools" in body else None
    assert evaluate(hosted, "openai", tmp_path / "native", "--env.attempts", "1") == 2, "before any rollout"
    assert f"{said}; for an endpoint without tools give --env.tool_format hermes" in capsys.readouterr().err
    assert evaluate(hosted, "openai", tmp_path / "text", "--env.tool_format", "hermes") == 0
    assert "<tools>" in hosted.asked[-1]["messages"][0]["content"]


def test_an_endpoint_that_fails_with_tools_alone_ends_the_start(hosted, tmp_path, capsys):
    said = "tools param requires --jinja flag"  # llama.cpp's of before
    hosted.refuses = lambda body: (500, {"error": {"message": said}}, {}) if "tools" in body else None
    assert evaluate(hosted, "openai", tmp_path) == 2
    assert re.search(f"500: {said}; without tools it answered: give --env.tool_format hermes", capsys.readouterr().err)


class Forgetful(Hosted):
    """An endpoint that drops tools without a word, as llama.cpp does for a chat template without a place for them."""

    def _chat(self, body):
        shown = {name: value for name, value in body.items() if name != "tools"}
        return {**super()._chat(shown), "usage": {"prompt_tokens": len(json.dumps(shown["messages"])) // 4}}


@pytest.mark.parametrize("needed", [True, False])
def test_an_endpoint_that_drops_tools_is_refused_where_they_are_needed(
    httpserver, tmp_path, capsys, caplog, monkeypatch, needed
):
    monkeypatch.setattr(AgentEnvConfig, "needs_tools", needed)
    hosted = Forgetful(httpserver)
    assert evaluate(hosted, "openai", tmp_path / "native", "--env.eval_samples", "1") == (2 if needed else 0)
    said = (
        r"does not show tools to the model: a prompt has (\d+) tokens without a tool, and \1 with one.*_format hermes"
    )
    assert re.search(said, capsys.readouterr().err if needed else caplog.text)
    assert evaluate(hosted, "openai", tmp_path / "text", "--env.tool_format", "hermes", "--env.eval_samples", "1") == 0


class Unparsed(Hosted):
    """An endpoint that shows tools and leaves the calls as the model wrote them."""

    def _chat(self, body):
        answer = super()._chat(body)
        message = answer["choices"][0]["message"]
        if calls := message.pop("tool_calls", None):
            message["content"] = f"<tool_call>{json.dumps(calls[0]['function'])}</tool_call>"
        return answer


def test_a_call_that_an_endpoint_left_in_the_text_is_told_once(httpserver, tmp_path, caplog):
    assert evaluate(Unparsed(httpserver), "openai", tmp_path, "--env.eval_samples", "2") == 0
    told = [record.message for record in caplog.records if "left a call in the text of a reply" in record.message]
    assert len(told) == 1


@pytest.mark.parametrize("protocol", ["openai", "responses"])
def test_arguments_that_are_no_json_are_the_models_mistake(hosted, protocol, tmp_path):
    hosted.arguments = lambda expression: "{"
    assert evaluate(hosted, protocol, tmp_path, "--env.max_steps", "2") == 0
    for rollout in read_rollouts(tmp_path):
        assert rollout.result.counts.malformed_calls == 2
        assert "no JSON object" in rollout.result.messages[-1]["content"] or rollout.result.num_steps == 2
    assert all('"tool_call_id"' not in json.dumps(body) for body in hosted.asked), "no result without a call"
