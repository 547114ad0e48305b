"""A worker process as the driver sees it: silent for too long, it is lost."""

import asyncio
import logging

import pytest

from envs.running.remote import live as live_module
from envs.running.remote.folders import Folders
from envs.running.remote.live import LiveWorker, WorkerLostError
from envs.running.remote.messages import (
    RemoteFailure,
    RolloutFailure,
    SampledTokens,
    WorkerGoneError,
    WorkerLogRecord,
    WorkerUnreachableError,
)
from envs.types import Failure, InfraError, Seat, Task

TASK = Task("t", "Do it.")


class Answers:
    """A link whose calls end as a test says: `ends`, by method, values or exceptions, the last for ever."""

    def __init__(self, **ends):
        self.ends = {name: list(found) for name, found in ends.items()}
        self.told = []

    async def call(self, method, *arguments):
        self.told.append((method, *arguments))
        found = self.ends.get(method, [None])
        end = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(end, Exception):
            raise end
        if end == "silence":
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return end


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live_module, "AGAIN_S", 0.0)
    monkeypatch.setattr(live_module, "ANSWER_S", 0.02)
    monkeypatch.setattr(live_module, "SILENT_S", 0.06)


def live(link, sampled=lambda tokens: None):
    return LiveWorker(link, "node", Folders(), sampled)


@pytest.mark.parametrize("end", ["silence", WorkerUnreachableError("no route")])
async def test_a_worker_that_does_not_answer_is_lost(end):
    with pytest.raises(WorkerGoneError, match="it has not answered for"):
        await live(Answers(news=[end])).listen()


async def test_one_answer_that_fails_to_come_is_asked_for_again():
    link = Answers(
        news=[
            [(1, SampledTokens([5]))],
            WorkerUnreachableError("lost"),
            [(1, SampledTokens([5])), (2, SampledTokens([7]))],
            WorkerGoneError("end"),
        ]
    )
    told = []
    with pytest.raises(WorkerGoneError, match="end"):
        await live(link, told.append).listen()
    assert told == [[5], [7]], "what had arrived is not taken in twice"
    assert [after for _, after in link.told] == [0, 1, 1, 2]


async def test_what_it_logs_is_logged_here_by_its_name(caplog):
    link = Answers(
        news=[[(1, WorkerLogRecord("envs.some", logging.WARNING, "the disk is full"))], WorkerGoneError("end")]
    )
    with pytest.raises(WorkerGoneError):
        await live(link).listen()
    assert [(one.name, one.getMessage()) for one in caplog.records] == [("envs.some", "[node] the disk is full")]


async def test_an_order_that_may_not_have_arrived_is_given_again():
    link = Answers(begin=[WorkerUnreachableError("lost"), None])
    one = live(link)
    making = asyncio.ensure_future(one.make(1, TASK, Seat()))
    while True:
        if [method for method, *_ in link.told] == ["begin", "begin"]:
            break
        await asyncio.sleep(0.001)
    assert one.fail_rollouts() == 1
    with pytest.raises(WorkerLostError):
        await making


async def test_a_failure_there_is_a_failure_here():
    failure = RemoteFailure.of(InfraError(Failure.VERIFIER, "it crashed"))
    one = live(Answers(news=[[(1, RolloutFailure(7, failure, None))], WorkerGoneError("end")]))
    making = asyncio.ensure_future(one.make(7, TASK, Seat()))
    await asyncio.sleep(0)
    with pytest.raises(WorkerGoneError):
        await one.listen()
    with pytest.raises(InfraError, match=r"verifier: it crashed \(on node\)"):
        await making
