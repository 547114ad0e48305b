"""Feed TRL's GRPOTrainer (1.16): its rollout function asks a run for the groups of a step.

    args = GRPOConfig("out", num_generations=8, save_steps=1)
    with RolloutFunction(make_env, args, "http://localhost:9001", model) as rollouts:
        trainer = GRPOTrainer(
            model=model, args=args, reward_funcs=given_reward, callbacks=[rollouts], rollout_func=rollouts,
            train_dataset=Dataset.from_list([{"prompt": task.id} for task in tasks]),
        )
        trainer.train(resume_from_checkpoint=rollouts.checkpoint)

A prompt is a task's id. The trainer takes one row a rollout, no advantages, and no logprobs without vLLM: weights are
handed over before groups are made, and unfit settings are refused by name.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from envs.delivery.exports import trl_rows
from envs.running.feed import Feed
from envs.running.sinks import TrainerGroup
from envs.trainers.checkpoints import CheckpointedFeed, MakeEnv
from envs.trainers.named import refuse_advantages

EVALUATION = "evaluation-"
"""The names of an evaluation's groups begin so."""


def given_reward(completions: Sequence[Any], reward: Sequence[float] = (), **_: Any) -> list[float]:
    """Return the environment's rewards: `reward_funcs` of TRL's trainers (they want some)."""
    return list(reward) or [0.0] * len(completions)


class FinishedGroups(set[str]):
    """Names of groups that are not given again: trained on, or of an evaluation, which no checkpoint names."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith(EVALUATION)


class RolloutFunction(CheckpointedFeed):
    """A `rollout_func`, and one of the trainer's `callbacks`. Use it as `with`.

    make_env: makes the environment, in a thread's event loop. args: of the trainer. engine: address of the embedded
    inference server; model: the folder of its first weights.

    Raises ValueError for settings that don't fit."""

    without_effect = (
        *("top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation"),
        *("chat_template_kwargs", "max_tool_calling_iterations"),
    )
    finished = FinishedGroups

    def __init__(self, make_env: MakeEnv, args: Any, engine: str, model: str | Path) -> None:
        super().__init__(make_env, args, partial(refuse_advantages, trainer="GRPOTrainer"))
        self._weights = self.weights(engine, model)
        self._loaded: int | None = None
        """The step whose weights were handed over last, since this start."""
        self._names: list[str] = []
        """Of the groups of this generation, those to train on."""
        self._steps = self._left = 1
        """Of a generation, and those that it is still trained in."""

    def __enter__(self) -> RolloutFunction:
        """Start the run. Raises ValueError for more than one process."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # by torchrun and accelerate; one run can't be opened twice
            raise ValueError("a rollout function makes whole groups in one process; for several use AsyncGRPOTrainer")
        self.thread.__enter__()
        self._weights.init_weight_transfer()
        return self

    def __exit__(self, *exc: object) -> None:
        self._weights.destroy()
        self.thread.__exit__()

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Return a row for each prompt, in order. Each comes `num_generations` times in succession, in evaluations
        `num_generations_eval` times; their groups are not trained on.

        Raises ValueError for a rollout with another number of rows than one."""
        step, training = trainer.state.global_step, trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        if step != self._loaded:
            self._weights.load(step, trainer.accelerator.unwrap_model(trainer.model).save_pretrained)
            self.version = self._loaded = step
        # Of a lost step, a start with other tasks or another number of generations asks for other groups.
        of_step = f"step-{step}" if training else f"{EVALUATION}{step}-{uuid.uuid4().hex}"
        wanted = {f"{of_step}/{len(self._names) + n}/{size}/{task}": task for n, task in enumerate(prompts[::size])}
        if training:
            self._names += wanted
            self._left = self._steps
        rows = [
            row
            for group in self.thread.call(lambda fed: _request_groups(fed, wanted, size, step, done=not training))
            for row in one_row_each(group)
        ]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Check that each checkpoint is at the end of a generation: TRL shuffles its rows, and makes the rest of one
        again at the next start. Raises ValueError."""
        super().on_train_begin(args, state, control, **more)
        passes, batches = args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps
        self._steps = steps = max(1, passes // batches)
        saves = {"steps": state.save_steps, "best": 1}.get(args.save_strategy, 0)
        if (passes % batches and batches % passes) or state.max_steps % steps or saves % steps:
            raise ValueError(
                f"a generation is trained on in {passes / batches:g} steps (steps_per_generation x num_iterations / "
                "gradient_accumulation_steps), and a checkpoint within one would lose the rest of its rows: give whole "
                "generations in save_steps and max_steps, and no save_strategy best"
            )

    def step(self, batches: int) -> None:
        """Note a step of the trainer on the rows of its generation."""
        self._left -= 1
        if not self._left:
            self.ledger.trained.update(self._names)
            self._names = []


async def _request_groups(
    fed: Feed[Any, Any], wanted: dict[str, str], size: int, step: int, *, done: bool
) -> list[TrainerGroup]:
    """Return the groups of these names. done: with them for good, as in an evaluation."""
    requests = (fed.ask(task, members=size, name=name, version=step) for name, task in wanted.items())
    given = await asyncio.gather(*requests)
    if done:
        await fed.confirm(list(wanted))
    return given


def one_row_each(group: TrainerGroup) -> list[dict[str, Any]]:
    """Return the rows of a group, one a rollout. Raises ValueError naming a rollout with none, or several."""
    rows = list(trl_rows(group.scored.rows))
    lacking = set(group.rollouts) - {row["rollout_id"] for row in rows}
    for dropped in group.scored.dropped:
        if dropped.rollout_id in lacking:
            raise ValueError(
                f"rollout {dropped.rollout_id} has no row ({dropped.reason}), and GRPOTrainer wants one a prompt; "
                "AsyncGRPOTrainer goes on without it"
            )
    return rows
