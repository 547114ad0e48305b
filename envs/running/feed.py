"""Feed a trainer from Python: make a run's groups while a block runs, in its own order or as you ask for them.

To take groups in the run's order, name their sink and their pace. A sink is opened, and a pace made,
when the run is there:

    async with feed(env, partial(FileSink.to, path), lambda run, _: CountPace(run, 32)) as fed:
        await fed.done()

To choose the next group yourself, ask for it. Groups, journal and retries are the run's:

    config = SWEEnvConfig(tasks="tasks", run_dir=Path("runs/mine"), tokenizer_name="model")
    env = SWEEnv(config, [EngineConfig(base_url="http://localhost:9001/v1")])
    async with feed(env) as fed:
        group = await fed.ask("fix-the-parser", members=8, name="step-12/3", version=12)
        for row in group.scored.rows:  # token ids, masks, logprobs, advantages
            train_on(row.tokens, row.sampled, row.logprobs, row.advantages(Loss.TOKENS))
        save_weights()
        await fed.confirm([group.name])

Until you confirm it, you may ask for a group under this name again, also after a crash: you get the same rollouts. When
it is confirmed the name is used up, so no group is trained on twice. Two simultaneous callers with one name get
the same group. Give `feed` the names in your trainer's checkpoint (`trained`): they are confirmed before anything
else is done, and groups with other names are given again.

In a program without an event loop, `FeedThread` is the same in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Self

from typing_extensions import TypeVar

from envs.config import MOST_MEMBERS, has_surrogates
from envs.messages import describe_error
from envs.running.environment import Environment
from envs.running.group import confirm
from envs.running.resources import Resources
from envs.running.run import Pace, Run, Sink, cancel, follow_load, open_run
from envs.running.sinks import TrainerGroup, give
from envs.types import Failure, InfraError, Task

S = TypeVar("S", bound=Sink, default=Any)
P = TypeVar("P", bound=Pace, default=Any)
T = TypeVar("T")

OpenSink = Callable[[Run], AbstractAsyncContextManager[S]]
MakePace = Callable[[Run, S], P]


LOOK_S = 1.0
"""Between two looks of a waiting thread whether the run's thread lives, in seconds."""


class RunEnded(RuntimeError):
    """Nothing can be asked of a run any more; its cause says why."""


class Feed(Generic[S, P]):
    """An open run and the making of its groups. Made by `feed`.

    run: the source of the groups. sink: the destination of groups in the run's own order. pace: how fast these are
    made.
    """

    def __init__(self, run: Run, sink: S, pace: P, making: asyncio.Task[None]) -> None:
        self.run = run
        self.sink = sink
        self.pace = pace
        self._making = making
        self._pending: dict[str, _PendingGroup] = {}

    async def done(self) -> None:
        """Wait until no more groups are made: the pace says so, or the run was asked to stop. Raises the error that
        ended it."""
        await asyncio.wait([self._making])
        self._making.result()

    @property
    def ended(self) -> bool:
        """Tell whether no more groups are made."""
        return self._making.done() or self.run.env.stopping.requested

    @property
    def resources(self) -> Resources:
        """Return the run's texts, such as prompt templates: `fed.resources[name] = text` is for all groups that begin
        later."""
        return self.run.resources

    def stop(self) -> None:
        """Stop in good order: nothing new is begun, and unfinished groups have `shutdown_s` to finish."""
        self.run.env.stopping.ask()

    async def ask(
        self, task: str | Task, *, members: int, name: str, version: int = 0, max_tokens: int | None = None
    ) -> TrainerGroup:
        """Make a group of one task now, and return it when it is judged.

        task: one of the run's, by its id, or another. members: rollouts of the group. name: a name of your own, under
        which you confirm the group; an existing group of this name is returned. version: of the weights that you
        want it sampled from, noted in its rollouts as the step. max_tokens: of a row; None for the run's own.

        The group is yours as it is: its rewards may be equal, and it may have no rows (`scored.dropped` says why). If
        you no longer wait for it, it is left as it stands, and continued when you ask for it again.

        Raises BadTask for an unknown id, ValueError for the name of another group or of a confirmed one and for members
        that no group can have, InfraError for a quarantined task, RunEnded when the run has ended."""
        _check_request(members, name)
        found = self.run.queue.task(task) if isinstance(task, str) else task
        while (pending := self._pending.get(name)) is not None and not pending.waiting:
            await asyncio.wait([pending.making])  # nobody waited for it any more: it is being left
        if pending is None:
            moment = Moment(version, self.run.config.max_token_length if max_tokens is None else max_tokens)
            making = asyncio.create_task(self._make(found, members, name, moment), name=f"asked group {name}")
            pending = self._pending[name] = _PendingGroup(found.id, members, making)
            making.add_done_callback(lambda _: self._pending.pop(name))
        if (pending.task, pending.members) != (found.id, members):
            raise ValueError(f"group {name!r} has {pending.members} members of task {pending.task}; take another name")
        return await self._wait_for(pending)

    async def confirm(self, names: Collection[str]) -> None:
        """Note that you are done with groups for good: their tokens are in saved weights.

        names: their `name`. Raises UntakenGroup if one was never given, and confirms none then."""
        await confirm(self.run.journal, self.run.id, names)

    async def _wait_for(self, pending: _PendingGroup) -> TrainerGroup:
        """Wait for a group; its making ends when nobody waits any more."""
        pending.waiting += 1
        try:
            await asyncio.wait([pending.making, self._making], return_when=asyncio.FIRST_COMPLETED)
            if not pending.making.done():
                ended = None if self._making.cancelled() else self._making.exception()
                if ended is not None or self.run.env.stopping.requested:
                    why = "" if ended is None else f": {describe_error(ended)}"
                    raise RunEnded(f"no group is made any more: the run has ended{why}") from ended
            return await asyncio.shield(pending.making)
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                await cancel([pending.making])

    async def _make(self, task: Task, members: int, name: str, moment: Moment) -> TrainerGroup:
        run = self.run
        group = await run.queue.request(task, name, members)
        run.rollouts.expect(task)
        while (scored := await run.fill(group, moment)) is None:
            if not group.is_open:
                raise InfraError(Failure.TASK, f"task {task.id} is quarantined; see {run.rollouts.failures.path}")
        given = await give(run, group, scored)
        return given


def _check_request(members: int, name: str) -> None:
    """Raise ValueError for a number of members that no group can have, or a name that can't be kept."""
    if type(members) is not int or not 1 <= members <= MOST_MEMBERS:
        raise ValueError(f"members is {members!r}; give the group's number of rollouts, from 1 to {MOST_MEMBERS}")
    if not isinstance(name, str) or has_surrogates(name):
        raise ValueError(f"name is {name!r}; give a text that can be written as UTF-8")


@asynccontextmanager
async def feed(
    env: Environment,
    sink: OpenSink[S] | None = None,
    pace: MakePace[S, P] | None = None,
    *,
    command: str = "feed",
    trained: Collection[str] | None = None,
) -> AsyncIterator[Feed[S, P]]:
    """Open a run and make its groups while the block runs; unfinished groups are continued at the next
    start in the same directory.

    sink: opens the destination of groups in the run's own order, such as `partial(FileSink.to, path)`. pace: makes the
    `Pace` for their number. Without them, only groups that you `ask` for are made. command: noted as the
    reason of this start. trained: names of all groups in the trainer's saved state; other groups that it took are given
    again. None trusts the earlier confirmations.

    Raises the exceptions of `open_run`."""
    async with open_run(env, command, trained) as run, AsyncExitStack() as stack:
        opened: Any = await stack.enter_async_context((sink or _open_null_sink)(run))
        paced: Any = Moment(0, run.config.max_token_length) if pace is None else pace(run, opened)
        run.run_in_background(follow_load(run.env, run.rollouts.limiter))
        making = asyncio.create_task(run.make_groups(paced, opened), name="groups")
        fed: Feed[S, P] = Feed(run, opened, paced, making)
        try:
            yield fed
        finally:
            await cancel([making, *(pending.making for pending in fed._pending.values())])
            await cancel(run.background)


class FeedThread(Generic[S, P]):
    """A feed in a thread with an event loop of its own. Use it as `with`; other threads ask it by `call`.

    make_env: makes the environment, in that event loop. The rest is as in `feed`.
    """

    def __init__(
        self,
        make_env: Callable[[], Awaitable[Environment]],
        sink: OpenSink[S] | None = None,
        pace: MakePace[S, P] | None = None,
        *,
        trained: Collection[str] | None = None,
    ) -> None:
        self._make_env, self._sink, self._pace, self._trained = make_env, sink, pace, trained
        self._thread = threading.Thread(target=self._main, name="feed", daemon=True)
        self._opened: Future[Feed[S, P]] = Future()
        self._hangs = False
        self.error: BaseException | None = None
        """The error that has ended the run."""

    def __enter__(self) -> Self:
        self._thread.start()
        with ExitStack() as undo:
            undo.push(self)
            self.fed = self._opened.result()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._thread.is_alive():
            with suppress(RunEnded):
                self._hand_over(self._task.cancel)
            self._thread.join(0 if self._hangs else None)  # it ends with the process

    def call(self, work: Callable[[Feed[S, P]], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the feed in its thread, such as `lambda fed: fed.ask(...)`, and return its result.
        Raises its exceptions, and RunEnded when the run has ended."""
        self.check()
        working = work(self.fed)
        try:
            called = asyncio.run_coroutine_threadsafe(working, self._loop)
        except RuntimeError:
            working.close()
            self._end_as_closed()
        while not called.done() and self._thread.is_alive():
            wait([called], LOOK_S)  # an event loop that is closed meanwhile forgets it
        if not called.done():
            raise self._ended_error() from self.error
        try:
            return called.result()
        except CancelledError:
            raise self._ended_error() from self.error

    def check(self, within_s: float | None = None) -> None:
        """Raise RunEnded when the run has ended, or when its event loop does nothing for `within_s` seconds, if given:
        then it is left behind."""
        if not self._thread.is_alive():
            raise self._ended_error() from self.error
        if within_s is not None:
            answered = threading.Event()
            self._hand_over(answered.set)
            self._hangs = not answered.wait(within_s) and self._thread.is_alive()
            if self._hangs:
                raise RunEnded(
                    f"the run's event loop has been blocked for {within_s:g} s, such as by a reward function that "
                    "waits or never returns; the log says in which line"
                )

    def _hand_over(self, callback: Callable[[], object]) -> None:
        """Have the event loop call something soon. Raises RunEnded if it is closed."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            self._end_as_closed()

    def _end_as_closed(self) -> NoReturn:
        self._thread.join()  # for the error that has ended the run
        raise self._ended_error() from self.error

    def _ended_error(self) -> RunEnded:
        return RunEnded(
            "the run has ended" if self.error is None else f"the run has ended: {describe_error(self.error)}"
        )

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            self._opened.cancel()  # or somebody would wait for it for ever
        except BaseException as error:  # it is raised in the thread that asks
            self.error = error
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._feed())
        await self._task

    async def _feed(self) -> None:
        async with feed(await self._make_env(), self._sink, self._pace, trained=self._trained) as fed:
            self._opened.set_result(fed)
            await fed.done()


@dataclass(frozen=True, slots=True)
class Moment:
    """The trainer's step and longest row when a group is asked for. As a `Pace` it makes none by itself."""

    step: int
    max_tokens: int

    async def room(self, working: int) -> int | None:
        """See `Pace`."""
        return 0


@dataclass(slots=True)
class _PendingGroup:
    """A group in the making, for its callers. task: its id; waiting: how many wait for it."""

    task: str
    members: int
    making: asyncio.Task[TrainerGroup]
    waiting: int = 0


@asynccontextmanager
async def _open_null_sink(_: Run) -> AsyncIterator[Any]:
    yield None  # the pace beside it makes no group
