"""Open an environment named in another trainer's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envs.base import AgentEnv
from envs.options import Options
from envs.options.reading import read_options
from sandboxes.naming import resolve


def named(environment: str, options: Sequence[str]) -> tuple[type[AgentEnv[Any]], Options]:
    """Return an environment's class and the values of its options.

    environment: as package.module:Class. options: words of its command line, such as --env.tasks=tasks.
    Raises UsageError, ValueError."""
    env_cls: type[AgentEnv[Any]] = resolve("environment", environment, {})
    return env_cls, read_options(env_cls.env_config_cls, options)


SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
SAMPLING |= {"max_tokens": "max_reply_tokens"}
_OFF = {"top_k": (-1, 0), "min_tokens": (0,), "repetition_penalty": (1,), "n": (1,)}
_OFF |= {"frequency_penalty": (0,), "presence_penalty": (0,)}
"""Values without an effect."""


def sampling_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for another trainer's sampling settings. Raises ValueError for a setting without an effect
    here."""
    said = {name: value for name, value in given.items() if value is not None and value not in _OFF.get(name, ())}
    if strange := sorted(said.keys() - SAMPLING.keys()):
        raise ValueError(f"sampling settings that have no effect here: {', '.join(strange)}; remove them")
    return {SAMPLING[name]: value for name, value in said.items()}
