"""A rollout's workplace: its steps, what is open while they are judged, its time, and what it comes to."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from samples import rollout
from task_formats import write
from verifier_samples import REWARD, AnsweringSandbox, image_of, task

from envs.judging import workplace
from envs.judging.areas import Start
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.workplace import open_workplace
from envs.types import JUDGED_IN_PLACE, Failure, HealthCheck, InfraError, Service, Step
from sandboxes.base import ExecResult


class Starts:
    """Start trees of images in which nothing but the reward is looked at."""

    async def get(self, task, image):
        return Start(None, {})


class Agents(AnsweringSandbox):
    """The agent's sandbox. setup: how a step's setup.sh ends there."""

    def __init__(self, setup=0):
        super().__init__(lambda timeout: ExecResult(0, b""))
        self._setup = setup

    async def exec(self, command, **options):
        if command[-1].endswith("setup.sh"):
            return ExecResult(self._setup, b"no such table")
        return await super().exec(command, **options)


class Backend:
    """Gives each rollout an agent's sandbox and verifiers that reward as told, and notes what is opened and closed."""

    def __init__(self, *rewards, setup=0):
        self._rewards = list(rewards)
        self._setup = setup
        self.log = []

    @asynccontextmanager
    async def open(self, spec):
        judging = spec.switch_users
        logs = {"reward.txt": str(self._rewards.pop(0)).encode()} if judging else None
        name = "verifier" if judging else "agent"
        self.log.append(f"{name} opened")
        try:
            yield AnsweringSandbox(self._judge, logs=logs) if judging else Agents(self._setup)
        finally:
            self.log.append(f"{name} closed")

    def _judge(self, timeout):
        self.log.append("judged")
        return ExecResult(0, b"")

    async def ensure_image(self, name, context=None):
        return "image"

    async def image_id(self, name):
        return name


def one_step(tmp_path):
    return task(tmp_path, "true", watched=False)


def two_steps(tmp_path, least):
    whole, files = one_step(tmp_path), write(tmp_path / "files", {"setup.sh": "true"})
    steps = [Step(name, f"Do {name}.", whole.hidden, files, least=least) for name in ("one", "two")]
    return replace(whole, steps=steps)


async def work(backend, task, result=None):
    """Returns the workplace that was worked in, and what each step was told."""
    told = []
    async with open_workplace(backend, Starts(), task, "image", agent_spec(task, "image")) as place:
        async for step in place:
            told.append(step.instruction)
            await place.judge(await place.collect(), result)
    return place, told


async def test_a_task_without_steps_is_its_own_only_step_and_its_sandbox_is_gone_when_it_is_judged(tmp_path):
    backend = Backend(1)
    place, told = await work(backend, one_step(tmp_path))
    assert told == ["Do it."]
    assert place.verdict().reward == 1.0
    assert not place.verdict().explanation.startswith("Step")
    assert backend.log.index("agent closed") < backend.log.index("judged") < backend.log.index("verifier closed")


async def test_work_is_judged_in_place_by_reports_that_came_after_it(tmp_path):
    specs = []

    class Placed(Backend):
        @asynccontextmanager
        async def open(self, spec):
            specs.append(spec)
            self.log.append("agent opened")
            yield AnsweringSandbox(self._judge)
            self.log.append("agent closed")

    backend, sample = Placed(), task(tmp_path, "true", watched=False, in_place=True)
    (place, _) = await work(backend, sample, rollout().result)
    assert backend.log == ["agent opened", "judged", "agent closed"]
    assert (place.verdict().reward, place.verdict().metrics[JUDGED_IN_PLACE]) == (1.0, 1.0)
    assert (await place.outcome(1.0)).work == ()  # of equal changes the verdicts are compared
    door, receiver = specs[0].doors["verifier"], place._receiver
    assert (await receiver.calls(), len(receiver._calls)) == ([], 0)
    door()
    assert len(receiver._calls) == 1  # the door leads to the receiver of the judgement


async def test_work_that_the_machine_had_no_memory_for_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(Agents, "host_out_of_memory", lambda _: asyncio.sleep(0, result=True), raising=False)
    backend = Backend(1)
    with pytest.raises(InfraError, match="killed programs in the agent's sandbox") as raised:
        await work(backend, one_step(tmp_path))
    assert raised.value.kind is Failure.SANDBOX
    assert "judged" not in backend.log


async def test_steps_share_a_sandbox_and_have_a_verifier_each(tmp_path):
    backend = Backend(1, 0)
    place, told = await work(backend, two_steps(tmp_path, {"reward": 1.0}))
    assert told == ["Do one.", "Do two."]
    assert place.verdict().reward == 0.5
    assert backend.log.count("agent opened") == 1
    assert backend.log.count("verifier opened") == 2


async def test_a_step_that_is_not_good_enough_is_the_last(tmp_path):
    place, told = await work(Backend(0), two_steps(tmp_path, {"reward": 1.0}))
    assert told == ["Do one."]
    assert place.verdict().reward == 0.0


async def test_a_step_that_cannot_begin_is_judged_and_is_no_rollout_where_it_is_the_first(tmp_path):
    place, told = await work(Backend(1, setup=3), two_steps(tmp_path, {}), rollout().result)
    assert told == []
    assert "setup.sh ended with 3: no such table" in place.verdict().explanation
    with pytest.raises(InfraError, match=r"setup\.sh ended with 3") as failed:
        await place.outcome(1.0)
    assert failed.value.kind is Failure.TASK


async def test_an_outcome_has_the_time_of_each_phase_and_what_was_made_of_each_step(tmp_path):
    place, _ = await work(Backend(1, 1), two_steps(tmp_path, {}), rollout().result)
    outcome = await place.outcome(1.0)
    assert set(outcome.timings_s) == {"open", "agent", "sandbox", "verifier"}
    assert len(outcome.work) == 2
    assert len(outcome.result.steps) == 2 * len(rollout().result.steps)
    assert not (await place.outcome(0.0)).work


@pytest.mark.parametrize("killed", [0, 1])
async def test_a_slow_start_of_the_verifiers_sandbox_is_no_time_of_the_verifier(tmp_path, monkeypatch, killed):
    now, agents_closed = [0.0], asyncio.Event()
    monkeypatch.setattr(workplace, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Backend):
        def _judge(self, timeout):
            now[0] += 2
            return ExecResult(137 if self._rewards else 0, b"")

        @asynccontextmanager
        async def open(self, spec):
            if spec.switch_users:
                await agents_closed.wait()
                now[0] += 3
            async with super().open(spec) as sandbox:
                yield sandbox
            agents_closed.set()

    place, _ = await work(Slow(*[""] * killed, 1), one_step(tmp_path), rollout().result)
    each = {"sandbox": 3.0, "verifier": 2.0}
    spent = {phase: s * (1 + killed) for phase, s in each.items()}
    assert (await place.outcome(1.0)).timings_s == {"open": 0.0, "agent": 0.0, **spent}


async def test_a_step_that_is_begun_late_has_a_second_left_where_the_rollout_has_one(tmp_path):
    task = one_step(tmp_path)
    async with open_workplace(Backend(1), Starts(), task, "image", agent_spec(task, "image")) as place:
        assert (place.left_s(60.0), place.left_s(0.5)) == (60.0, 0.5)
        async for _ in place:
            await asyncio.sleep(0.05)
            await place.collect()
            assert 59.0 < place.left_s(60.0) < 60.0
            assert place.left_s(1.01) == 1.0


async def test_all_that_is_open_is_closed_where_the_work_fails(tmp_path):
    backend = Backend(1)
    task = one_step(tmp_path)
    with pytest.raises(ValueError, match="the agent failed"):
        async with open_workplace(backend, Starts(), task, "image", agent_spec(task, "image")) as place:
            async for _ in place:
                await asyncio.sleep(0)
                raise ValueError("the agent failed")
    assert sorted(backend.log) == ["agent closed", "agent opened", "verifier closed", "verifier opened"]


@pytest.mark.docker
async def test_what_an_image_starts_with_runs_beside_the_work_and_its_tests(docker_backend, tmp_path):
    start = '#!/bin/sh\\n(sleep 0.3; touch /up; sleep 60) &\\nexec "$@"\\n'
    lines = f"RUN printf '{start}' > /start && chmod +x /start && touch .hidden"
    sample = task(tmp_path, f"[ -e /up ] && [ -e seen ] && [ ! -e .hidden ] && {REWARD.format(1)}", workdir=None)
    check = HealthCheck("[ -e /up ] && rm -f .hidden", interval_s=0.1, retries=30)
    service = Service(("/start", "sleep", "60"))
    sample = replace(sample, context=image_of(tmp_path, True, lines), service=service, health=check)
    image = await docker_backend.ensure_image(None, sample.context)
    spec = agent_spec(sample, image)
    async with open_workplace(docker_backend, StartTrees(docker_backend), sample, image, spec) as place:
        async for _ in place:
            await place.sandbox.exec("[ -e /up ] && [ ! -e .hidden ] && touch seen")
            changes = await place.collect()
            await place.judge(changes)
    assert place.verdict().solved, place.verdict().explanation
    assert (changes.added, changes.deleted) == (("seen",), ())  # beside what the health check has changed
