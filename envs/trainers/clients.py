"""Make rollouts for a trainer that samples in its own process: an open run for each of its clients."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from atropos_agent.types import StopReason
from envs.delivery.exports import verl_rows
from envs.delivery.rows import Row
from envs.options import EngineConfig
from envs.running.sinks import TrainerGroup
from envs.trainers.named import Runs, check_rows, rollout

Made = tuple[Sequence[Row], bool]
"""A rollout's rows, and whether a budget ended it."""


class Clients:
    """Runs by the client that samples for them, open as long as the event loop in which they were asked for.

    trainer: its name. serve: makes an inference server's class of a client. at_end: takes what closes a run, for an
    event loop that does not cancel its tasks at its end."""

    def __init__(
        self,
        trainer: str,
        serve: Callable[[Any], Callable[..., Any]],
        at_end: Callable[[Callable[[], Awaitable[None]]], None] = lambda _: None,
    ) -> None:
        self._trainer, self._serve, self._at_end = trainer, serve, at_end
        self._runs: dict[Hashable, tuple[Any, Runs]] = {}  # the client, too, so that no other gets its id

    async def rollout(
        self,
        client: Any,
        environment: str,
        options: Sequence[str],
        task: str,
        sampling: Mapping[str, Any],
        *,
        training: bool = True,
        max_tokens: int | None = None,
        tokenizer: str = "",
        engine: EngineConfig | None = None,
    ) -> Made:
        """Make a rollout of a task, in the open run of a client.

        sampling, training, engine: as in `Runs.run`. max_tokens: of a row. tokenizer: the default of
        `--env.tokenizer_name`. Raises InfraError if there is no row, ValueError for options that the trainer can't
        take, and those of `Feed.ask`."""
        key = (id(client), environment, *options)
        if key not in self._runs:
            own = f"-{os.getpid()}-{uuid.uuid4().hex[:6]}"  # other workers have runs of their own
            runs = Runs(environment, options, self._trainer, self._serve(client), own=own)
            self._runs[key] = client, runs
            self._at_end(runs.close)
        _, runs = self._runs[key]
        names = {"tokenizer_name": runs.options.env.tokenizer_name or tokenizer}
        asked = engine or EngineConfig(model_name=self._trainer)
        fed = await runs.run(asked, sampling, training=training, **names)
        if max_tokens is not None:
            max_tokens = min(max_tokens, fed.run.config.max_token_length)

        def read(given: TrainerGroup) -> Made:
            (made,) = given.rollouts.values()
            ended = made.result.stop_reason
            cut = ended in {StopReason.MAX_STEPS, StopReason.MAX_TOKENS, StopReason.TIME}
            return check_rows(given.scored, self._trainer if training else None), cut

        return await rollout(fed, task, uuid.uuid4().hex, read, max_tokens)


def one_row(rows: Sequence[Row], trainer: str) -> dict[str, Any]:
    """Return a rollout's only row as whole lists `tokens`, `mask` and `logprobs`, up to its last sampled token, with
    `start`, the place of the first one. Raises ValueError for several rows."""
    if len(rows) > 1:
        raise ValueError(
            f"rollout {rows[0].rollout_id} has {len(rows)} rows, and {trainer} takes one a rollout; "
            "leave compaction, sub-agents and templates that rewrite their history to another trainer"
        )
    (row,) = verl_rows(rows)
    start, mask = len(row["prompt_ids"]), row["response_mask"]
    end = start + len(mask) - mask[::-1].index(1)
    return {
        "tokens": [*row["prompt_ids"], *row["response_ids"]][:end],
        "mask": [*[0] * start, *mask][:end],
        "logprobs": [*[0.0] * start, *row["response_logprobs"]][:end],
        "start": start,
    }
