"""The three commands of an environment: `serve`, `process` and `evaluate`, each from opening its run to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from atropos_agent.engines.hosted import usage_of
from envs.delivery.packing import RowPacker
from envs.delivery.rows import ScoredGroup
from envs.delivery.sender import Registration, Sender
from envs.delivery.trainer_api import EnvStatus, LogPlace, TrainerAPI
from envs.records.metrics import Metrics
from envs.records.progress import Bar
from envs.records.stats import EvalSummary
from envs.running.database import lock_directory
from envs.running.environment import Environment
from envs.running.evaluation import describe_losses, evaluate, evaluation_conditions
from envs.running.feed import feed
from envs.running.group import Group
from envs.running.outbox import Outbox
from envs.running.run import METRICS_S, Run, cancel, follow_load, open_rollouts, open_trackers
from envs.running.sinks import FileSink, TrainerSink, open_group_file
from envs.running.starts import conditions_of, write_start
from envs.running.supply import SupplyMonitor
from envs.types import Task
from sandboxes.plurals import plural
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

GONE_S = 60.0
"""How long no inference server answers, in seconds, until the last evaluation is given up."""


class ServedEnvironment(Environment, Protocol):
    """The needs of serving a trainer from an environment, beside those of a run."""

    def registered(self, answer: Mapping[str, Any], sender: Sender) -> None:
        """Take in the trainer API's answer to our registration."""
        ...


async def serve_trainer(env: ServedEnvironment) -> None:
    """Make groups for the trainer until it has had `total_steps` batches, or the run is asked to stop."""
    async with feed(env, partial(_open_registered_sink, env), TrainerPace, command="serve") as fed:
        pace = fed.pace
        async with show_progress(fed.run, "trainer's steps", pace.total_steps, lambda: pace.step):
            await fed.done()
            await pace.finish_evaluations()
        await pace.log()


@dataclass(frozen=True, slots=True)
class _RegisteredSink:
    """The sink of a trainer API that knows us."""

    sender: Sender
    outbox: Outbox
    take: Callable[[Group, ScoredGroup], Coroutine[Any, Any, None]]


@asynccontextmanager
async def _open_registered_sink(env: ServedEnvironment, run: Run) -> AsyncIterator[_RegisteredSink]:
    config = env.config
    async with TrainerAPI(config.rollout_server_url) as api:
        outbox = Outbox(run.journal)
        # By its name the API tells whether it knows the run, so that the name stays.
        name = await run.journal.remember("name", f"{config.wandb_name or env.name}-{run.id}")
        registration = Registration(name, config.max_token_length, config.inference_weight, config.group_size)
        sender = Sender(api, outbox, run.metrics, registration, max_stale=config.max_stale_steps)
        await sender.connect()
        env.registered(sender.answer.model_dump(), sender)
        place = await api.place() if config.trackers else LogPlace()
        path = config.data_path_to_save_groups
        file = None if path is None else await open_group_file(run, Path(path))
        sink = TrainerSink(run, outbox, RowPacker(config.group_size, await outbox.waiting()), file)
        run.run_in_background(sender.run())
        try:
            async with open_trackers(env, name, project=place.project, group=place.group):
                yield _RegisteredSink(sender, outbox, sink.take)
        finally:
            await finish(sender.leave())


async def process_groups(env: Environment) -> Path:
    """Make `total_steps` groups and write them to a file. Returns its path."""
    path = Path(env.config.data_path_to_save_groups or env.run_dir / "groups.jsonl")
    env.config.include_messages = True  # the file is for readers
    groups = env.config.total_steps
    async with feed(
        env, partial(_open_logged_file, path), lambda run, _: CountPace(run, groups), command="process"
    ) as fed:
        run = fed.run
        async with show_progress(run, "groups", groups, lambda: run.metrics.groups):
            await fed.done()
        await _log(run, run.metrics.groups)
    return path


@asynccontextmanager
async def _open_logged_file(path: Path, run: Run) -> AsyncIterator[FileSink]:
    async with (
        open_trackers(run.env, f"{run.env.name}-{run.id}", project=None, group=None),
        FileSink.to(path, run) as sink,
    ):
        run.run_in_background(_keep_logging(run))
        yield sink


async def evaluate_once(env: Environment) -> EvalSummary:
    """Attempt every evaluation task, in a run without groups. Raises RunDirectoryError."""
    started, (_, tasks) = time.time(), await env.ready_tasks()
    with lock_directory(env.run_dir):
        return await _evaluate_in_directory(env, tasks, started)


async def _evaluate_in_directory(env: Environment, tasks: Sequence[Task], started: float) -> EvalSummary:
    await write_start(env, "evaluate", await conditions_of(env))
    metrics = Metrics()
    async with (
        open_trackers(env, env.run_dir.name, project=None, group=None),
        open_rollouts(env, metrics, len(tasks)) as (rollouts, _),
    ):
        supply = SupplyMonitor()
        with Bar("evaluating") as bar:

            def show(done: int, task: str, total: int) -> None:
                supply.left = total - done
                bar.update(done, "; ".join(filter(None, [task, metrics.supply])), total=total)

            async def show_supply() -> None:
                while True:
                    await asyncio.to_thread(supply.observe, env.run_dir, metrics, rollouts.limiter)
                    if metrics.supply and supply.left is not None:  # the bar knows its beginning
                        bar.note(metrics.supply)
                    await asyncio.sleep(METRICS_S)

            following = [asyncio.create_task(one) for one in (follow_load(env, rollouts.limiter), show_supply())]
            try:
                about, usage = evaluation_conditions(env), partial(usage_of, env.servers)
                given = (rollouts, tasks, env.config, env.run_dir)
                summary = await evaluate(*given, about=about, on_sample=show, usage=usage)
            finally:
                await cancel(following)
        await env.log_evaluation(summary, started)
    return summary


@asynccontextmanager
async def show_progress(run: Run, what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
    """Show a run's progress while the block runs. total: not positive without an end."""

    def line() -> str:
        sampled = sum(server.sampled for server in run.env.servers)
        begun = f", {plural(sampled, 'token')} sampled so far" if sampled and not run.metrics.rollouts else ""
        return run.metrics.line() + begun

    async def show(bar: Bar) -> None:
        while True:
            bar.update(done(), line())
            await asyncio.sleep(1.0)

    with Bar(what, total if total > 0 else None) as bar:
        task = asyncio.create_task(show(bar))
        try:
            yield
        finally:
            await cancel([task])
            bar.update(done(), line())


async def _keep_logging(run: Run) -> None:
    """Log the figures of a run without a trainer now and then, for ever; their step is the number of groups."""
    while True:
        await asyncio.sleep(METRICS_S)
        await _log(run, run.metrics.groups)


async def _log(run: Run, step: int) -> None:
    await run.env.log_step(step, {f"train/{key}": value for key, value in run.metrics.scalars().items()})


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
        self.run.supply.begun = working >= left
        return max(0, min(left, self.run.useful_groups) - working) if left > 0 else None


class TrainerPace:
    """As many groups as the trainer will use before they are stale. It also begins the evaluations of its steps."""

    def __init__(self, run: Run, sink: _RegisteredSink) -> None:
        self._run, self._sender, self._outbox = run, sink.sender, sink.outbox
        self.step = sink.sender.answer.starting_step
        total = run.config.total_steps
        self.total_steps = sink.sender.answer.num_steps if total == -1 else total
        """The trainer's last step; not positive if it names none: then the run has no end of its own."""
        self._enough: EnvStatus | None = None
        """The first answer of the API by which the trainer has had enough: the next one has to say so, too."""
        self._evaluations: set[asyncio.Task[None]] = set()
        self._left_out = False
        """Whether the last evaluation that was due was not begun, because of an earlier one."""

    @property
    def max_tokens(self) -> int:
        """See `Pace`. The trainer takes rows shorter than its `max_token_len`."""
        own, theirs = self._run.config.max_token_length, self._sender.max_token_len
        return own if theirs <= 0 else min(own, theirs - 1)

    async def room(self, working: int) -> int | None:
        """See `Pace`."""
        config, sender, size = self._run.config, self._sender, self._run.config.group_size
        if sender.step != self.step:
            await self._advance_to(sender.step)
        queued = sender.status.queue_size
        supply = self._run.supply
        supply.lacks, supply.enough = queued * size < sender.batch_size, False
        if 0 < self.total_steps < self.step + queued * size // sender.batch_size:
            told_before, self._enough = self._enough, sender.status
            return 0 if told_before is None or told_before is sender.status else None
        self._enough = None
        if self._outbox.bytes > config.outbox_mb * 2**20:
            return 0
        most = config.max_batches_offpolicy * sender.batch_size // size - queued - self._outbox.ready
        supply.enough, supply.begun = most <= 0, most <= working
        return max(0, min(self._run.useful_groups, most) - working)

    async def _advance_to(self, step: int) -> None:
        every = self._run.config.steps_per_eval
        due = every > 0 and step // every > self.step // every and len(self._run.eval_tasks) > 0
        self.step, self._run.supply.stepped = step, time.monotonic()
        await self.log()
        if due:
            self._left_out = bool(self._evaluations)
            if not self._left_out:
                self._begin_evaluation()

    def _begin_evaluation(self) -> None:
        # Training goes on beside it: cancelled rollouts would be work thrown away.
        evaluation = self._run.run_in_background(self._evaluate(self.step))
        self._evaluations.add(evaluation)
        evaluation.add_done_callback(self._evaluations.discard)

    async def finish_evaluations(self) -> None:
        """Wait for the evaluation in the making, and make the last one that was due if that was left out.

        It ends before when the run is asked to stop, and when no inference server answers any more: some trainers
        end theirs with themselves."""
        env, answered = self._run.env, time.monotonic()
        if self._evaluations or self._left_out:
            logger.info("the trainer has had enough; the last evaluation is made to its end")
        while (self._evaluations or self._left_out) and not env.stopping.requested:
            if not self._evaluations:
                self._left_out = False
                self._begin_evaluation()
            await asyncio.wait(self._evaluations, timeout=1.0)
            if any(await asyncio.gather(*(server.alive() for server in env.servers))):
                answered = time.monotonic()
            elif time.monotonic() - answered > GONE_S:
                logger.warning("the last evaluation is given up: no inference server has answered for %.0f s", GONE_S)
                break
        await cancel(self._evaluations)

    async def log(self) -> None:
        """Log the run's figures at the trainer's step."""
        await _log(self._run, self.step)

    async def _evaluate(self, step: int) -> None:
        run, started = self._run, time.time()
        try:
            about = evaluation_conditions(run.env)
            summary = await evaluate(
                *(run.rollouts, run.eval_tasks, run.config, run.env.run_dir),
                step=step,
                anew=True,  # an earlier start's would be of weights that the trainer has lost
                about=about,
                resources=await run.resources.now(run.journal),
            )
            if (why := describe_losses(summary, run.config.eval_lost)) is not None:
                logger.warning("the evaluation of step %d must not be believed: %s", step, why)
            await run.env.log_evaluation(summary, started)
        except Exception:  # the training goes on
            logger.exception("an evaluation failed")
