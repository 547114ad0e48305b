"""A worker's place on a node: rests, and who follows a lost process."""

import pytest

from envs.running.remote import member as member_module
from envs.running.remote.member import WorkerSlot
from envs.types import Failure, InfraError

SANDBOX = InfraError(Failure.SANDBOX, "no Docker daemon")


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(member_module, "time", clock)
    return clock


@pytest.fixture
def member(clock):
    return WorkerSlot("node", None, None, lambda: None, lambda rollouts: None)


def test_after_a_failure_it_rests_and_then_gets_one_rollout_until_that_succeeds(member, clock):
    assert member.is_fit
    member.note_failure(SANDBOX)
    assert not member.is_fit
    clock.now += 2.1
    assert member.is_fit
    member.active = 1
    assert not member.is_fit, "one is enough to see whether it works again"
    member.note_success()
    assert member.is_fit


def test_it_rests_longer_with_each_failure_in_a_row(member, clock):
    rests = []
    for _ in range(12):
        member.note_failure(SANDBOX)
        rests.append(member._rests_until - clock.now)
    assert rests[:3] == [2, 4, 8]
    assert rests[-1] == 300


def test_a_task_that_cannot_be_made_is_not_its_fault(member):
    member.note_failure(InfraError(Failure.TASK, "no such image"))
    assert member.is_fit


def test_it_says_how_it_stands(member):
    assert member.state == "is starting"
    member.failure = SANDBOX
    assert member.state == "can't be opened (sandbox: no Docker daemon)"
