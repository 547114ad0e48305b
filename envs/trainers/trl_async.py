"""Feed TRL's AsyncGRPOTrainer (1.16): its rollout worker is a run of an environment in a thread.

docs/trainers.md has the lines to write. Staleness and importance ratios are TRL's. A row with several advantages is
given once for each, with those tokens alone to train.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from atropos_agent.engines.completions import CompletionsServer
from envs.config import AgentEnvConfig
from envs.delivery.exports import trl_samples
from envs.running.feed import Feed
from envs.running.run import Run
from envs.running.sinks import HandOverSink, TrainerGroup
from envs.trainers.checkpoints import CheckpointedFeed, MakeEnv
from envs.trainers.ledger import HandedRow, Ledger
from envs.trainers.named import refuse_weight


class Metrics(dict[str, float]):
    """The trainer's logged values of a sample. Its collator goes through them when it packs the sample into a batch,
    and gives no other sign of batches: the ledger takes note."""

    def __init__(self, ledger: Ledger, handed: HandedRow, values: dict[str, float]) -> None:
        super().__init__(values)
        self.ledger, self.handed = ledger, handed

    def __iter__(self) -> Iterator[str]:
        self.ledger.pack(self.handed)
        return super().__iter__()


class Buffer(queue.Queue[SimpleNamespace]):
    """The trainer's queue; the ledger takes note of each item taken."""

    def get(self, block: bool = True, timeout: float | None = None) -> SimpleNamespace:
        """See `queue.Queue`."""
        sample = super().get(block, timeout)
        sample.metrics.ledger.get(sample.metrics.handed)
        return sample


class Worker(CheckpointedFeed):
    """TRL's RolloutWorkerProtocol, and one of the trainer's `callbacks`.

    make_env: makes the environment, in the thread's event loop. args: of the trainer. groups: the most groups in the
    making or waiting for the trainer at the same time; those of `max_staleness` steps are enough. last_step: the rows
    of the last step. Raises ValueError for settings that don't fit."""

    without_effect = (
        *("num_generations", "max_completion_length", "top_p", "top_k", "min_p", "repetition_penalty"),
        *("chat_template_kwargs", "max_tool_calling_iterations", "fork_threshold_tokens", "request_timeout"),
        *("max_inflight_tasks", "queue_maxsize", "log_completions", "num_completions_to_print"),
    )

    def __init__(self, make_env: MakeEnv, args: Any, *, groups: int = 4) -> None:
        if args.max_steps <= 0:
            raise ValueError("give max_steps: the run draws its own tasks, and TRL would count those of train_dataset")
        sink, pace = partial(HandOverSink.to, self.hand), partial(_Pace, self)
        super().__init__(make_env, args, refuse, sink, pace)
        self.rollout_buffer = Buffer()
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self.groups = groups
        self.last_step: list[HandedRow] = []
        self._first = self.version

    def start(self) -> None:
        """See TRL's protocol. Raises ValueError for an adapter served under names of TRL's."""
        self.thread.__enter__()
        if hasattr(self.model, "peft_config"):
            self.thread.call(refuse_other_names)

    def stop(self) -> None:
        """See TRL's protocol."""
        self.thread.__exit__()

    def update_model_version(self, model_version: int) -> None:
        """See TRL's protocol: it counts from 1 at each start, and we count steps, on from the checkpoint."""
        self.version = self._first + model_version - 1

    def check_health(self, stale_after_s: float) -> None:
        """Raise RunEnded when the run has ended, or stands still. A slow rollout is no reason."""
        self.thread.check(stale_after_s)

    def step(self, batches: int) -> None:
        """Note a step of the trainer on its next so many batches."""
        self.last_step = self.ledger.step(batches)

    def hand(self, group: TrainerGroup) -> None:
        """Put a group's rows into the trainer's queue, without those already in its checkpoint."""
        lines = list(trl_samples(group))
        for number in self.ledger.hand(group.name, len(lines)):
            line = lines[number]
            handed = HandedRow(group.name, number, line["rollout_id"], line["score"])
            self.rollout_buffer.put(self._make_sample(line, handed))

    def _make_sample(self, line: dict[str, Any], handed: HandedRow) -> SimpleNamespace:
        """Return a row as the trainer takes it. Source: RolloutSample in
        trl/experimental/async_grpo/async_rollout_worker.py."""
        line |= {name: np.asarray(line[name]) for name in ("input_ids", "completion_mask")}
        line["old_log_probs"] = np.asarray(line["old_log_probs"], dtype=np.float32)
        line["metrics"] = Metrics(self.ledger, handed, line["metrics"])
        line["model_version"] += 1 - self._first
        return SimpleNamespace(**line, enqueued_at=time.time())


def refuse(config: AgentEnvConfig) -> None:
    """Raise ValueError for options of which the trainer would get no row, or none with their effect."""
    refuse_weight(config, "AsyncGRPOTrainer")
    config.check_groups()


async def refuse_other_names(fed: Feed[Any, Any]) -> None:
    """Raise ValueError if TRL sends vLLM each step's adapter under a name of its own, by which nobody would sample.
    Source: AsyncGRPOTrainer._sync_weight_lora."""
    for server in fed.run.env.servers:
        if type(server) is CompletionsServer:
            served = (await server.probe("/v1/models", "`vllm serve MODEL`")).json()["data"]
            if theirs := [model["id"] for model in served if model["id"].startswith("trl-policy-v")]:
                raise ValueError(
                    f"TRL serves the adapter in training as {theirs[0]}, and rollouts would be of "
                    f"{server.config.model_name}: start vLLM without --enable-lora, so that TRL sends merged weights"
                )


class _Pace:
    """The most groups of the worker at a time, those still to be got by the trainer included."""

    def __init__(self, worker: Worker, run: Run, _: HandOverSink) -> None:
        self._worker, self._run = worker, run
        self.max_tokens = run.config.max_token_length

    @property
    def step(self) -> int:
        """See `Pace`."""
        return self._worker.version

    async def room(self, working: int) -> int | None:
        """See `Pace`."""
        return max(0, min(self._run.useful_groups, self._worker.groups - self._worker.ledger.waiting) - working)
