"""verifiers' server, or its client, is killed again and again: no episode is lost, and none is trained on twice."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import ScriptedEngine
from sums import half_right

from atropos_agent.types import IGNORED
from envs.records.read import read_rollouts
from envs.running.group import group_outcomes

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed"),
]


@pytest.fixture
def engine(smollm2_tokenizer: Any) -> Iterator[ScriptedEngine]:
    with ScriptedEngine(half_right, smollm2_tokenizer, delay_s=0.1) as engine:
        yield engine


async def test_kills_of_either_side_cost_no_episode_and_double_none(
    engine: ScriptedEngine, tokenizer_folder: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = request.config.getoption("--kills")
    paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    command = [sys.executable, HERE / "sums_with_verifiers.py", engine.url, tmp_path, tokenizer_folder, str(kills)]
    told = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "log").open("wb") as log:
        program = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=told)
        ended = await program.wait()
    said = (tmp_path / "log").read_text()
    assert ended == 0, said[-3000:]
    assert said.count("ended with -9") == kills
    trained = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    seats = Counter(tuple(line["seat"]) for line in trained)
    assert set(seats) == {(task, number) for task in range(6) for number in range(2 * kills)}, "none is lost"
    assert set(seats.values()) == {1}, "and none is trained on twice"
    assert set(Counter(line["rollout"] for line in trained).values()) == {1}
    (run,) = (tmp_path / "runs").iterdir()
    saved = {rollout.id: rollout for rollout in read_rollouts(run)}
    for line in trained:
        rows = saved[line["rollout"]].result.segments
        for (tokens, sampled, _), row in zip(line["rows"], rows, strict=True):
            assert tokens == list(row.tokens)
            assert sampled == [mask != IGNORED for mask in row.masked_tokens]
    states = Counter(outcome.state for outcome in group_outcomes(run))
    assert states["confirmed"] >= len(trained), "an episode may be made and get lost on its way, and is asked for again"
    print("\n".join(line for line in said.splitlines() if "ended with" in line))
    print(f"{len(trained)} episodes trained on; groups of the server's run: {dict(states)}")
