"""The environment that others are made from: groups of judged rollouts, delivered to a trainer.

A subclass says which tasks there are (`load_tasks`) and how one rollout goes (`attempt`).
`AgentEnv` does the rest: concurrency, retries, groups, delivery, evaluation, records.

atroposlib's own manager loop cancels rollouts whenever the trainer's queue is full or an
evaluation starts, loses a group when one member raises, and drops it when sending fails. Its
loops are replaced here, in this one place; configuration and hooks stay its own. What happens when
something fails is described in docs/faults.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import sys
import time
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import orjson
from atroposlib.envs.base import BaseEnv
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.completions import Load
from atropos_agent.engines.protocols import ChatServer, server_for
from atropos_agent.engines.route import Route
from atropos_agent.types import AgentResult, StopReason
from envs.config import AgentEnvConfig
from envs.delivery.rows import Group, build_group, has_signal
from envs.delivery.sender import Delivery, Parcels, Registration
from envs.delivery.trainer_api import TrainerAPI
from envs.records.atif import RolloutWriter
from envs.records.disk import append_line, replace_file, until_room
from envs.records.metrics import Metrics
from envs.records.read import read_rollouts
from envs.records.redaction import Redactor
from envs.records.report import write_report
from envs.records.stats import EvalSummary, summarise
from envs.running.concurrency import Admission, Brake
from envs.running.failures import attribute
from envs.running.journal import Journal
from envs.running.queue import Draw, Draws
from envs.running.replay import Record, RecordedServer
from envs.running.watchdog import LoopWatch
from envs.types import InfraError, Rollout, Task, Verdict
from sandboxes.shielding import finish
from tools.base import ToolRegistry

logger = logging.getLogger(__name__)

START_ROLLOUTS = 16
"""Rollouts at the same time before anything is known of the engines."""

RESAMPLES = 2
"""How often a group whose rewards are all equal is made anew, where that is wanted."""

UNMADE = ("working", "failed", "skipped", "gone")
"""States of groups that were not completed (see `envs.running.journal`)."""

REPEATABLE = ("engine", "judge", "suspended")
"""Failures after which a rollout is begun anew with the replies that it got: they did not cause it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt at a task came to. timings_s: seconds by phase, beside the agent's own."""

    result: AgentResult
    verdict: Verdict
    timings_s: Mapping[str, float] = field(default_factory=dict)


class AgentEnv(BaseEnv):  # type: ignore[misc]  # atroposlib is untyped
    """An Atropos environment in which agents work on tasks. See the module's docstring."""

    name: ClassVar[str] = "agent"
    env_config_cls = AgentEnvConfig
    server_cls = staticmethod(server_for)
    config: Any
    """An instance of `env_config_cls`."""
    eval_runner: asyncio.Task[EvalSummary] | None
    items_sent_this_step: int

    def __init__(
        self,
        config: AgentEnvConfig,
        server_configs: list[APIServerConfig],
        slurm: bool = False,
        testing: bool = False,
    ) -> None:
        self.groups_path = config.data_path_to_save_groups
        # The base class would open this file unflushed, under another name when it exists.
        super().__init__(config.model_copy(update={"data_path_to_save_groups": None}), server_configs, slurm, testing)
        plain = any(isinstance(server, ChatServer) for server in self.server.servers)
        self.template = None if plain else config.chat_template(self.tokenizer)
        """None where an engine works on messages, without token ids."""
        self.run_dir = config.run_dir or Path("runs") / f"{self.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        self.metrics = Metrics()
        self.redactor = Redactor()
        """Keeps secrets out of what is written; the command line knows them."""
        self.resources = AsyncExitStack()
        """What is closed, in reverse order, when the run ends. `setup` adds to it."""
        self.train_tasks: Sequence[Task] = ()
        self.eval_tasks: Sequence[Task] = ()
        self.admission = Admission(
            start=START_ROLLOUTS, most=config.max_concurrent_rollouts, brake=Brake(config.failure_rate)
        )
        self.journal: Journal | None = None
        self.draws: Draws | None = None
        self.delivery: Delivery | None = None
        self._watch = LoopWatch()
        self._records: dict[asyncio.Task[Any] | None, Record] = {}
        """By the task in which a rollout runs, so that `agent` finds it without `attempt` passing it on."""
        self._saving = asyncio.Lock()
        self._packing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._working = False
        self._logged_step = 0

    @classmethod
    def cli(cls) -> None:
        """The command line of this environment: `serve`, `process` or `evaluate`, and its options."""
        # Imported here because the command line needs this class.
        from envs.cli import run

        sys.exit(run(cls, sys.argv[1:]))

    # What a subclass says

    @classmethod
    @abstractmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        """The tasks to train on and those to evaluate on. Raises BadTask."""

    @classmethod
    async def preflight(cls, config: AgentEnvConfig) -> None:
        """Find out now what would fail later. Raises an error that says what to do, or a group of them."""
        cls.load_tasks(config)

    @abstractmethod
    async def attempt(self, task: Task, *, evaluating: bool = False) -> Outcome:
        """One rollout: let an agent (see `agent`) work on the task, and judge what it did.

        What it raises is a failure of ours and never becomes a reward."""

    async def setup(self) -> None:
        """Open what rollouts need, by way of `resources`."""

    def expect(self, task: Task) -> None:
        """This task is drawn next: begin in the background what takes long, such as its image."""

    def reward(self, task: Task, outcome: Outcome) -> float:
        """The reward of a judged rollout; the verdict's own unless a subclass shapes it."""
        return outcome.verdict.reward

    # What a subclass uses

    def agent(self, tools: ToolRegistry, *, evaluating: bool = False, **options: Any) -> AtroposAgent:
        """An agent on the next engine. `options` are fields of AgentConfig that differ for this task."""
        config = self.config.agent_config(max_total_tokens=self.max_row, evaluating=evaluating, **options)
        if self.template is None:
            return AtroposAgent(
                random.choice(self.server.servers), tools, config, split="eval" if evaluating else "train"
            )
        route = Route(self.server.servers)
        record = self._records.get(asyncio.current_task())
        return AtroposAgent(
            route if record is None else RecordedServer(route, record),
            tools,
            config,
            execute_tool=None if record is None else record.executing(tools.execute),
            template=self.template,
            split="eval" if evaluating else "train",
        )

    @property
    def max_row(self) -> int:
        """Tokens that a row may have: the trainer takes rows shorter than its `max_token_len`."""
        own = int(self.config.max_token_length)
        theirs = self.delivery.max_token_len if self.delivery else -1
        return own if theirs <= 0 else min(own, theirs - 1)

    # Rollouts and groups

    async def rollout(self, task: Task, *, evaluating: bool = False, record: Record | None = None) -> Rollout:
        """One judged rollout, tried again when it fails by our fault. Raises InfraError."""
        for attempt in range(1, self.config.attempts + 1):
            try:
                async with self.admission.slot():
                    rollout = await self._attempt(task, evaluating=evaluating, record=record)
                break
            except InfraError as error:
                logger.warning("task %s, attempt %d of %d: %s", task.id, attempt, self.config.attempts, error)
                self._note_failure(task, error)
                if attempt == self.config.attempts:
                    raise
                if record is not None:
                    await (record.rewind() if error.kind in REPEATABLE else record.forget())
                await asyncio.sleep(min(8.0, 0.5 * 2**attempt))
        self.admission.brake.note(None)
        self.admission.tokens += rollout.result.sampled_tokens
        self.metrics.count_rollout(rollout)
        place = await self._writer.write(rollout)
        if record is not None:
            await record.judged(place)
        return rollout

    async def _attempt(self, task: Task, *, evaluating: bool, record: Record | None) -> Rollout:
        started, runner = time.monotonic(), asyncio.current_task()
        seconds = self.config.rollout_timeout_s + task.hidden.timeout_s + self.config.overtime_s
        if record is not None:
            self._records[runner] = record
        try:
            async with asyncio.timeout(seconds) as limit:
                outcome = await self.attempt(task, evaluating=evaluating)
            reward = float(self.reward(task, outcome))
            self._check(outcome, reward, started)
        except InfraError:
            raise
        except asyncio.CancelledError:
            if runner is None or runner.cancelling():
                raise
            raise InfraError("environment", "a rollout was cancelled from within") from None
        except Exception as error:
            if limit.expired():
                raise InfraError("environment", f"the rollout hung: it was not over after {seconds:.0f} s") from error
            raise attribute(error) from error
        finally:
            self._records.pop(runner, None)
        return Rollout(
            id=uuid.uuid4().hex,
            task=task,
            result=outcome.result,
            verdict=replace(outcome.verdict, reward=reward),
            timings_s={**outcome.timings_s, "total": time.monotonic() - started},
            metadata={"step": self.curr_step, "evaluating": evaluating},
        )

    def _check(self, outcome: Outcome, reward: float, started: float) -> None:
        """Raise InfraError for what would be no valid measurement, or no row."""
        if not math.isfinite(reward):
            raise InfraError("judge", f"the reward is {reward}")
        if not outcome.result.segments and outcome.result.stop_reason is StopReason.MAX_TOKENS:
            raise InfraError("task", "the prompt left no room for a reply; raise --env.max_token_length")
        longest = max((len(segment.tokens) for segment in outcome.result.segments), default=0)
        if longest > self.max_row:
            raise InfraError("tokens", f"a row of {longest} tokens is longer than {self.max_row}")
        if outcome.result.stop_reason is StopReason.TIME and (lost := self._watch.suspended_since(started)) > 0:
            raise InfraError("suspended", f"the process was suspended for {lost:.0f} s of the rollout's time")

    def _note_failure(self, task: Task, error: InfraError) -> None:
        if error.unexpected:
            logger.error("an unexpected failure in a rollout", exc_info=error)
        self.metrics.count_failure(error.kind, step=self.curr_step)
        self.admission.brake.note(error)
        if self.draws is not None:
            self.draws.note(task, error)

    async def collect_trajectories(self, item: Draw | Task) -> tuple[Group | None, list[Draw]]:
        """The group of a task. When members can't be had now, the task is put back with those that it has,
        and only what is missing is made next time."""
        assert self.draws is not None  # noqa: S101 - open while the environment runs
        draw = await self.draws.out_of_turn(item) if isinstance(item, Task) else item
        slots = [slot for slot in range(self.config.group_size) if slot not in draw.members]
        runs = {asyncio.create_task(self._member(draw, slot)): slot for slot in slots}
        try:
            if runs:
                await asyncio.wait(runs)
        finally:
            await _cancel(set(runs))
        members = dict(draw.members)
        for run, slot in runs.items():
            if run.cancelled():
                self._note_failure(draw.task, InfraError("environment", "a rollout was cancelled from outside"))
            elif (error := run.exception()) is None:
                members[slot] = run.result()
            elif not isinstance(error, InfraError):
                raise error
        draw = replace(draw, members=members)
        if len(members) < self.config.group_size:
            # While everything fails our surroundings are at fault, not the task.
            aside = not self.admission.brake.on and await self.draws.blame(draw, self.redactor)
            return None, [] if aside else [draw]
        group = build_group(
            [members[slot] for slot in sorted(members)],
            group_id=f"{self.run_id}-{draw.number}",
            messages=self.config.include_messages,
            step=self.curr_step,
            temperature=self.config.temperature,
        )
        for _ in group["generation_params"]["dropped"]:
            self.metrics.count_failure("row")
        return group, []

    async def _member(self, draw: Draw, slot: int) -> Rollout:
        assert self.journal is not None  # noqa: S101 - open while the environment runs
        record = Record(self.journal, draw.number, slot)
        await record.rewind()
        return await self.rollout(draw.task, record=record)

    async def get_next_item(self) -> Draw:
        """The next task; the one after it is announced. Raises InfraError when all were set aside."""
        assert self.draws is not None  # noqa: S101 - open while the environment runs
        draw = await self.draws.next()
        if (coming := self.draws.coming()) is not None:
            self.expect(coming)
        return draw

    async def handle_send_to_api(
        self,
        scored_data: Group,
        item: Draw | None = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Decide about a complete group: into the spool, or dropped or made anew because its rewards are equal."""
        assert item is not None  # noqa: S101 - a group comes from a draw
        await finish(self._decide(item, scored_data, do_send_to_api))

    async def _decide(self, draw: Draw, group: Group, deliver: bool) -> None:
        assert self.draws is not None  # noqa: S101 - open while the environment runs
        signal = has_signal(group)
        if self.groups_path is not None and group["generation_params"]["group_id"] not in self._written:
            path = Path(self.groups_path)
            await until_room(path, lambda: append_line(path, orjson.dumps(group)))
        if self.delivery is None or not deliver:
            await self.draws.close(draw, "delivered")
        elif not group["tokens"]:
            await self.draws.close(draw, "empty")
        elif signal or self.config.equal_rewards == "send":
            await self._spool(draw, group)
        elif self.config.equal_rewards == "resample" and draw.resampled < RESAMPLES:
            await self.draws.restart(draw)
            return
        else:
            logger.info("group of task %s is not sent: all rewards are equal", draw.task.id)
            await self.draws.close(draw, "flat")
        self.metrics.count_group(signal=signal)

    async def _spool(self, draw: Draw, group: Group) -> None:
        assert self.journal and self.draws and self.delivery  # noqa: S101 - open while the environment serves
        async with self._packing:
            packets, waiting = await asyncio.to_thread(self._parcels.add, draw.number, group, step=self.curr_step)
            await self.journal.finish_group(draw.number, "spooled", packets=packets, waiting=waiting)
        self.delivery.expect(packets)
        self.draws.forget(draw)

    async def _work(self, draw: Draw) -> None:
        """One group from its task to the spool."""
        assert self.draws is not None  # noqa: S101 - open while the environment runs
        group, put_back = await self.collect_trajectories(draw)
        for left in put_back:
            self.draws.again(left)
        if group is not None:
            await self.handle_send_to_api(group, draw)
        await self._save_metrics()

    # The three commands

    @asynccontextmanager
    async def running(self, *, journalled: bool = True) -> AsyncIterator[None]:
        """Everything that a run needs, open until the block ends."""
        async with self.resources:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            await self.resources.enter_async_context(self._watch)
            self._writer = await self.resources.enter_async_context(RolloutWriter(self.run_dir))
            for server in self.server.servers:
                self.resources.push_async_callback(server.close)
            self.train_tasks, self.eval_tasks = self.load_tasks(self.config)
            if journalled:
                await self._take_up()
            await self.setup()
            await self._save_metrics()
            try:
                yield
            finally:
                await self._save_metrics()
                await asyncio.to_thread(self._write_page)

    async def _take_up(self) -> None:
        """Open the journal, and go on from where an earlier start in the same directory left off."""
        self.journal = await self.resources.enter_async_context(Journal(self.run_dir))
        identity = {"group_size": self.config.group_size, "seed": self.config.seed, "vocabulary": len(self.tokenizer)}
        if await self.journal.identify(identity):
            self.metrics = _read_metrics(self.run_dir / "metrics.json")
            counts = await self.journal.counts()  # a kill may have come between the two
            self.metrics.groups = counts.total() - sum(counts[state] for state in UNMADE)
        self.run_id = await self.journal.remember("id", uuid.uuid4().hex[:12])
        self.draws = await Draws.open(
            self.journal,
            self.train_tasks,
            seed=self.config.seed,
            run_dir=self.run_dir,
            task_failures=self.config.task_failures,
        )
        self._parcels = Parcels(self.config.group_size, await self.journal.waiting())
        self._written = await asyncio.to_thread(_group_ids, self.groups_path)

    async def env_manager(self) -> None:
        """`serve`: make groups for the trainer until it has had `total_steps` batches."""
        async with self.running(), TrainerAPI(self.config.rollout_server_url) as api:
            assert self.journal is not None  # noqa: S101 - open while the environment runs
            name = f"{self.config.wandb_name or self.name}-{self.run_id}"
            registration = Registration(
                name, self.config.max_token_length, self.config.inference_weight, self.config.group_size
            )
            stale = self.config.max_stale_steps
            self.delivery = Delivery(api, self.journal, self.metrics, registration, max_stale=stale)
            await self.register_env()
            await self.setup_wandb()
            background = [
                asyncio.create_task(self.delivery.run()),
                asyncio.create_task(self.admission.follow(self._engine_load)),
            ]
            try:
                await self._produce(self._room, background)
            finally:
                await _cancel({*background, *({self.eval_runner} if self.eval_runner else ())})
                await finish(self.delivery.leave())

    async def process_manager(self) -> None:
        """`process`: make `n_groups_to_process` groups and write them to `groups_path`."""
        self.config.group_size = self.group_size_to_process
        self.config.include_messages = True
        self.groups_path = self.groups_path or str(self.run_dir / "groups.jsonl")
        async with self.running():
            follow = asyncio.create_task(self.admission.follow(self._engine_load))
            try:
                await self._produce(self._missing, [follow])
            finally:
                await _cancel({follow})

    async def _produce(self, room: Callable[[int], int | None], background: Sequence[asyncio.Task[None]]) -> None:
        """Work on groups, `room(working)` more at a time, until there is None. Raises what one of them, or of
        the tasks in the background, raises."""
        workers: dict[asyncio.Task[None], Draw] = {}
        try:
            while not self._stopping.is_set() and (more := room(len(workers))) is not None:
                for _ in range(more):
                    draw = await self.get_next_item()
                    workers[asyncio.create_task(self._work(draw))] = draw
                self._working = bool(workers)
                await asyncio.wait({*workers, *background}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                for done in [task for task in background if task.done()]:
                    done.result()
                for worker in [worker for worker in workers if worker.done()]:
                    self._reap(worker, workers.pop(worker))
            if self._stopping.is_set() and workers:
                logger.info("stopping: %d groups have %.0f s to finish", len(workers), self.config.shutdown_s)
                await asyncio.wait(workers, timeout=self.config.shutdown_s)
        finally:
            await _cancel(set(workers))

    def _reap(self, worker: asyncio.Task[None], draw: Draw) -> None:
        if not worker.cancelled():
            worker.result()
        elif self.draws is not None and self.draws.is_open(draw):
            self.metrics.count_failure("environment", step=self.curr_step)
            logger.warning("the group of task %s was cancelled from outside; it is put back", draw.task.id)
            self.draws.again(draw)

    @property
    def stopped(self) -> bool:
        """Whether `stop` has ended the run."""
        return self._stopping.is_set()

    def stop(self) -> bool:
        """End the run: nothing new is started, and what runs has `shutdown_s` to finish. Returns False when
        there is nothing to wait for, or the second time: then cancel the run."""
        again = self._stopping.is_set()
        self._stopping.set()
        return self._working and not again

    async def evaluate(self, *args: Any, **kwargs: Any) -> EvalSummary:
        """Attempt every evaluation task `eval_samples` times; the summary is also written to
        `eval-<step>.json` in the run's directory. Rollouts that failed by our fault are left out
        and counted."""
        started = time.time()
        results = await asyncio.gather(
            *(self.rollout(task, evaluating=True) for task in self.eval_tasks for _ in range(self.config.eval_samples)),
            return_exceptions=True,
        )
        rewards: dict[str, list[float]] = {task.id: [] for task in self.eval_tasks}
        for result in results:
            if isinstance(result, Rollout):
                rewards[result.task.id].append(result.verdict.reward)
            elif not isinstance(result, InfraError | asyncio.CancelledError):
                raise result
        summary = summarise(rewards, self.config.eval_ks)
        path = self.run_dir / f"eval-{self.curr_step}.json"
        await asyncio.to_thread(path.write_bytes, orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2))
        if self.config.data_dir_to_save_evals is not None:
            await self.evaluate_log(summary.metrics(), start_time=started, end_time=time.time(), verbose=False)
        return summary

    async def _run_evaluate(self) -> EvalSummary:
        async with self.running(journalled=False):
            return await self.evaluate()

    # The trainer

    async def register_env(self) -> None:
        """Register with the trainer API, waiting for it and for the trainer."""
        assert self.delivery is not None  # noqa: S101 - set by env_manager
        await self.delivery.connect()
        answer = self.delivery.answer
        self.env_id = self.delivery.env_id
        self.config.batch_size, self.max_token_len = self.delivery.batch_size, self.delivery.max_token_len
        self.wandb_prepend = self.config.wandb_name or self.name
        self.curr_step = answer["starting_step"]
        self.checkpoint_dir = answer["checkpoint_dir"]
        self.checkpoint_interval = answer["checkpoint_interval"]
        if self.config.total_steps == -1:
            self.config.total_steps = answer["num_steps"]

    def _room(self, working: int) -> int | None:
        """How many groups may be started now, so that the trainer's queue does not grow stale; None when
        the run is over."""
        assert self.delivery is not None  # noqa: S101 - set by env_manager
        delivery, size = self.delivery, self.config.group_size
        if delivery.step != self.curr_step:
            self._step_to(delivery.step)
        queued = int(delivery.status["queue_size"])
        if self.curr_step + queued * size // delivery.batch_size > self.config.total_steps:
            return None
        if delivery.spool_bytes > self.config.spool_mb * 2**20:
            return 0
        most = self.config.max_batches_offpolicy * delivery.batch_size // size - queued - delivery.ready
        return max(0, int(min(self._useful_groups, most)) - working)

    def _missing(self, working: int) -> int | None:
        """How many groups `process` may start now; None when it has enough."""
        left = self.n_groups_to_process - self.metrics.groups
        return max(0, min(left, self._useful_groups) - working) if left > 0 else None

    @property
    def _useful_groups(self) -> int:
        """Groups at the same time whose rollouts may all run, and one whose rollouts wait to be let in."""
        enough = -(-self.admission.climb.limit // self.config.group_size) + 1
        return int(min(self.config.max_num_workers, enough))

    def _step_to(self, step: int) -> None:
        every = self.config.steps_per_eval
        due = every > 0 and step // every > self.curr_step // every
        self.curr_step = step
        if due and (self.eval_runner is None or self.eval_runner.done()):
            # Training goes on beside it: cancelled rollouts would be work thrown away.
            self.eval_runner = asyncio.create_task(self.evaluate())
            self.eval_runner.add_done_callback(_log_evaluation)

    async def _engine_load(self) -> Load | None:
        """How busy the engines are together; None when none tells."""
        loads = [load for load in await asyncio.gather(*(s.load() for s in self.server.servers)) if load is not None]
        if not loads:
            return None
        return Load(*(sum(getattr(load, name) for load in loads) for name in ("running", "waiting", "preempted")))

    def _write_page(self) -> None:
        def decode(token: int) -> str:
            return str(self.tokenizer.decode([token], skip_special_tokens=False))

        facts = {
            "engine": ", ".join(server.config.model_name for server in self.server.servers),
            "step": self.curr_step,
        }
        write_report(
            read_rollouts(self.run_dir), self.run_dir / "rollouts.html", decode=decode, title=self.name, summary=facts
        )

    async def _save_metrics(self) -> None:
        async with self._saving:
            if self.journal is not None:
                self.metrics.states = dict(await self.journal.counts())
            self.metrics.concurrency = self.admission.climb.limit
            self.metrics.loop_blocks = self._watch.blocks
            path = self.run_dir / "metrics.json"
            data = self.metrics.to_json()
            await until_room(path, lambda: replace_file(path, data))
            if self.curr_step != self._logged_step:
                self._logged_step = self.curr_step
                await self.wandb_log({f"train/{key}": value for key, value in self.metrics.scalars().items()})


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _log_evaluation(task: asyncio.Task[EvalSummary]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("an evaluation failed", exc_info=error)


def _read_metrics(path: Path) -> Metrics:
    """Those of an earlier start; new ones when there are none that can be read."""
    try:
        return Metrics.from_json(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        logger.warning("the earlier metrics are not continued: %s", error)
        return Metrics()


def _group_ids(path: str | None) -> set[str]:
    """The groups that a JSONL file of groups holds; lines that are torn count as missing."""
    found = set()
    if path is not None and Path(path).exists():
        with Path(path).open("rb") as file:
            for line in file:
                try:
                    found.add(orjson.loads(line)["generation_params"]["group_id"])
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    logger.warning("a torn line in %s is skipped", path)
    return found
