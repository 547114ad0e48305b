"""Check the settings of TRL's trainers (1.16). `envs.trainers.trl_async` feeds its AsyncGRPOTrainer,
`envs.trainers.trl_grpo` its GRPOTrainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from envs.config import AgentEnvConfig

_WITHOUT_EFFECT = (
    *("top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation"),
    *("chat_template_kwargs", "max_tool_calling_iterations", "fork_threshold_tokens"),
)


def given_reward(completions: Sequence[Any], reward: Sequence[float] = (), **_: Any) -> list[float]:
    """Return the environment's rewards: `reward_funcs` of TRL's trainers (they want some)."""
    return list(reward) or [0.0] * len(completions)


def check_args(args: Any, *others: str) -> None:
    """Raise ValueError for a trainer's settings that the environment's stand in for. others: of this trainer alone."""
    known = [field for field in dataclasses.fields(args) if field.name in (*_WITHOUT_EFFECT, *others)]
    if given := [field.name for field in known if getattr(args, field.name) != field.default]:
        raise ValueError(
            f"{', '.join(given)} of {type(args).__name__} would have no effect: the environment samples, by its own "
            "options (--env.…); leave them out"
        )


def check_temperature(args: Any, config: AgentEnvConfig) -> None:
    """Raise ValueError if the trainer computes logprobs at another temperature than that of sampling."""
    if args.temperature != config.temperature:
        raise ValueError(
            f"TRL's temperature is {args.temperature}, and --env.temperature is {config.temperature}: its ratios would "
            "be of other probabilities than the sampled ones; give both the same"
        )
