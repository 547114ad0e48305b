"""Requests share a batch and what was computed before, and nobody can tell from the tokens."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
import torch
from engine_client import complete, full_logprobs, sampled_logprobs, serve
from safetensors.torch import save_file
from waiting import until

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.sampling import SamplingParams
from atropos_agent.cpu_engine.scheduler import Engine
from atropos_agent.cpu_engine.server import Server

LONG = [(i * 7919) % 49000 for i in range(300)]


async def metrics(client: httpx.AsyncClient) -> dict[str, float]:
    lines = (await client.get("/metrics")).text.splitlines()
    return {line.partition("{")[0]: float(line.split()[-1]) for line in lines if not line.startswith("#")}


async def test_concurrent_requests_get_what_they_would_get_alone(client: httpx.AsyncClient) -> None:
    prompts = [LONG[start : start + 5 + 37 * i] for i, start in enumerate((0, 11, 23, 5, 60, 100))]
    alone = [await complete(client, prompt, temperature=0, max_tokens=8 + 5 * i) for i, prompt in enumerate(prompts)]
    together = await asyncio.gather(
        *(complete(client, prompt, temperature=0, max_tokens=8 + 5 * i) for i, prompt in enumerate(prompts))
    )
    assert [choice["token_ids"] for choice in together] == [choice["token_ids"] for choice in alone]


async def test_a_conversation_computes_only_its_new_tokens(client: httpx.AsyncClient, reference: Any) -> None:
    prompt = LONG[:200]
    for turn in range(4):
        body = {"prompt": prompt, "max_tokens": 10, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
        answer = (await client.post("/v1/completions", json=body)).json()
        choice = answer["choices"][0]
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        # All of the turn before but the token sampled last, which nothing followed.
        assert cached == (0 if turn == 0 else len(prompt) - 13)
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(sampled_logprobs(reference, choice), abs=1e-4)
        prompt = [*prompt, *choice["token_ids"], *LONG[turn : turn + 12]]


async def test_greedy_output_is_the_same_with_and_without_reuse(tiny: LoadedModel) -> None:
    async with serve(tiny, cache_mb=0) as client:
        fresh = await complete(client, LONG, temperature=0)
    async with serve(tiny) as client:
        await complete(client, LONG[:250])
        reused = await complete(client, LONG, temperature=0)
        assert (await metrics(client))["vllm:prefix_cache_hits_total"] == 250
    assert reused["token_ids"] == fresh["token_ids"]
    assert reused["logprobs"]["token_logprobs"] == pytest.approx(fresh["logprobs"]["token_logprobs"], abs=1e-5)


async def test_a_group_reads_its_prompt_once(client: httpx.AsyncClient) -> None:
    choices = await asyncio.gather(*(complete(client, LONG, max_tokens=4) for _ in range(8)))
    assert len({tuple(choice["token_ids"]) for choice in choices}) > 1
    counts = await metrics(client)
    assert counts["vllm:prefix_cache_queries_total"] == 8 * 300
    assert counts["vllm:prefix_cache_hits_total"] == 7 * 299


async def test_a_request_whose_client_went_away_leaves_the_batch(tiny: LoadedModel) -> None:
    engine = Engine(tiny.model, tiny.tokenizer, tiny.eos_ids)
    app = Server(engine, "tiny", tiny.path).app()
    body = json.dumps({"prompt": LONG[:5], "max_tokens": 500, "ignore_eos": True}).encode()
    left = asyncio.Event()
    sent = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(True)
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
    async with app.router.lifespan_context(app):
        request = asyncio.create_task(app(scope, receive, send))
        await until(lambda: engine.generated_tokens >= 3)
        left.set()
        await asyncio.wait_for(request, 120)
        await until(lambda: engine.running == 0)
        assert engine.generated_tokens < 500


def test_a_lack_of_memory_ends_its_request_alone(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    new_cache = tiny.model.new_cache

    def bounded(capacity: int = 0) -> Any:
        if capacity > 300:
            raise RuntimeError("not enough memory")
        return new_cache(capacity)

    monkeypatch.setattr(tiny.model, "new_cache", bounded)
    engine = Engine(tiny.model, tiny.tokenizer, tiny.eos_ids)
    engine.start()
    try:
        ended: Future[Any] = Future()
        engine.submit(LONG, SamplingParams(max_tokens=1), ended.set_result)
        assert str(ended.result(timeout=30)) == "not enough memory"
        assert len(engine.complete([LONG[:9]], SamplingParams(max_tokens=1))) == 1
    finally:
        engine.stop()


async def test_metrics_count_tokens_and_requests(client: httpx.AsyncClient) -> None:
    work = asyncio.create_task(complete(client, LONG, max_tokens=200, ignore_eos=True))
    seen = set()
    while not work.done():
        seen.add((await metrics(client))["vllm:num_requests_running"])
        await asyncio.sleep(0.005)
    assert 1 in seen
    after = await metrics(client)
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert after["vllm:generation_tokens_total"] == 200
    assert after["vllm:prompt_tokens_total"] == 300


async def test_no_more_sequences_run_than_the_batch_takes(tiny: LoadedModel) -> None:
    async with serve(tiny, max_batch=2) as client:
        work = [
            asyncio.create_task(complete(client, LONG[i : i + 5], max_tokens=40, ignore_eos=True)) for i in range(6)
        ]
        most = 0.0
        while not all(task.done() for task in work):
            most = max(most, (await metrics(client))["vllm:num_requests_running"])
            await asyncio.sleep(0.005)
        assert most == 2
        assert [len((await task)["token_ids"]) for task in work] == [40] * 6


async def test_new_weights_are_used_and_their_version_reported(
    tiny: LoadedModel, tmp_path: Any, reference: Any
) -> None:
    with torch.no_grad():
        reference.model.norm.weight.mul_(-1)
    reference.save_pretrained(tmp_path)
    before = tiny.model._weights
    try:
        async with serve(tiny) as client:
            old = await complete(client, LONG, temperature=0)
            answer = await client.post("/load_weights", json={"path": str(tmp_path), "version": 3})
            assert (
                answer.json() == (await client.get("/weight_version")).json() == {"version": 3, "path": str(tmp_path)}
            )
            new = await complete(client, LONG, temperature=0)
            assert (old["weight_version"], new["weight_version"]) == (0, 3)
            assert new["token_ids"][0] == int(full_logprobs(reference, LONG)[-1].argmax())
            assert new["token_ids"] != old["token_ids"]
            assert (await metrics(client))["vllm:prefix_cache_hits_total"] == 0, "old attention states are not reused"
    finally:
        tiny.model._weights = before


@pytest.mark.parametrize("version", [0, 1])
async def test_a_reply_during_which_the_weights_change_counts_as_the_old_ones(
    tiny: LoadedModel, tmp_path: Any, reference: Any, version: int
) -> None:
    reference.save_pretrained(tmp_path)
    before = tiny.model._weights
    try:
        async with serve(tiny) as client:
            reply = asyncio.create_task(complete(client, LONG, max_tokens=200, ignore_eos=True))
            while not (await metrics(client))["vllm:generation_tokens_total"]:  # noqa: ASYNC110 - another thread counts
                await asyncio.sleep(0.005)
            await client.post("/load_weights", json={"path": str(tmp_path), "version": version})
            assert not reply.done()
            assert (await reply)["weight_version"] == 0
            await complete(client, LONG)
            assert (await metrics(client))["vllm:prefix_cache_hits_total"] == 0, (
                "its attention states are the old ones'"
            )
    finally:
        tiny.model._weights = before


@pytest.mark.parametrize("content", [None, b"not weights"])
async def test_weights_that_cannot_be_read_are_refused(
    client: httpx.AsyncClient, tmp_path: Any, content: bytes | None
) -> None:
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    response = await client.post("/load_weights", json={"path": str(path), "version": 1})
    assert response.status_code == 400
    assert str(path) in response.json()["error"]["message"]
    assert (await complete(client, LONG[:9]))["weight_version"] == 0


async def test_weights_that_are_no_numbers_are_refused(tiny: LoadedModel, tmp_path: Any, reference: Any) -> None:
    with torch.no_grad():
        reference.model.norm.weight[3] = float("nan")
    reference.save_pretrained(tmp_path)
    async with serve(tiny) as client:
        response = await client.post("/load_weights", json={"path": str(tmp_path), "version": 1})
        assert response.status_code == 400
        assert "model.norm.weight holds NaN or infinity" in response.json()["error"]["message"]
        assert (await complete(client, LONG[:9]))["weight_version"] == 0


async def test_weights_that_can_not_be_joined_are_refused_and_the_old_ones_stay(
    tiny: LoadedModel, tmp_path: Any, reference: Any
) -> None:
    weights = {name: tensor.contiguous() for name, tensor in reference.state_dict().items() if name != "lm_head.weight"}
    name = "model.layers.0.self_attn.k_proj.weight"
    weights[name] = weights[name][:, :-1].contiguous()
    save_file(weights, tmp_path / "w.safetensors")
    async with serve(tiny) as client, asyncio.timeout(60):
        response = await client.post("/load_weights", json={"path": str(tmp_path / "w.safetensors"), "version": 1})
        assert (response.status_code, (await client.get("/health")).status_code) == (400, 200)
        assert (await complete(client, LONG[:9]))["weight_version"] == 0


async def test_health_and_models(client: httpx.AsyncClient, tiny: LoadedModel) -> None:
    assert (await client.get("/health")).status_code == 200
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert card["id"] == "tiny"
    assert card["max_model_len"] == 512
    assert card["root"] == str(tiny.path)
    assert (await client.get("/nothing")).status_code == 404


async def test_a_stopped_engine_is_unhealthy_and_answers_503(tiny: LoadedModel) -> None:
    engine = Engine(tiny.model, tiny.tokenizer, tiny.eos_ids)
    app = Server(engine, "tiny", tiny.path).app()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client,
    ):
        work = asyncio.create_task(client.post("/v1/completions", json={"prompt": LONG[:3], "max_tokens": 500}))
        await until(lambda: engine.generated_tokens > 0)
        engine.stop()
        assert (await work).status_code == 503
        assert (await client.get("/health")).status_code == 503
        assert (await client.post("/v1/completions", json={"prompt": [5]})).status_code == 503
