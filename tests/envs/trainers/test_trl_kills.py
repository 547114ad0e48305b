"""A process in which TRL trains is killed again and again: no group is lost, and none is trained on twice."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Program
from scripted_engine import ScriptedEngine
from sums import half_right
from transformers import AutoTokenizer

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.lab import smoke
from envs.running.group import group_outcomes
from envs.trainers.checkpoints import STATE, newest_checkpoint
from envs.trainers.ledger import Ledger

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed"),
]


@pytest.fixture
def model() -> Path:
    """The smoke preset's, for its tokenizer alone: with a large vocabulary a step takes seconds."""
    return smoke.model(DEFAULT_CACHE)


@pytest.fixture
def engine(model: Path) -> Iterator[ScriptedEngine]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    with ScriptedEngine(half_right, tokenizer, root=str(model), delay_s=0.02) as engine:
        yield engine


@pytest.mark.parametrize("budget", [0, 3000], ids=["batches of rows", "batches of tokens"])
async def test_kills_cost_no_group_and_double_none(
    engine: ScriptedEngine, model: Path, tmp_path: Path, budget: int, request: pytest.FixtureRequest
) -> None:
    kills = request.config.getoption("--kills")
    paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    command = [HERE / "sums_with_trl.py", engine.url, tmp_path, model, budget, kills]
    told = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    program = Program([*map(str, command)], stdout=tmp_path / "log", env=told)
    ended = await asyncio.to_thread(program.wait, 3500)
    log = (tmp_path / "log").read_text()
    assert ended == 0, log[-3000:]
    assert log.count("ended with -9") == kills
    checkpoint, ours = newest_checkpoint(tmp_path / "out")
    assert checkpoint is not None
    state = json.loads((Path(checkpoint) / STATE).read_bytes())
    assert state["global_step"] == state["max_steps"], "the last life came to its end"
    trained = Counter(map(tuple, state["stateful_callbacks"]["History"]["attributes"]["rows"]))
    assert set(trained.values()) == {1}, "no row twice"
    found = list(group_outcomes(tmp_path / "run"))
    rows = Counter(name for name, _ in trained)
    whole = {name for name, count in rows.items() if count == 2}
    assert Ledger(ours["trained"]).trained == whole and set(ours["partly"]) == set(rows) - whole
    numbers = {int(name.rpartition("-")[2]) for name in whole}
    assert {outcome.number for outcome in found if outcome.state == "confirmed"} == numbers
    assert {outcome.state for outcome in found} <= {"confirmed", "taken", "working"}, "all others are given again"
    print("\n".join(line for line in log.splitlines() if line.startswith("life")))
    print(
        f"{len(found)} groups: {Counter(outcome.state.value for outcome in found)}; {trained.total()} rows trained on"
    )
