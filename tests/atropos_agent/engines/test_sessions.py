"""A rollout's requests bear one name, by which a router in front of replicas keeps them on one of them."""

from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.protocols import SGLangServer
from atropos_agent.engines.route import Route
from atropos_agent.engines.sessions import HEADERS
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from envs.options import EngineConfig

CALL = "<tool_call>\n{broken\n</tool_call>"
"""A reply after which the conversation goes on."""


@asynccontextmanager
async def replicas(answer, *, hands_out=False):
    """A router by X-Session-ID, or one that hands out its own token as llm-d's does, in front of two replicas.

    answer: makes an answer's body of a request's. Yields the URL, and the headers of all requests by their replica."""
    seen = defaultdict(list)

    async def handle(request):
        body = await request.json()
        if hands_out:
            chosen = request.headers.get("x-session-token") or f"replica-{len(seen)}"
        else:
            chosen = f"replica-{hash(request.headers['X-Session-ID']) % 2}"
        seen[chosen].append(request.headers)
        return web.json_response(answer(body), headers={"X-Session-Token": chosen} if hands_out else {})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/{rest:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    finally:
        await runner.cleanup()


def completions_of(template):
    ids = [*template.encode(CALL, continues=True), template.close_id]

    def answer(body):
        choice = {"token_ids": ids, "prompt_token_ids": body["prompt"], "finish_reason": "stop"}
        return {"choices": [choice | {"logprobs": {"token_logprobs": [-0.5] * len(ids)}}]}

    return answer


def generated_by(template):
    ids = [*template.encode(CALL, continues=True), template.close_id]

    def answer(body):
        logprobs = [[-0.5, token, None] for token in ids]
        prompt = [[None, token, None] for token in body["input_ids"]]
        meta = {"prompt_tokens": len(prompt), "input_token_logprobs": prompt, "output_token_logprobs": logprobs}
        return {"text": CALL, "meta_info": meta | {"finish_reason": {"type": "stop"}}}

    return answer


async def converse(kind, url, template, **options):
    """Three turns of one rollout, by a route of its own."""
    server = kind(EngineConfig(base_url=url, model_name="m", **options))
    try:
        agent = AtroposAgent(Route([server]), config=AgentConfig(max_steps=3), template=template)
        assert len((await agent.run("Go.")).steps) == 3
    finally:
        await server.close()


@pytest.mark.parametrize(("kind", "answers"), [(CompletionsServer, completions_of), (SGLangServer, generated_by)])
async def test_a_rollout_stays_on_one_replica_and_each_has_a_name_of_its_own(smollm2_tokenizer, kind, answers):
    template = ChatTemplate(smollm2_tokenizer)
    async with replicas(answers(template)) as (url, seen):
        for _ in range(8):
            await converse(kind, url, template)
    names = [headers["X-Session-ID"] for found in seen.values() for headers in found]
    assert len(names) == 24
    assert len(set(names)) == 8
    assert all(len(found) % 3 == 0 for found in seen.values())
    assert all(
        headers[name] == headers["X-Session-ID"] for found in seen.values() for headers in found for name in HEADERS
    )


async def test_what_a_router_calls_the_replica_is_sent_back_to_it(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    async with replicas(completions_of(template), hands_out=True) as (url, seen):
        for _ in range(4):
            await converse(CompletionsServer, url, template)
    assert {replica: len(found) for replica, found in seen.items()} == {f"replica-{n}": 3 for n in range(4)}
    assert "x-session-token" not in seen["replica-0"][0]


async def test_the_headers_are_an_option(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    async with replicas(completions_of(template), hands_out=True) as (url, seen):
        await converse(CompletionsServer, url, template, session_headers=["X-Dynamo-Session-ID"])
    first, second, third = seen["replica-0"]
    assert first["X-Dynamo-Session-ID"] == second["X-Dynamo-Session-ID"] == third["X-Dynamo-Session-ID"]
    assert not any(name in first for name in HEADERS)


def test_a_name_that_is_no_headers_is_refused():
    with pytest.raises(ValueError, match="'X Session' is no name of a header"):
        EngineConfig(session_headers=["X Session"])
    with pytest.raises(ValueError, match="'X Session' is no name of a header"):
        EngineConfig(headers={"X Session": "a"})
    with pytest.raises(ValueError, match="the value of A has line ends"):
        EngineConfig(headers={"A": "a\nB: c"})
