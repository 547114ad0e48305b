"""Engines by token ids: what each protocol sends, what it reads, and what it refuses."""

import json

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pytest_httpserver import HTTPServer
from werkzeug import Response

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.errors import ContextOverflow, OddAnswer
from atropos_agent.engines.protocols import GenerateServer, SGLangServer
from atropos_agent.engines.replies import Defect, UnsoundReply
from atropos_agent.tokens.record import problems
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import EngineError, TokenMismatch
from tools.base import ToolRegistry

CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


async def look() -> str:
    """Look."""
    return "a tree"


def vllm(prompt, ids, first):
    choice = {"token_ids": ids, "prompt_token_ids": prompt, "finish_reason": "stop", "weight_version": 3}
    return {"choices": [choice | {"logprobs": {"token_logprobs": [-0.5] * len(ids)}}]}


def sglang(prompt, ids, first):
    meta = {
        "prompt_tokens": len(prompt),
        "finish_reason": {"type": "stop", "matched": 2},
        "output_token_logprobs": [[-0.5, i, None] for i in ids],
        "weight_version": "3",
    }
    if first:
        meta["input_token_logprobs"] = [[None, prompt[0], None], *[[-1.0, i, None] for i in prompt[1:]]]
    return {"text": "…", "output_ids": ids, "meta_info": meta}


def generate(prompt, ids, first):
    return {
        "finish_reasons": ["stop"],
        "logprobs": [[[{str(i): -0.5}] for i in ids]],
        "prompt_token_ids": prompt,
        "token_ids": [ids],
        "text": ["…"],
    }


def mistype(triples):
    """Make numbers with a fraction of the ids in SGLang's triples."""
    for triple in triples:
        triple[1] += 0.5


PROTOCOLS = {
    "vllm": (CompletionsServer, "/v1/completions", vllm, lambda body: body["prompt"]),
    "sglang": (SGLangServer, "/generate", sglang, lambda body: body["input_ids"]),
    "atropos": (GenerateServer, "/generate", generate, lambda body: body["prompt"]["prompt_token_ids"]),
}


class Engine:
    """An engine over HTTP that speaks one of the protocols; `change` spoils its answers."""

    def __init__(self, httpserver: HTTPServer, protocol, tokenizer, change=lambda answer: None):
        self.cls, path, self.answer, self.prompt_of = PROTOCOLS[protocol]
        self.template = ChatTemplate(tokenizer)
        self.replies = [CALL, "A tree."]
        self.bodies = []
        self.change = change
        httpserver.expect_request(path, method="POST").respond_with_handler(self.handle)
        name = "sglang" if protocol == "sglang" else "vllm"
        config = APIServerConfig(base_url=httpserver.url_for("/v1"), model_name="m", server_type=name, api_key="x")
        self.server = self.cls(config)

    def handle(self, request):
        body = json.loads(request.data)
        ids = [*self.template.encode(self.replies[len(self.bodies)], continues=True), self.template.close_id]
        answer = self.answer(self.prompt_of(body), ids, not self.bodies)
        self.bodies.append(body)
        self.change(answer)
        return Response(json.dumps(answer), content_type="application/json")

    async def rollout(self):
        try:
            return await AtroposAgent(self.server, ToolRegistry([look]), template=self.template).run("What is there?")
        finally:
            await self.server.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_ids_go_both_ways(httpserver, tokenizer, protocol):
    engine = Engine(httpserver, protocol, tokenizer)
    result = await engine.rollout()
    assert result.final_response == "A tree."
    (row,) = result.segments
    assert problems(result.segments, result.record) == [None]
    assert list(row.tokens[: len(engine.prompt_of(engine.bodies[1]))]) == engine.prompt_of(engine.bodies[1])
    assert row.policy_version == (None if protocol == "atropos" else 3)
    assert [step.policy_version for step in result.steps] == [row.policy_version] * 2


async def test_sglang_repeats_the_prompt_only_once_because_that_costs_its_cache(httpserver, tokenizer):
    engine = Engine(httpserver, "sglang", tokenizer)
    await engine.rollout()
    assert [body["logprob_start_len"] for body in engine.bodies] == [0, -1]
    assert engine.bodies[0]["sampling_params"]["max_new_tokens"] > 0
    assert "max_tokens" not in engine.bodies[0]["sampling_params"]


@pytest.mark.parametrize(
    ("protocol", "change", "expected"),
    [
        ("vllm", lambda a: a["choices"][0]["prompt_token_ids"].insert(3, 7), "place 3"),
        ("vllm", lambda a: a["choices"][0].pop("prompt_token_ids"), "which prompt ids"),
        ("vllm", lambda a: a["choices"][0].pop("token_ids"), "without token ids"),
        ("vllm", lambda a: a["choices"][0].update(logprobs=None), "no logprobs"),
        ("sglang", lambda a: a["meta_info"].update(prompt_tokens=3), "was given 3 ids"),
        ("sglang", lambda a: a["meta_info"].update(prompt_tokens="3" * 9999), "given '3{100,200} ids"),
        ("sglang", lambda a: a["meta_info"]["input_token_logprobs"].reverse(), "another prompt"),
        ("sglang", lambda a: a["meta_info"].pop("output_token_logprobs"), "no logprobs"),
        ("sglang", lambda a: a["output_ids"].reverse(), "other ids than it sampled"),
        ("atropos", lambda a: a["prompt_token_ids"].pop(), "another prompt"),
        ("atropos", lambda a: a.pop("logprobs"), "no logprobs"),
        ("atropos", lambda a: a.pop("token_ids"), "no token ids"),
        ("atropos", lambda a: a["token_ids"][0].reverse(), "other ids than it sampled"),
        ("atropos", lambda a: a["logprobs"][0][0][0].clear(), "other ids than it sampled"),
    ],
)
async def test_what_can_not_be_trained_on_is_refused_on_the_first_reply(
    httpserver, tokenizer, protocol, change, expected
):
    engine = Engine(httpserver, protocol, tokenizer, change)
    with pytest.raises(TokenMismatch, match=expected):
        await engine.rollout()
    assert len(engine.bodies) == 1


@pytest.mark.parametrize(
    ("protocol", "change", "defect"),
    [
        ("vllm", lambda a: a["choices"].clear(), Defect.MISSING),
        ("vllm", lambda a: a["choices"].append(a["choices"][0]), Defect.SEVERAL),
        ("vllm", lambda a: a["choices"][0].update(finish_reason="content_filter"), Defect.FILTERED),
        ("vllm", lambda a: a["choices"][0].update(token_ids=[], logprobs=None), Defect.EMPTY),
        ("sglang", lambda a: a["output_ids"].clear() or a["meta_info"]["output_token_logprobs"].clear(), Defect.EMPTY),
        (
            "sglang",
            lambda a: a.pop("output_ids") and mistype(a["meta_info"]["output_token_logprobs"]),
            Defect.UNKNOWN_IDS,
        ),
        ("atropos", lambda a: a["finish_reasons"].__setitem__(0, "content_filter"), Defect.FILTERED),
        (
            "atropos",
            lambda a: [a[name].clear() for name in ("token_ids", "logprobs", "finish_reasons")],
            Defect.MISSING,
        ),
    ],
)
async def test_unsound_replies_are_named_in_every_protocol(httpserver, tokenizer, protocol, change, defect):
    engine = Engine(httpserver, protocol, tokenizer, change)
    with pytest.raises(UnsoundReply) as caught:
        await engine.rollout()
    assert caught.value.defect is defect
    assert len(engine.bodies) == 1


async def test_a_reply_without_a_reason_for_its_end_is_odd(httpserver, tokenizer):
    engine = Engine(httpserver, "atropos", tokenizer, lambda answer: answer["finish_reasons"].clear())
    with pytest.raises(OddAnswer, match="no completion"):
        await engine.server.once(input_ids=[1], max_tokens=40, n=1)
    await engine.server.close()


async def test_sglangs_abort_says_what_http_would(httpserver, tokenizer):
    message = "The input (4000 tokens) is longer than the model's context length (2048 tokens)."
    reason = {"type": "abort", "message": message, "status_code": 400}
    engine = Engine(httpserver, "sglang", tokenizer, lambda a: a["meta_info"].update(finish_reason=reason))
    with pytest.raises(ContextOverflow):
        await engine.server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=5)
    reason.update(message="no such option")
    with pytest.raises(EngineError, match="no such option"):
        await engine.server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=5)
    assert len(engine.bodies) == 2
    await engine.server.close()


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 2048 tokens.",
        "The input (4000 tokens) is longer than the model's context length (2048 tokens).",
        "The decoder prompt (length 4000) is longer than the maximum model length of 2048.",
        "the request exceeds the available context size",
    ],
)
async def test_a_full_context_window_is_told_from_other_refusals(httpserver, tokenizer, message):
    engine = Engine(httpserver, "vllm", tokenizer)
    httpserver.clear()
    httpserver.expect_request("/v1/completions").respond_with_json({"error": {"message": message}}, status=400)
    with pytest.raises(ContextOverflow):
        await engine.server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=5)
    await engine.server.close()
