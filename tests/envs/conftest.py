"""Fixtures of the environment's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_api import RunAPI
from scripted_engine import ScriptedEngine
from sums import Sums, half_right

from envs.config import AgentEnvConfig
from envs.options import EngineConfig


@pytest.fixture
def run_api(tmp_path: Path) -> Iterator[RunAPI]:
    """A fresh trainer API that no trainer has registered with."""
    api = RunAPI(tmp_path / "run-api.log")
    api.start()
    yield api
    api.stop()


@pytest.fixture(scope="session")
def tokenizer_folder(smollm2_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    smollm2_tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(half_right, smollm2_tokenizer) as engine:
        yield engine


@pytest.fixture
def make_env(engine, tokenizer_folder, tmp_path):
    def make(cls=Sums, **options):
        values = {"group_size": 4, "tokenizer_name": tokenizer_folder, "run_dir": tmp_path / "run", **options}
        return cls(AgentEnvConfig(**values), [EngineConfig(base_url=engine.url, model_name="scripted")])

    return make
