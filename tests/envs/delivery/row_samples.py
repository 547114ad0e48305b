"""Rollouts of several segments, and what a trainer gets of them."""

import gzip

import orjson

from atropos_agent.types import IGNORED, AgentResult, AgentStep, Exchange, SequenceData, StopReason
from envs.delivery.estimators import USUAL
from envs.delivery.rows import Origin, score_group
from envs.types import Reward, Rollout, Task, Verdict

TASK = Task("t", "Do it.")


def rollout(reward, segments=1, name="r", *, turn_advantages=()):
    """A rollout of one reply a segment; a reply of segment n (from 0) has n + 2 tokens."""
    rows, steps, record = [], [], []
    for n in range(segments):
        ids, logprobs = list(range(2, n + 4)), [-0.5] * (n + 2)
        rows.append(SequenceData("ab", [1, *ids], [IGNORED, *ids], [1.0, *logprobs], segment=n))
        steps.append(AgentStep(n, "ab", segment=n, start=1, completion_tokens=len(ids)))
        record.append(Exchange(False, (1,), tuple(ids), tuple(logprobs)))
    result = AgentResult(
        True,
        "done",
        tuple(steps),
        StopReason.ANSWERED,
        tuple(rows),
        ({"role": "user", "content": "x"},),
        record=tuple(record),
    )
    return Rollout(name, TASK, result, Verdict(reward, "said"), Reward(reward, turn_advantages))


def score(rollouts, number=0, estimator=USUAL):
    return score_group(rollouts, Origin(number, f"g{number}", TASK.id), estimator)


def group_of(*rollouts):
    return score([rollout(*r, name=f"r{i}") for i, r in enumerate(rollouts)]).to_wire()


def sent(packet):
    """What a trainer gets of a packet."""
    return orjson.loads(b"{" + gzip.decompress(packet.body))
