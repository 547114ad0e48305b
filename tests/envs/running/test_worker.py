"""A worker: a task and a seat go in, a judged rollout or a typed failure comes out."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from samples import rollout

from atropos_agent.types import EngineError, StopReason, TokenMismatch
from envs.config import AgentEnvConfig
from envs.running.permanent import is_permanent
from envs.running.watchdog import LoopWatch
from envs.running.worker import LocalWorker
from envs.types import VERIFIER_TIMED_OUT, Failure, Hidden, InfraError, Outcome, Reward, Seat, Task, Verdict
from sandboxes.base import SandboxDied

TASK = Task("t", "Do it.")
RESULT = rollout().result


class Attempts:
    """An environment whose attempts end as a test says."""

    def __init__(self, end, reward=0.5):
        self.end, self.worth = end, reward

    async def attempt(self, task, seat):
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end if isinstance(self.end, Outcome) else await self.end()

    def reward(self, task, outcome):
        return self.worth


def worker(end, reward=0.5, **options):
    return LocalWorker(Attempts(end, reward), AgentEnvConfig(tokenizer_name="x", **options), LoopWatch())


def outcome(verdict=1.0, **result):
    return Outcome(replace(RESULT, **result), Verdict(verdict, ""), {"agent": 1.0})


async def test_a_rollout_keeps_the_verifiers_verdict_beside_its_reward():
    made = await worker(outcome()).run(TASK, Seat(3, 1, step=7))
    assert (made.verdict.reward, made.verdict.solved, made.reward) == (1.0, True, Reward(0.5))
    assert made.seat == Seat(3, 1, step=7)
    assert set(made.timings_s) == {"agent", "total"}


async def test_an_attempt_without_an_outcome_is_named():
    with pytest.raises(InfraError, match="`attempt` returned a NoneType; return an Outcome"):
        await worker(lambda: asyncio.sleep(0)).run(TASK, Seat())
    with pytest.raises(InfraError, match=r"Outcome\.verdict is a float; give the Verdict"):
        await worker(Outcome(RESULT, 1.0)).run(TASK, Seat())


async def test_a_rollout_without_a_reply_is_no_measurement():
    for reason in (StopReason.ANSWERED, StopReason.BROKE_OFF, StopReason.TIME, None):
        with pytest.raises(InfraError, match="no reply was sampled: the agent ended") as caught:
            await worker(outcome(0.0, steps=(), segments=(), stop_reason=reason)).run(TASK, Seat())
        assert caught.value.kind is Failure.ENVIRONMENT
        assert is_permanent(caught.value) is (reason in (StopReason.ANSWERED, None)), "the others may pass"


@pytest.mark.parametrize("kind", ["side call", "untaken"])
async def test_a_title_or_a_reply_that_never_arrived_is_no_work(kind):
    steps = [replace(step, branch=kind) for step in RESULT.steps]
    with pytest.raises(InfraError, match="no reply was sampled: the agent ended"):
        await worker(outcome(0.0, steps=steps, stop_reason=StopReason.BROKE_OFF)).run(TASK, Seat())


async def test_a_rollout_without_token_ids_that_has_filled_its_window_is_a_measurement():
    full = outcome(0.0, segments=(), carries_tokens=False, stop_reason=StopReason.MAX_TOKENS)
    assert (await worker(full).run(TASK, Seat(evaluating=True))).verdict.reward == 0.0


async def test_an_evaluation_is_rewarded_by_the_verifier_alone():
    made = await worker(outcome(), reward=math.nan).run(TASK, Seat(evaluating=True))
    assert made.reward == Reward(1.0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EngineError("500"), Failure.ENGINE),
        (TokenMismatch("other ids"), Failure.TOKENS),
        (SandboxDied("gone"), Failure.SANDBOX),
        (InfraError("verifier", "crashed"), Failure.VERIFIER),
        (ZeroDivisionError("a bug"), Failure.ENVIRONMENT),
        (SystemExit(3), Failure.ENVIRONMENT),
    ],
)
async def test_what_an_attempt_raises_is_told_apart_by_who_failed(error, kind):
    with pytest.raises(InfraError) as caught:
        await worker(error).run(TASK, Seat())
    assert caught.value.kind is kind
    assert caught.value.unexpected == isinstance(error, (ZeroDivisionError, SystemExit))


@pytest.mark.parametrize(
    ("end", "reward", "seat", "said"),
    [
        (outcome(verdict=math.nan), 0.0, Seat(), "verifier: the verifier's reward is nan"),
        (outcome(), math.inf, Seat(), "verifier: the reward is inf; a reward function .--env.reward, or .* finite"),
        (outcome(), Reward(1.0, [0.5, math.nan]), Seat(), "verifier: a turn's advantage is nan; a reward function"),
        (outcome(), Reward(1.0, [0.5]), Seat(), "verifier: the reward has 1 turn advantages for 2 turns; give each"),
        (outcome(), Reward(None), Seat(), "verifier: the reward is a NoneType; return a number or a Reward"),
        (outcome(), None, Seat(), "verifier: the reward is a NoneType; return a number or a Reward"),
        (
            outcome(steps=(), segments=(), stop_reason=StopReason.MAX_TOKENS),
            0.0,
            Seat(),
            "task: the prompt left no room",
        ),
        (outcome(), 0.0, Seat(max_tokens=10), r"tokens: a row of \d+ tokens is longer than 10"),
    ],
)
async def test_what_is_no_valid_measurement_is_a_failure_of_ours(end, reward, seat, said):
    with pytest.raises(InfraError, match=said) as caught:
        await worker(end, reward).run(TASK, seat)
    assert is_permanent(caught.value), "a run in which nothing else happens ends"


async def test_a_reward_of_numpys_numbers_is_kept_in_pythons():
    made = await worker(outcome(), Reward(np.float32(0.5), np.array([0.25, 0.0]), None)).run(TASK, Seat())
    assert made.reward == Reward(0.5, (0.25, 0.0), "None") and type(made.reward.value) is float


async def test_a_reward_function_that_never_gives_a_number_ends_a_run():
    with pytest.raises(InfraError) as caught:
        await worker(outcome(), math.nan).run(TASK, Seat())
    assert is_permanent(caught.value)


async def test_a_rollout_that_hangs_ends():
    async def hang():
        await asyncio.Event().wait()

    hanging = worker(hang, rollout_timeout_s=0.05, overtime_s=0.05)
    task = Task("t", "", hidden=Hidden(timeout_s=0.05))
    with pytest.raises(InfraError, match="environment: the rollout hung"):
        await hanging.run(task, Seat())


async def test_a_cancellation_from_within_is_a_failure_and_one_from_outside_is_not():
    async def cancels_itself():
        raise asyncio.CancelledError

    with pytest.raises(InfraError, match="cancelled from within"):
        await worker(cancels_itself).run(TASK, Seat())
    running = asyncio.create_task(worker(asyncio.Event().wait).run(TASK, Seat()))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    "end",
    [
        outcome(stop_reason=StopReason.TIME),
        Outcome(RESULT, Verdict(0.0, "the tests did not end in time", metrics={VERIFIER_TIMED_OUT: 1.0})),
    ],
    ids=["the agent", "the verifier"],
)
async def test_time_that_ran_out_while_the_process_stood_still_proves_nothing(end):
    class Suspended(LoopWatch):
        def suspended_since(self, moment):
            return 30.0

    standing = LocalWorker(Attempts(end), AgentEnvConfig(tokenizer_name="x"), Suspended())
    with pytest.raises(InfraError, match="suspended for 30 s"):
        await standing.run(TASK, Seat())
