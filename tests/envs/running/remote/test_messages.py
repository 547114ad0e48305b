"""What goes between driver and worker comes out as it went in."""

import pickle
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from samples import rollout

from atropos_agent.types import AgentError, EngineError
from envs.running.failures import attribute
from envs.running.permanent import is_permanent
from envs.running.remote.messages import PIECE, RemoteError, RemoteFailure, join_rollout, split_rollout
from envs.types import Failure, InfraError, Seat, Task
from sandboxes.base import DaemonError, SandboxError

ROOT = Path(__file__).parents[4]
TASK, SEAT = Task("t", "Do it."), Seat(3, 1, step=7)


def test_a_rollout_comes_in_pieces_that_fit_a_message_and_gets_the_drivers_task_and_seat():
    noise = random.Random(0).randbytes(3 * PIECE)  # nothing that could be made smaller
    made = replace(rollout(), work=({"archive": noise},))
    sent = pickle.loads(pickle.dumps(split_rollout(5, made)))
    assert [piece.number for piece in sent] == [5] * len(sent)
    assert [piece.last for piece in sent] == [False] * 3 + [True]
    assert max(len(piece.piece) for piece in sent) <= PIECE
    assert join_rollout([piece.piece for piece in sent], TASK, SEAT) == replace(made, task=TASK, seat=SEAT)


@pytest.mark.parametrize(
    ("error", "kind", "lasting"),
    [
        (EngineError("500"), Failure.ENGINE, False),
        (SandboxError("no such image"), Failure.SANDBOX, True),
        (DaemonError("it stopped"), Failure.SANDBOX, False),
        (ValueError("a bug"), Failure.ENVIRONMENT, True),
    ],
)
def test_a_failure_arrives_with_its_kind_its_traceback_and_whether_it_would_come_again(error, kind, lasting):
    raised = attribute(error)
    raised.__cause__ = error
    assert is_permanent(raised) == lasting
    failure = pickle.loads(pickle.dumps(RemoteFailure.of(raised)))
    found = failure.error("node-7")
    assert found.kind is kind
    assert str(found) == f"{raised} (on node-7)"
    assert found.unexpected == isinstance(error, ValueError)
    assert is_permanent(found) == lasting
    assert isinstance(found.__cause__, RemoteError)
    assert f"{type(error).__name__}: {error}" in str(found.__cause__)


def test_the_end_of_the_conversation_comes_with_a_failure_and_its_tokens_do_not():
    result = rollout().result
    error = InfraError(Failure.ENGINE, "500")
    error.__cause__ = AgentError("500", result)
    partial = RemoteFailure.of(error).error("node-7").__cause__.partial
    assert partial.counts == result.counts
    assert list(partial.messages) == list(result.messages)[-len(partial.messages) :]
    assert (partial.segments, partial.record) == ((), ())


def test_nothing_but_our_own_messages_is_unpickled_outside_of_sandboxes():
    allowed = {
        "envs/running/remote/messages.py",  # what a worker process sends
        "envs/lab/trainer.py",  # torch.load: its own checkpoint, weights only
    }
    found = {
        str(path.relative_to(ROOT))
        for folder in ("atropos_agent", "envs", "tools", "sandboxes")
        for path in (ROOT / folder).rglob("*.py")
        if "inside" not in path.parts and "starter" not in path.parts
        if re.search(
            r"\b(c?pickle|cloudpickle|marshal|torch|shelve|joblib)\.loads?\(|Unpickler|allow_pickle=(?!False)",
            path.read_text(),
        )
    }
    assert found == allowed
