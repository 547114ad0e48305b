"""The three commands of an environment: `serve`, `process` and `evaluate`, each from opening its run to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from envs.delivery.packing import RowPacker
from envs.delivery.sender import Registration, Sender
from envs.delivery.trainer_api import EnvStatus, TrainerAPI
from envs.records.metrics import Metrics
from envs.records.stats import EvalSummary
from envs.running.evaluation import described, evaluate
from envs.running.outbox import Outbox
from envs.running.run import Environment, Run, cancel, follow_load, open_rollouts, open_run
from envs.running.sinks import FileSink, TrainerSink, open_group_file
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class ServedEnvironment(Environment, Protocol):
    """What serving a trainer needs of an environment, beside what a run needs."""

    def registered(self, answer: Mapping[str, Any], sender: Sender) -> None:
        """Take in what the trainer API said when we registered."""
        ...

    async def setup_wandb(self) -> None: ...

    async def log_step(self, step: int, values: Mapping[str, float]) -> None:
        """Log figures of a trainer's step to W&B, where that is wanted."""
        ...


async def serve_trainer(env: ServedEnvironment) -> None:
    """Make groups for the trainer until it has had `total_steps` batches, or the run is asked to stop."""
    config = env.config
    async with open_run(env) as run, TrainerAPI(config.rollout_server_url) as api:
        outbox = Outbox(run.journal)
        # By its name the API tells whether it knows the run, so that the name stays.
        name = await run.journal.remember("name", f"{config.wandb_name or env.name}-{run.id}")
        registration = Registration(name, config.max_token_length, config.inference_weight, config.group_size)
        sender = Sender(api, outbox, run.metrics, registration, max_stale=config.max_stale_steps)
        await sender.connect()
        env.registered(sender.answer.model_dump(), sender)
        await env.setup_wandb()
        pace = TrainerPace(run, env, sender, outbox)
        path = config.data_path_to_save_groups
        file = None if path is None else await open_group_file(run, Path(path))
        sink = TrainerSink(run, outbox, RowPacker(config.group_size, await outbox.waiting()), file)
        background = [asyncio.create_task(sender.run()), asyncio.create_task(run.follow_load())]
        try:
            await run.make_groups(pace, sink, background)
        finally:
            await cancel([*background, *pace.evaluations])
            await finish(sender.leave())


async def process_groups(env: Environment) -> Path:
    """Make `total_steps` groups and write them to a file, whose path is returned."""
    path = Path(env.config.data_path_to_save_groups or env.run_dir / "groups.jsonl")
    env.config.include_messages = True  # the file is for readers
    async with open_run(env) as run:
        file = await open_group_file(run, path)
        background = [asyncio.create_task(run.follow_load())]
        try:
            await run.make_groups(CountPace(run, env.config.total_steps), FileSink(run, file), background)
        finally:
            await cancel(background)
    return path


async def evaluate_once(env: Environment) -> EvalSummary:
    """Attempt every evaluation task, in a run without groups."""
    started, (_, tasks) = time.time(), env.tasks()
    await env.start_wandb()
    async with open_rollouts(env, Metrics(), len(tasks)) as (rollouts, _):
        following = asyncio.create_task(follow_load(env, rollouts.limiter))
        try:
            summary = await evaluate(rollouts, tasks, env.config, env.run_dir, about=described(env))
        finally:
            await cancel([following])
        await env.log_evaluation(summary, started)
    return summary


@dataclass(frozen=True, slots=True)
class CountPace:
    """As many groups as were asked for, with no trainer."""

    run: Run
    groups: int
    step: int = 0

    @property
    def max_tokens(self) -> int:
        """See `Pace`."""
        return self.run.config.max_token_length

    async def room(self, working: int) -> int | None:
        """See `Pace`."""
        left = self.groups - self.run.metrics.groups
        return max(0, min(left, self.run.useful_groups) - working) if left > 0 else None


class TrainerPace:
    """As many groups as the trainer will use before they are stale. It also begins the evaluations of its steps."""

    def __init__(self, run: Run, env: ServedEnvironment, sender: Sender, outbox: Outbox) -> None:
        self._run, self._env, self._sender, self._outbox = run, env, sender, outbox
        self.step = sender.answer.starting_step
        total = run.config.total_steps
        self._total_steps = sender.answer.num_steps if total == -1 else total
        self._enough: EnvStatus | None = None
        """The answer of the API after which the trainer has had enough: the next one has to say so, too."""
        self.evaluations: set[asyncio.Task[None]] = set()

    @property
    def max_tokens(self) -> int:
        """See `Pace`. The trainer takes rows shorter than its `max_token_len`."""
        own, theirs = self._run.config.max_token_length, self._sender.max_token_len
        return own if theirs <= 0 else min(own, theirs - 1)

    async def room(self, working: int) -> int | None:
        """See `Pace`."""
        config, sender, size = self._run.config, self._sender, self._run.config.group_size
        if sender.step != self.step:
            await self._step_to(sender.step)
        queued = sender.status.queue_size
        if self.step + queued * size // sender.batch_size > self._total_steps:
            told_before, self._enough = self._enough, sender.status
            return 0 if told_before is None or told_before is sender.status else None
        self._enough = None
        if self._outbox.bytes > config.outbox_mb * 2**20:
            return 0
        most = config.max_batches_offpolicy * sender.batch_size // size - queued - self._outbox.ready
        return max(0, min(self._run.useful_groups, most) - working)

    async def _step_to(self, step: int) -> None:
        every = self._run.config.steps_per_eval
        due = every > 0 and step // every > self.step // every
        self.step = step
        await self._env.log_step(step, {f"train/{key}": value for key, value in self._run.metrics.scalars().items()})
        if due and not self.evaluations:
            # Training goes on beside it: cancelled rollouts would be work thrown away.
            evaluation = asyncio.create_task(self._evaluate(step))
            self.evaluations.add(evaluation)
            evaluation.add_done_callback(self.evaluations.discard)

    async def _evaluate(self, step: int) -> None:
        run, started = self._run, time.time()
        try:
            about = described(self._env)
            summary = await evaluate(
                run.rollouts, run.eval_tasks, run.config, self._env.run_dir, step=step, about=about
            )
            await self._env.log_evaluation(summary, started)
        except Exception:
            logger.exception("an evaluation failed")
