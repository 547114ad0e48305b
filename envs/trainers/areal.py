"""Be AReaL's workflow: its inference engine samples, an item of its dataset names our task, and a rollout has one row.

    trainer.train(
        workflow="envs.trainers.areal.AtroposWorkflow",
        workflow_kwargs={
            "environment": "envs.swe.environment:SWEEnv",
            "options": ["--env.tasks=tasks", "--env.run_dir=runs/areal", "--env.tokenizer_name=models/mine"],
            "gconfig": config.gconfig,
        },
    )

An item has the task's id as `task`. Made for AReaL 1.0.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from areal import workflow_context
from areal.api import ModelRequest, RolloutWorkflow
from areal.api.cli_args import GenerationHyperparameters
from areal.infra.utils.concurrent import register_loop_cleanup

from atropos_agent.engines.objects import ObjectServer, Sampled
from envs.trainers.clients import Clients, Made, one_row
from envs.trainers.named import refuse_advantages, resolve_environment, task_of


class ArealEngine:
    """AReaL's inference engine, as an `Engine`. gconfig: its settings, such as the adapter's name."""

    def __init__(self, engine: Any, gconfig: Any) -> None:
        self._engine, self._gconfig = engine, gconfig

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply; AReaL goes on with it by itself after new weights."""
        settings = {"max_new_tokens" if name == "max_tokens" else name: value for name, value in params.items()}
        asked = ModelRequest(input_ids=ids, gconfig=self._gconfig.new(n_samples=1, **settings))
        got = await self._engine.agenerate(asked)
        oldest = min(got.output_versions, default=None)
        return Sampled(got.output_tokens, got.output_logprobs, got.stop_reason, oldest)


class AtroposWorkflow(RolloutWorkflow):  # type: ignore[misc]  # it need not be installed
    """An environment's rollout for each episode. An infrastructure failure is retried, then raised: AReaL leaves out
    the whole group then. A rollout left out alone would move all later ones into other groups.

    environment: as package.module:Class. options: words of its own command line. Raises UsageError, ValueError."""

    _clients: ClassVar[dict[str, Clients]] = {}
    """By the settings: AReaL makes a workflow of its name at each step."""

    def __init__(self, environment: str, options: Sequence[str], gconfig: GenerationHyperparameters) -> None:
        _, given = resolve_environment(environment, options)
        refuse_advantages(given.env, "areal")  # here it ends the trainer; in an episode AReaL would go on without rows
        self._named = environment, list(options)
        self._sampling = {"temperature": 0.0 if gconfig.greedy else gconfig.temperature, "top_p": gconfig.top_p}
        if gconfig.top_k != GenerationHyperparameters().top_k:  # which cuts nothing
            self._sampling["top_k"] = gconfig.top_k
        made = Clients(
            "areal", lambda engine: partial(ObjectServer, ArealEngine(engine, gconfig)), register_loop_cleanup
        )
        self._mine = self._clients.setdefault(repr(gconfig), made)

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any]:
        """Return a rollout of the task named by the item."""
        training = not workflow_context.get().is_eval
        task = task_of(data.get("task"), "`task`")
        made = await self._mine.rollout(engine, *self._named, task, self._sampling, training=training)
        return make_tensors(made)


def make_tensors(made: Made) -> dict[str, Any]:
    """Return a rollout as a batch of one. It ends with a sampled token: AReaL gives the reward to the last place, and
    loses it if that is not trained. Raises ValueError if the rollout has several rows."""
    (first, *_), row = made[0], one_row(made[0], "AReaL")
    length = len(row["tokens"])
    versions = [-1 if version is None else version for version in first.versions[:length]]
    return {
        "input_ids": torch.tensor([row["tokens"]], dtype=torch.int32),
        "loss_mask": torch.tensor([row["mask"]], dtype=torch.int32),
        "logprobs": torch.tensor([row["logprobs"]], dtype=torch.float32),
        "versions": torch.tensor([versions], dtype=torch.int32),
        "rewards": torch.tensor([float(first.score)], dtype=torch.float32),
        "attention_mask": torch.ones((1, length), dtype=torch.bool),
    }
