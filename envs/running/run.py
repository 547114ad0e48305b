"""A run: the resources for making groups, opened whole, and the loop that makes them."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from atropos_agent.engines.load import Load
from atropos_agent.engines.teacher import Teacher
from envs.checking.flakes import in_doubt
from envs.config import AgentEnvConfig
from envs.delivery.estimators import Estimator
from envs.delivery.rows import Origin, ScoredGroup, score_group
from envs.records import timeline
from envs.records.atif import FILE_NAME as ROLLOUTS
from envs.records.atif import RolloutWriter, end_of
from envs.records.disk import is_transient, replace_file
from envs.records.metrics import Metrics
from envs.records.read import read_newest
from envs.records.report import write_report
from envs.records.tracking import TrackedRun, Trackers
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter
from envs.running.environment import Environment
from envs.running.failures import FailureLog
from envs.running.group import UNMADE, Group, count_states, members_end_offset, reopen
from envs.running.journal import Journal
from envs.running.mix import Mix
from envs.running.monitoring import serve_metrics
from envs.running.queue import TaskQueue
from envs.running.replay import TurnRecording
from envs.running.resources import Resources
from envs.running.rollouts import Rollouts
from envs.running.starts import conditions_of, write_start
from envs.running.supply import SupplyMonitor
from envs.running.teaching import open_teacher
from envs.running.telemetry import open_telemetry
from envs.running.watchdog import LoopWatch
from envs.running.workers import open_worker
from envs.types import BadTask, Failure, GroupState, InfraError, Rollout, Seat, Task
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

START_ROLLOUTS = 16
"""Rollouts at the same time before anything is known of the inference servers."""
LOAD_S = 10.0
"""How long an inference server may take to say how busy it is."""


PAGE = 2000
"""Rollouts on the page that is written when a run ends, at most."""

TOKENIZER_FILE = "tokenizer.json"

WHOLE = "1/1"
"""All tasks, as the option `shard` of environments with tasks shared by several processes."""

METRICS_S = 10.0
"""How often `metrics.json` is written beside the ends of groups, in seconds."""


class Pace(Protocol):
    """How fast groups are made."""

    @property
    def step(self) -> int:
        """Return the trainer's step."""

    @property
    def max_tokens(self) -> int:
        """Return the length of the longest usable row."""

    async def room(self, working: int) -> int | None:
        """Return how many groups may be started now, beside the unfinished ones; None when the run is over."""


class Sink(Protocol):
    """The destination of complete groups."""

    async def take(self, group: Group, scored: ScoredGroup) -> None:
        """Decide about a group: its state is settled, or it is put back into the queue."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """An open run. Made by `open_run`.

    resources: the newest versions of its texts; `run.resources[name] = text` is for all groups that begin later."""

    id: str
    config: AgentEnvConfig
    env: Environment
    journal: Journal
    queue: TaskQueue
    resources: Resources
    rollouts: Rollouts
    metrics: Metrics
    eval_tasks: Sequence[Task]
    watch: LoopWatch
    supply: SupplyMonitor = field(default_factory=SupplyMonitor)
    background: set[asyncio.Task[None]] = field(default_factory=set)
    """The tasks beside the groups. No more groups are made when one of these tasks fails."""

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do `work` in the background until the run is closed."""
        task = asyncio.create_task(work)
        self.background.add(task)
        return task

    def group_id(self, number: int) -> str:
        """Return a group's name, unique over runs, by its number."""
        return f"{self.id}-{number}"

    def name_of(self, group: Group) -> str:
        """Return a group's name for a trainer: the one under which it was asked for, else `group_id`."""
        return self.group_id(group.number) if group.name is None else group.name

    async def next_group(self) -> Group:
        """Draw the next group; the task after it is announced. Raises InfraError when all are quarantined."""
        group = await self.queue.next()
        if (coming := self.queue.next_task()) is not None:
            self.rollouts.expect(coming)
        return group

    async def fill(self, group: Group, pace: Pace) -> ScoredGroup | None:
        """Make a group's missing rollouts, and score it. None when some can't be had now; the group goes back to the
        queue, with its present ones."""
        size = self.config.group_size if group.size is None else group.size
        runs = {
            asyncio.create_task(self._member(group, member, pace), name=f"member {member} of group {group.number}")
            for member in group.missing(size)
        }
        try:
            if runs:
                await asyncio.wait(runs)
        finally:
            await cancel(runs)
        for run in runs:
            if run.cancelled():
                error = InfraError(Failure.ENVIRONMENT, "a rollout was cancelled from outside")
                self.rollouts.failures.note(group.task, error, step=pace.step)
            elif not isinstance(run.exception(), InfraError):
                run.result()
        if group.missing(size):
            await self.queue.give_up(group)
            return None
        self.rollouts.failures.forget(group.task)  # it can be made after all
        judged = [(one.task.id, one.work, one.verdict) for one in group.members.values()]
        self.metrics.count_doubts(await asyncio.to_thread(in_doubt, judged))
        return self._scored(group, pace.step)

    async def work(self, group: Group, pace: Pace, sink: Sink) -> None:
        """Make one group, from its task to its end."""
        scored = await self.fill(group, pace)
        if scored is not None:
            await sink.take(group, scored)
        await self.save_metrics()

    async def make_groups(self, pace: Pace, sink: Sink) -> None:
        """Work on groups until the pace says that the run is over, or it is asked to stop. Raises the exceptions of
        groups and of the tasks in the background."""
        stopping = self.env.stopping
        workers: dict[asyncio.Task[None], Group] = {}
        try:
            with self._leave_unwritten():
                while not stopping.requested and (more := await pace.room(len(workers))) is not None:
                    for _ in range(more):
                        group = await self.next_group()
                        workers[asyncio.create_task(self.work(group, pace, sink), name=f"group {group.number}")] = group
                    stopping.working = bool(workers)
                    await asyncio.wait({*workers, *self.background}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                    if stopping.requested:
                        break  # what fails from now on, such as writing to a full disk, is done at the next start
                    for done in [task for task in self.background if task.done()]:
                        self.background.discard(done)
                        done.result()
                    for worker in [worker for worker in workers if worker.done()]:
                        self._reap(worker, workers.pop(worker), pace)
            if stopping.requested and workers:
                logger.info("stopping: %d groups have %.0f s to finish", len(workers), self.config.shutdown_s)
                await asyncio.wait(workers, timeout=self.config.shutdown_s)
        finally:
            await cancel(set(workers))

    @contextmanager
    def _leave_unwritten(self) -> Iterator[None]:
        """Leave to the next start what a full disk keeps from being written once the run is asked to stop."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            if not (self.env.stopping.requested and is_transient(error)):
                raise

    async def save_metrics_regularly(self) -> None:
        """Write `metrics.json` now and then, for ever."""
        while True:
            try:
                await asyncio.to_thread(self.supply.observe, self.env.run_dir, self.metrics, self.rollouts.limiter)
                await self.save_metrics()
                await self.save_timeline()
            except OSError as error:
                logger.error("metrics.json is not written: %s", error)
            await asyncio.sleep(METRICS_S)

    async def save_timeline(self) -> None:
        """Write how the run stands now, and the changes of the concurrency limit, to `timeline.jsonl`."""
        packets = "SELECT state, count(*) FROM packets GROUP BY state"
        limiter, counted = self.rollouts.limiter, self.metrics
        now = {
            "t": time.time(),
            "step": max(map(int, counted.sign_rates), default=0),
            "limit": limiter.limit,
            "active": limiter.active,
            "working": counted.states.get(GroupState.WORKING, 0),
            "outbox": await self.journal.read(lambda db: dict(db.execute(packets).fetchall())),
            "rollouts": counted.rollouts,
            "sampled": counted.tokens_sampled,
        }
        changes = [limiter.changes.popleft() for _ in range(len(limiter.changes))]
        try:
            await finish(asyncio.to_thread(timeline.append, self.env.run_dir, [*changes, now]))
        except OSError as error:
            if not is_transient(error):
                raise
            logger.error("%s: %s; this line of it is left out", timeline.FILE_NAME, error)

    async def save_metrics(self) -> None:
        """Write `metrics.json`."""
        self.metrics.states = dict(await count_states(self.journal))
        await write_metrics(self.env, self.metrics, self.rollouts.limiter, self.watch)

    @property
    def mix(self) -> Mix:
        """Return the agents of the run."""
        return Mix.of(self.config.agent)

    @property
    def useful_groups(self) -> int:
        """Return how many groups may be worked on: those whose rollouts may all run, and one
        with rollouts waiting to start."""
        enough = -(-self.rollouts.limiter.limit // self.config.group_size) + 1
        return min(self.config.max_num_workers, enough)

    async def _member(self, group: Group, member: int, pace: Pace) -> None:
        recording = TurnRecording(self.journal, group.number, member)
        agent = self.mix.pick(group.task, self.config.seed, group.number)
        seat = Seat(
            *(group.number, member, pace.step),
            max_tokens=pace.max_tokens,
            agent=agent,
            recording=recording,
            resources=group.resources,
        )
        await group.add(member, *await self.rollouts.make(group.task, seat, recording))

    def _scored(self, group: Group, step: int) -> ScoredGroup:
        rollouts: list[Rollout] = [group.members[member] for member in sorted(group.members)]
        origin = Origin(
            group.number,
            self.group_id(group.number),
            group.task.id,
            step,
            self.config.temperature,
            self.env.carries_tokens,
        )
        estimator = Estimator.of(self.config)
        scored = score_group(rollouts, origin, estimator, messages=self.config.include_messages)
        for _ in scored.dropped:
            self.metrics.count_failure(Failure.ROW)
        return scored

    def _reap(self, worker: asyncio.Task[None], group: Group, pace: Pace) -> None:
        if not worker.cancelled():
            worker.result()
        elif group.is_open:
            self.metrics.count_failure(Failure.ENVIRONMENT, step=pace.step)
            logger.warning("the group of task %s was cancelled from outside; it is put back", group.task.id)
            self.queue.put_back(group)


async def follow_load(env: Environment, limiter: ConcurrencyLimiter) -> None:
    """Adapt a concurrency limit to how busy the environment's inference servers are, for ever."""

    async def load() -> Load | None:
        loads = (asyncio.wait_for(server.load(), LOAD_S) for server in env.servers)
        found = await asyncio.gather(*loads, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                logger.debug("an inference server does not say how busy it is: %r", error)
        answered = [load for load in found if isinstance(load, Load)]
        if not answered:
            return None
        return Load(*(sum(getattr(load, name) for load in answered) for name in ("running", "waiting", "preempted")))

    await limiter.follow(load, lambda: sum(server.sampled for server in env.servers))


@asynccontextmanager
async def open_run(
    env: Environment, command: str = "serve", trained: Collection[str] | None = None
) -> AsyncIterator[Run]:
    """Open a run in the environment's directory, or continue the one of an earlier start there.

    command: the noted purpose; all but "process" is for trainers. trained: as in `reopen`.
    Raises RunDirectoryError, BadTask, ValueError if the samples are of no use to trainers, EngineError if the teacher
    can't score them, and the exceptions of the environment's `setup`."""
    config = env.config
    if command != "process":
        config.check_ratios()
    train, evaluate = await env.ready_tasks()
    if not train:
        raise BadTask(f"{env.name} has no tasks to train on; `load_tasks` gives them first, then those to evaluate on")
    shared = getattr(config, "shard", WHOLE) != WHOLE  # this process's part may have none
    if command == "serve" and config.steps_per_eval and not (evaluate or shared):
        raise BadTask(f"{env.name} has no tasks to evaluate on; give some, or leave --env.steps_per_eval out")
    async with Journal(env.run_dir, lambda: env.stopping.requested) as journal:
        identity = {"group_size": config.group_size, "seed": config.seed, "vocabulary": len(env.tokenizer)}
        under = await conditions_of(env)
        known = await journal.identify(identity, {"environment": env.name, **under}, config.allow_change)
        for change in known.changed:
            logger.warning("unfinished groups begin again, under other conditions than at the start before: %s", change)
        run_id = await journal.run_id()
        saved = await members_end_offset(journal)
        if end_of(env.run_dir) < saved:
            logger.warning(
                "%s is missing or was cut: rollouts of complete groups are not there. Bring it back from a copy",
                env.run_dir / ROLLOUTS,
            )
        if lost := await reopen(journal, run_id, trained):
            logger.info("%d groups that a trainer took and did not confirm are given again", lost)
        metrics = await _load_metrics(env.run_dir, journal) if known else Metrics()
        await write_start(env, command, under, run_id=run_id, changed=known.changed)
        wanted = [config.total_steps] if command == "process" and config.total_steps > 0 else []
        at_once = min([config.max_num_workers, *wanted])
        async with (
            open_teacher(env) as teacher,
            open_rollouts(env, metrics, len(train), teacher, at_once=at_once, saved=saved) as (rollouts, watch),
        ):
            resources = await Resources.open(journal, env.resources())
            queue = await TaskQueue.open(
                *(journal, train, rollouts.failures),
                seed=config.seed,
                task_failures=config.task_failures,
                mix=Mix.of(config.agent),
                resources=resources,
            )
            run = Run(run_id, config, env, journal, queue, resources, rollouts, metrics, evaluate, watch)
            keeping = asyncio.create_task(run.save_metrics_regularly())
            try:
                yield run
            finally:
                await cancel([keeping, *run.background])
                await run.save_metrics()
                await run.save_timeline()


@asynccontextmanager
async def open_rollouts(
    env: Environment,
    metrics: Metrics,
    tasks: int,
    teacher: Teacher | None = None,
    *,
    at_once: int | None = None,
    saved: int = 0,
) -> AsyncIterator[tuple[Rollouts, LoopWatch]]:
    """Open the resources for rollouts of so many tasks, without a journal; the page of the rollouts is written when the
    block ends. teacher: scores their rows. at_once: groups, at most. saved: the offset after the saved rollouts."""
    config = env.config
    breaker = CircuitBreaker(config.failure_rate)
    limiter = ConcurrencyLimiter(start=START_ROLLOUTS, most=config.max_concurrent_rollouts, breaker=breaker)
    failures = FailureLog(env.run_dir / "quarantined.jsonl", metrics, breaker, env.redactor, tasks, at_once or tasks)
    async with AsyncExitStack() as stack:
        about = {"service.name": "atropos-agent", "atropos.environment": env.name, "atropos.run": env.run_dir.name}
        await stack.enter_async_context(open_telemetry(config.otlp_url, about, content=config.otlp_content))
        await stack.enter_async_context(serve_metrics(config.prometheus, metrics, {"environment": env.name}))
        watch = await stack.enter_async_context(LoopWatch())
        writer = await stack.enter_async_context(RolloutWriter(env.run_dir, saved))
        for server in env.servers:
            stack.push_async_callback(server.close)
        worker = await stack.enter_async_context(open_worker(env, watch, metrics))
        # What is loaded by now stays: a full collection that walks through it would block the event loop for 0.2 s.
        gc.freeze()
        stack.callback(gc.unfreeze)
        await asyncio.to_thread(_keep_tokenizer, env)
        try:
            started = {name: resource for name, resource in env.resources().items() if resource is not None}
            made = Rollouts(
                *(worker, limiter, failures, metrics, writer),
                attempts=config.attempts,
                resources=started,
                teacher=teacher,
            )
            yield made, watch
        finally:
            await write_metrics(env, metrics, limiter, watch)
            await asyncio.to_thread(_write_page, env)


@asynccontextmanager
async def open_trackers(env: Environment, name: str, *, project: str | None, group: str | None) -> AsyncIterator[None]:
    """Log the environment's figures, in this block, if wanted. name, project, group: of the logged run. project:
    None for one of the environment's own."""
    config = env.config
    options = env.redactor.value(config.model_dump(mode="json"))
    named = project or f"atropos-agent-{env.name}"
    tracked = TrackedRun(named, config.wandb_name or name, env.run_dir, options, group)
    env.trackers = await asyncio.to_thread(Trackers.open, config.trackers, tracked)
    try:
        yield
    finally:
        await finish(asyncio.to_thread(env.trackers.close))
        env.trackers = Trackers({})


def _keep_tokenizer(env: Environment) -> None:
    """Write the tokenizer into the run's directory, if there is room: tokens can then be shown as text anywhere."""
    path = env.run_dir / TOKENIZER_FILE
    if not env.carries_tokens or path.exists() or (fast := _fast_tokenizer(env.tokenizer)) is None:
        return
    try:
        replace_file(path, fast.to_str().encode())
    except OSError as error:
        if not is_transient(error):
            raise
        logger.error("%s: %s; it is not written", path, error)


def _fast_tokenizer(tokenizer: Any) -> Tokenizer | None:
    """Return what decodes single tokens as this tokenizer does; None if it is not known.

    A tokenizer that is a Python program, as Kimi's, has none; its pieces are commonly bytes."""
    backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return backend
    try:
        made = Tokenizer(BPE(vocab=tokenizer.get_vocab(), merges=[]))
        made.decoder = ByteLevel()
        some = range(0, len(tokenizer), 97)
        same = all(made.decode([i], skip_special_tokens=False) == tokenizer.decode([i]) for i in some)
    except Exception as error:  # of a program of others; without it the page shows ids
        logger.debug("the page shows tokens as ids: %r", error)
        return None
    return made if same else None


async def write_metrics(env: Environment, metrics: Metrics, limiter: ConcurrencyLimiter, watch: LoopWatch) -> None:
    """Write `metrics.json`, if there is room on the disk."""
    metrics.concurrency = limiter.limit
    metrics.loop_blocks = watch.blocks
    path, data = env.run_dir / "metrics.json", metrics.to_json()
    try:
        # To its end, or an older state would be written over the last one.
        await finish(asyncio.to_thread(replace_file, path, data))
    except OSError as error:
        if not is_transient(error):
            raise
        logger.error("%s: %s; it is written later", path, error)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _load_metrics(run_dir: Path, journal: Journal) -> Metrics:
    """Return the metrics of an earlier start; new ones without readable ones."""
    path = run_dir / "metrics.json"
    try:
        metrics = Metrics.from_json(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        logger.warning("the earlier metrics are not continued: %s", error)
        metrics = Metrics()
    counts = await count_states(journal)  # a kill may have come between the two
    metrics.groups = counts.total() - sum(counts[state] for state in UNMADE)
    return metrics


def _write_page(env: Environment) -> None:
    """Write the page of the newest rollouts: one of all would take longer the longer a run is."""
    decode: Callable[[int], str] = lambda token: str(env.tokenizer.decode([token], skip_special_tokens=False))  # noqa: E731
    models = ", ".join(server.config.model_name for server in env.servers)
    path = env.run_dir / "rollouts.html"
    try:
        rollouts, all_of_them = read_newest(env.run_dir, PAGE)
        shown = {} if all_of_them else {"shown": f"the newest {len(rollouts)} rollouts"}
        write_report(rollouts, path, decode=decode, title=env.name, summary={"model": models, **shown})
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not is_transient(error):
            raise
        logger.error("%s: %s; it is not written", path, error)
