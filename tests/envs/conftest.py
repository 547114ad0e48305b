"""Fixtures of the environment's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from run_api import RunAPI
from samples import HOSTILE, rollout, task
from scripted_engine import ScriptedEngine
from shown_runs import evaluated, indexed, make_run
from sums import Sums, half_right

from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from envs.types import Seat

ANSI = "\x1b[31mred\x1b[0m \x00 \x07 \u202egnihtemos\u202c"


@pytest.fixture
def run_api(tmp_path: Path) -> Iterator[RunAPI]:
    """A fresh trainer API that no trainer has registered with."""
    api = RunAPI(tmp_path / "run-api.log")
    api.start()
    yield api
    api.stop()


@pytest.fixture(scope="session")
def tokenizer_folder(smollm2_tokenizer, tmp_path_factory):
    """A folder with a tokenizer. It is read once, and so is the empty one that environments write for their base class:
    for each of some hundred environments they would take 0.2 s of a processor. Each environment has its own tokenizer,
    but for what the library behind it never changes."""
    from transformers import AutoTokenizer

    from envs.running import starts

    folder = tmp_path_factory.mktemp("tokenizer")
    smollm2_tokenizer.save_pretrained(folder)
    read, digest = AutoTokenizer.from_pretrained, starts.digest_of_tokenizer
    known, digests = {}, {}

    def read_once(name, **options):
        place = Path(name)
        if not (place == folder or place.name.startswith("tmp")):
            return read(name, **options)
        asked = (*sorted(options.items()), *(path.read_bytes() for path in sorted(place.iterdir())))
        if asked not in known:
            known[asked] = read(name, **options)
        one = known[asked]
        return deepcopy(one, {id(one.backend_tokenizer): one.backend_tokenizer})

    def digest_once(tokenizer):
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not any(backend is one.backend_tokenizer for one in known.values()):
            return digest(tokenizer)
        if id(backend) not in digests:
            digests[id(backend)] = digest(tokenizer)
        return digests[id(backend)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoTokenizer, "from_pretrained", read_once)
        patch.setattr(starts, "digest_of_tokenizer", digest_once)
        yield str(folder)


@pytest.fixture
def policy():
    """The inference server's, by prompt; a module may have another."""
    return half_right


@pytest.fixture
def engine(smollm2_tokenizer, policy):
    with ScriptedEngine(policy, smollm2_tokenizer) as engine:
        yield engine


@pytest.fixture
def make_env(engine, tokenizer_folder, tmp_path):
    def make(cls=Sums, **options):
        values = {"group_size": 4, "tokenizer_name": tokenizer_folder, "run_dir": tmp_path / "run", **options}
        return cls(AgentEnvConfig(**values), [EngineConfig(base_url=engine.url, model_name="scripted")])

    return make


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four groups and two rollouts of an evaluation, indexed."""
    also = [evaluated("e-0", True), evaluated("e-1", False)]
    directory = asyncio.run(make_run(tmp_path_factory.mktemp("shown") / "run", also=also))
    indexed(directory)
    return directory


@pytest.fixture(scope="session")
def hostile_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rollouts are full of markup, control characters and a line of 10 MB."""
    text = "\n".join([*HOSTILE, ANSI])
    names = [*HOSTILE, ANSI]
    also = [
        rollout(name, of=task(name, tags=(name,), band=name), reply=text, command=text, output=text, explanation=text)
        for name in names
    ]
    long = rollout("long", output="x" * 10_000_000, seat=Seat(step=1))
    also.append(replace(long, result=replace(long.result, segments=())))
    directory = asyncio.run(make_run(tmp_path_factory.mktemp("hostile") / "run", groups=(), also=also))
    indexed(directory)
    return directory
