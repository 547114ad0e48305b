"""Evaluations: what is counted, what is left out, what is kept."""

import asyncio
import json

import pytest
from samples import rollout

from envs.config import AgentEnvConfig
from envs.records.atif import Place
from envs.running.evaluation import evaluate
from envs.types import InfraError, Task

SOLVED, UNSOLVED, BROKEN = (Task(name, "Do it.") for name in ("solved", "unsolved", "broken"))


class Scripted:
    """Makes rollouts that solve one task; another fails by our fault."""

    def __init__(self, error=None):
        self.error = error or InfraError("sandbox", "it is gone")
        self.seats = []

    async def make(self, task, seat):
        self.seats.append(seat)
        if task is BROKEN:
            raise self.error
        return rollout(of=task, reward=float(task is SOLVED)), Place(0, 0, 0)


async def test_every_task_is_attempted_as_often_as_asked_and_our_failures_are_left_out(tmp_path):
    made = Scripted()
    config = AgentEnvConfig(eval_samples=3, eval_ks=[1])
    summary = await evaluate(made, [SOLVED, UNSOLVED, BROKEN], config, tmp_path, step=7)
    assert summary.pass_at[1].mean == summary.reward.mean == 0.5
    assert list(summary.unsampled) == ["broken"]
    assert len(made.seats) == 9
    assert all(seat.evaluating and seat.step == 7 for seat in made.seats)
    assert json.loads((tmp_path / "eval-7.json").read_bytes())["pass_at"]["1"]["mean"] == 0.5


async def test_a_cancelled_rollout_is_left_out_and_a_mistake_of_ours_is_raised(tmp_path):
    config = AgentEnvConfig(eval_samples=1, eval_ks=[1])
    summary = await evaluate(Scripted(asyncio.CancelledError()), [SOLVED, BROKEN], config, tmp_path)
    assert summary.reward.mean == 1.0
    with pytest.raises(KeyError):
        await evaluate(Scripted(KeyError("x")), [SOLVED, BROKEN], config, tmp_path)
