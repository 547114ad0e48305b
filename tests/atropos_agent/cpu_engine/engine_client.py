"""A client that talks to an engine's server without a network, and what transformers would say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import torch

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.scheduler import Engine
from atropos_agent.cpu_engine.server import Server


@asynccontextmanager
async def serve(loaded: LoadedModel, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that runs for the length of the block."""
    engine = Engine(loaded.model, loaded.tokenizer, loaded.eos_ids, **options)
    app = Server(engine, "tiny", loaded.path).app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60) as client:
            yield client


async def complete(client: httpx.AsyncClient, prompt: list[int] | str, **fields: Any) -> dict[str, Any]:
    """The first choice of a completion with ids and logprobs."""
    body = {"prompt": prompt, "logprobs": 0, "return_token_ids": True, "max_tokens": 12} | fields
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def full_logprobs(model: Any, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Row i: the distribution of the token that follows ids[: i + 1], from one fresh forward pass."""
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, dim=-1)


def sampled_logprobs(model: Any, choice: dict[str, Any], temperature: float = 1.0) -> list[float]:
    """What a fresh forward pass says of a choice's sampled tokens."""
    prompt, sampled = choice["prompt_token_ids"], choice["token_ids"]
    rows = full_logprobs(model, prompt + sampled, temperature)
    return [float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(sampled)]
