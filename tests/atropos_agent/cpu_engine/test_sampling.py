"""Tokens are drawn from the distribution that was asked for, and reported with its logprobs."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import httpx
import pytest
from engine_client import complete, full_logprobs, sampled_logprobs, serve

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.sampling import LogprobsMode

PROMPT = [1, 4093, 198, 504, 2365, 6354]


async def test_greedy_takes_what_a_fresh_forward_pass_finds_likeliest(
    client: httpx.AsyncClient, reference: Any
) -> None:
    choice = await complete(client, PROMPT, temperature=0, ignore_eos=True, max_tokens=20)
    ids = PROMPT + choice["token_ids"]
    likeliest = full_logprobs(reference, ids).argmax(-1).tolist()
    assert choice["token_ids"] == likeliest[len(PROMPT) - 1 : -1]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
async def test_logprobs_are_those_of_the_sampling_distribution(
    client: httpx.AsyncClient, reference: Any, temperature: float
) -> None:
    choice = await complete(client, PROMPT, temperature=temperature, max_tokens=30, ignore_eos=True)
    expected = sampled_logprobs(reference, choice, temperature)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)


async def test_raw_logprobs_ignore_the_temperature(tiny: LoadedModel, reference: Any) -> None:
    async with serve(tiny, logprobs_mode=LogprobsMode.RAW) as client:
        choice = await complete(client, PROMPT, temperature=0.5, max_tokens=30, ignore_eos=True)
    expected = sampled_logprobs(reference, choice)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)


async def test_top_p_samples_from_the_nucleus_and_renormalises(client: httpx.AsyncClient, reference: Any) -> None:
    choice = await complete(client, PROMPT, top_p=0.3, max_tokens=40, ignore_eos=True)
    rows = full_logprobs(reference, PROMPT + choice["token_ids"]).exp()[len(PROMPT) - 1 :]
    for row, token, logprob in zip(rows, choice["token_ids"], choice["logprobs"]["token_logprobs"], strict=False):
        values, ids = row.sort(descending=True)
        size = int((values.cumsum(0) < 0.3).sum()) + 1
        assert token in ids[:size].tolist()
        assert logprob == pytest.approx(math.log(float(row[token]) / float(values[:size].sum())), abs=1e-3)


async def test_top_k_one_is_greedy(client: httpx.AsyncClient) -> None:
    greedy = await complete(client, PROMPT, temperature=0)
    assert (await complete(client, PROMPT, top_k=1))["token_ids"] == greedy["token_ids"]


async def test_min_p_of_one_is_greedy_and_a_small_one_keeps_what_is_likely(
    client: httpx.AsyncClient, reference: Any
) -> None:
    greedy = await complete(client, PROMPT, temperature=0)
    assert (await complete(client, PROMPT, min_p=1.0))["token_ids"] == greedy["token_ids"]
    choices = [await complete(client, PROMPT, min_p=0.5, max_tokens=1, seed=seed) for seed in range(8)]
    first = full_logprobs(reference, PROMPT)[-1]
    for choice in choices:
        assert float(first[choice["token_ids"][0]]) >= float(first.max()) + math.log(0.5) - 1e-3


async def test_a_seed_repeats_a_reply_whatever_else_runs(client: httpx.AsyncClient) -> None:
    alone = await complete(client, PROMPT, seed=7, max_tokens=24)
    first, *_ = await asyncio.gather(
        complete(client, PROMPT, seed=7, max_tokens=24),
        *(complete(client, [*PROMPT, i], max_tokens=24) for i in range(5)),
    )
    other = await complete(client, PROMPT, seed=8, max_tokens=24)
    assert first["token_ids"] == alone["token_ids"] != other["token_ids"]


async def test_sampling_follows_the_distribution(client: httpx.AsyncClient, reference: Any) -> None:
    body = {"prompt": PROMPT, "n": 128, "max_tokens": 1, "top_k": 2, "return_token_ids": True, "seed": 1}
    choices = (await client.post("/v1/completions", json=body)).json()["choices"]
    values, ids = full_logprobs(reference, PROMPT)[-1].topk(2)
    expected = float(values.softmax(0)[0])
    share = sum(choice["token_ids"] == [int(ids[0])] for choice in choices) / 128
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 128))
