"""prime-rl's own code on our traces: advantages, samples and batches on disk, read back as its trainer reads them.

prime-rl is on no index. In an environment with verifiers 0.4.0 and msgspec, with its sources, and verifiers' at the
commit in its deps/verifiers, on PYTHONPATH:
`PYTHONPATH=prime-rl/src:prime-rl/packages/prime-rl-configs/src:verifiers pytest tests/envs/trainers/test_prime_rl.py`
(test_verifiers.py so, too, with mcp below 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_destinations import GROUPS, lines, made

from envs.delivery.exports import Export

trajectories = pytest.importorskip("prime_rl.orchestrator.trajectories", reason="prime-rl is not installed")

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]  # of the library

Row = tuple[tuple[int, ...], tuple[bool, ...], tuple[float, ...], tuple[float, ...]]
"""Token, mask, logprob and advantage of each place."""


def as_row(tokens: Iterable[int], mask: Iterable[bool], logprobs: Iterable[float], advantages: Iterable[float]) -> Row:
    own = tuple(map(bool, mask))
    numbers = (
        tuple(float(np.float32(value)) * sampled + 0.0 for value, sampled in zip(values, own, strict=True))
        for values in (logprobs, (round(value, 5) for value in advantages))
    )
    return tuple(tokens), own, *numbers  # type: ignore[return-value]


def true_rows(group: Export) -> list[Row]:
    """The group's rows with the advantages of prime-rl: the reward less the mean over rollouts."""
    rewards = {row.rollout_id: row.score for row in group.scored.rows}
    mean = fmean(rewards.values()) if rewards else 0.0
    return [
        as_row(row.tokens, row.sampled, row.logprobs, [row.score - mean] * len(row.tokens)) for row in group.scored.rows
    ]


async def samples_of(group: Export, algorithm: Any) -> list[Any]:
    """The samples of a group, as the orchestrator makes them from the traces that it got."""
    traces = [trajectories.vf.WireTrace(**line["traces"][0]) for line in lines("verifiers", group)]
    for trace in traces:
        for node in trace.nodes:
            node.advantages = None  # as `envs.trainers.verifiers` gives it
    if traces:
        await algorithm.score_group([SimpleNamespace(traces=[trace]) for trace in traces])
    samples = [sample for trace in traces for sample in trajectories.trace_to_samples(trace, env_name="atropos")]
    for sample in samples:
        sample.temperatures = [1.0] * len(sample.token_ids)
    return samples


async def test_the_trainer_reads_our_rows_with_the_advantages_of_prime_rl(tmp_path: Any) -> None:
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.trainer.batch import build_bin_cost, prepare_batch
    from prime_rl.transports.rollouts.filesystem import FileSystemMicroBatchReceiver, FileSystemMicroBatchSender

    algorithm = GRPOAlgorithm.__new__(GRPOAlgorithm)  # which would ask for inference servers
    algorithm.length_penalty = None
    groups = [made(number) for number in range(GROUPS)]
    samples = [sample for group in groups for sample in await samples_of(group, algorithm)]
    packed = prepare_batch(
        rollouts=samples, seq_len=4096, num_train_workers=2, bin_cost=build_bin_cost(None), pad_to_multiple_of=1
    )
    await FileSystemMicroBatchSender(tmp_path, 2, 0).send(packed)
    read = []
    for rank in range(2):
        for batch in FileSystemMicroBatchReceiver(tmp_path, rank, 0).receive():
            start = 0
            for length in batch.seq_lens:
                columns = (batch.input_ids, batch.loss_mask, batch.inference_logprobs, batch.advantages)
                read.append(as_row(*(column[start : start + length] for column in columns)))
                start += length
    trained = [row for row in read if any(row[1])]  # the rest fills the batches up
    wanted = [row for group in groups for row in true_rows(group)]
    assert len(trained) == len(wanted) > 4 * GROUPS
    assert Counter(trained) == Counter(wanted)
