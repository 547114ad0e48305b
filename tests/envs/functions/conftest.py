"""Runs of functions with an inference server whose replies are written down."""

from contextlib import AsyncExitStack

import pytest

from envs.functions.config import FunctionConfig
from envs.functions.running import run
from envs.options import EngineConfig
from envs.types import Seat


@pytest.fixture(autouse=True)
def one_tokenizer(monkeypatch, smollm2_tokenizer):
    """Load the tokenizer once: it takes most of a run's time."""
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: smollm2_tokenizer)


@pytest.fixture
def attempted(engine, tokenizer_folder, tmp_path):
    """Run a function on tasks, and return the rollouts that were made."""

    async def make(agent, tasks=("What is 2 + 2?",), *, says=None, **options):
        if says is not None:
            engine.policy = says
        values = {"attempts": 1, "tokenizer_name": tokenizer_folder, "run_dir": tmp_path / "run", **options}
        return await run(agent, tasks, llm=engine.url, progress=False, **values)

    return make


@pytest.fixture
def make_function(engine, tokenizer_folder, tmp_path):
    """Make the environment that a function is."""

    def make(function, *, says=lambda prompt: "four", **options):
        engine.policy = says
        config = FunctionConfig(tokenizer_name=tokenizer_folder, run_dir=tmp_path / "run", **options)
        return function.environment(config, [EngineConfig(base_url=engine.url, model_name="scripted")])

    return make


@pytest.fixture
def attempt():
    """Make one rollout of an environment's first task."""

    async def make(env, seat=None):
        async with AsyncExitStack() as resources:
            for server in env.servers:
                resources.push_async_callback(server.close)
            await env.setup(resources)
            return await env.attempt(env.tasks()[0][0], seat or Seat())

    return make
