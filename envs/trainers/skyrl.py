"""Be SkyRL's generator: its engines sample, its prompts name our tasks, a rollout's rows are steps of a trajectory.

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            options = ["--env.tasks=tasks", "--env.run_dir=runs/skyrl"]
            return AtroposGenerator(cfg, tokenizer, inference_engine_client, "envs.swe.environment:SWEEnv", options)

A row of the dataset has the task's id as `task`. Set `generator.step_wise_trajectories=true`. Made for SkyRL 0.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.generators.base import GeneratorInterface

from atropos_agent.engines.objects import ObjectServer, Sampled
from envs.delivery.exports import verl_rows
from envs.trainers.clients import Clients, Made
from envs.trainers.named import task_of
from envs.types import Failure, InfraError

logger = logging.getLogger(__name__)

_OURS = {"min_tokens", "skip_special_tokens", "include_stop_str_in_output", "logprobs"}
"""Sampling settings that change nothing about token ids, or that each request has."""


class SkyRLEngine:
    """SkyRL's client of its inference engines, as an `Engine`. model: the policy's name there, as of its adapter."""

    def __init__(self, client: Any, model: str) -> None:
        self._client, self._model = client, model

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply."""
        batch = {"prompt_token_ids": [ids], "sampling_params": {**params, "logprobs": 1}, "session_ids": [session]}
        version = self._client.weight_version
        out = await self._client.generate(batch, model=self._model)
        (sampled,), (finish,) = out["response_ids"], out["stop_reasons"]
        return Sampled(sampled, (out["response_logprobs"] or [()])[0], finish, version)


class AtroposGenerator(GeneratorInterface):  # type: ignore[misc]  # it need not be installed
    """An environment's rollouts for SkyRL's trajectories.

    cfg: SkyRL's. environment: as package.module:Class. options: words of its own command line. Raises ValueError
    without `step_wise_trajectories`: a rollout may have several rows, or none."""

    def __init__(self, cfg: Any, tokenizer: Any, client: Any, environment: str, options: Sequence[str] = ()) -> None:
        if not cfg.generator.step_wise_trajectories:
            raise ValueError("set generator.step_wise_trajectories=true: a rollout may have several rows, or none")
        model = resolve_policy_model_name(cfg)
        self._clients = Clients("skyrl", lambda client: partial(ObjectServer, SkyRLEngine(client, model)))
        self._client, self._tokenizer = client, tokenizer.name_or_path
        self._named = environment, list(options)

    async def generate(self, input_batch: Any) -> Any:
        """Return a row for each row of each rollout, those of a rollout side by side. A rollout that an infrastructure
        failure has ended is left out. Raises InfraError if a prompt has no rollout at all."""
        given, about = input_batch["sampling_params"] or {}, input_batch["batch_metadata"]
        sampling = {name: value for name, value in given.items() if name not in _OURS}
        training = about is None or about.training_phase == "train"
        tasks = [task_of(extra.get("task"), "column `task`") for extra in input_batch["env_extras"]]
        found = await asyncio.gather(*(self._made(task, sampling, training) for task in tasks))
        return make_output(input_batch["trajectory_ids"], found)

    async def _made(self, task: str, sampling: Mapping[str, Any], training: bool) -> Made:
        try:
            return await self._clients.rollout(
                self._client, *self._named, task, sampling, training=training, tokenizer=self._tokenizer
            )
        except InfraError as error:
            logger.error("task %s: %s; the rollout is left out", task, error)
            return (), False


def make_output(trajectories: Sequence[Any], found: Sequence[Made]) -> dict[str, Any]:
    """Return rollouts as SkyRL's `GeneratorOutput`. trajectories: their `TrajectoryID`s. Raises InfraError if a prompt
    has no row: SkyRL counts its batches in prompts."""
    every = {one.instance_id for one in trajectories}
    if lost := every - {one.instance_id for one, (rows, _) in zip(trajectories, found, strict=True) if rows}:
        raise InfraError(Failure.ROW, f"no rollout of prompt {', '.join(sorted(map(str, lost)))} has a row")
    rows = [
        (one, cut, row, place == len(rows) - 1)
        for one, (rows, cut) in zip(trajectories, found, strict=True)
        for place, row in enumerate(verl_rows(rows))
    ]
    return {
        "prompt_token_ids": [row["prompt_ids"] for _, _, row, _ in rows],
        "response_ids": [row["response_ids"] for _, _, row, _ in rows],
        "rewards": [row["reward_score"] for _, _, row, _ in rows],
        "loss_masks": [row["response_mask"] for _, _, row, _ in rows],
        "stop_reasons": ["length" if cut else "stop" for _, cut, _, _ in rows],
        "rollout_metrics": None,
        "rollout_logprobs": [row["response_logprobs"] for _, _, row, _ in rows],
        "trajectory_ids": [one for one, _, _, _ in rows],
        "is_last_step": [last for _, _, _, last in rows],
    }
