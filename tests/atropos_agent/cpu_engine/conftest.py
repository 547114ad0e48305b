"""A tiny model, a client of a server around it, and the same model in transformers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import torch
from engine_client import serve
from transformers import AutoModelForCausalLM

from atropos_agent.cpu_engine.model import LoadedModel, load


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny", max_model_len=512)


@pytest.fixture
async def client(tiny: LoadedModel) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(tiny) as client:
        yield client


@pytest.fixture
def reference(tiny: LoadedModel) -> Any:
    """The same model as transformers computes it."""
    return AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32).eval()
