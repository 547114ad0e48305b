"""Evaluations: every held-out task attempted several times, and how many were solved."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson

from envs.config import AgentEnvConfig
from envs.records.disk import replace_file, until_room
from envs.records.stats import EvalSummary, summarise
from envs.running.rollouts import Rollouts
from envs.types import InfraError, Seat, Task


async def evaluate(
    rollouts: Rollouts, tasks: Sequence[Task], config: AgentEnvConfig, run_dir: Path, *, step: int = 0
) -> EvalSummary:
    """Attempt every task `eval_samples` times, and write the summary to `eval-<step>.json` in the run's directory.

    Rollouts that failed by our fault are left out and counted. step: the trainer's.
    """
    seat = Seat(step=step, evaluating=True)
    results = await asyncio.gather(
        *(rollouts.make(task, seat) for task in tasks for _ in range(config.eval_samples)), return_exceptions=True
    )
    rewards: dict[str, list[float]] = {task.id: [] for task in tasks}
    for result in results:
        if isinstance(result, tuple):
            rollout, _ = result
            rewards[rollout.task.id].append(rollout.verdict.reward)
        elif not isinstance(result, InfraError | asyncio.CancelledError):
            raise result
    summary = summarise(rewards, config.eval_ks)
    path = run_dir / f"eval-{step}.json"
    data = orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2)
    await until_room(path, lambda: replace_file(path, data))
    return summary
