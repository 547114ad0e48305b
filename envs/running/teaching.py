"""Open a run's teacher: another model that scores the tokens of its rollouts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from atropos_agent.engines.teacher import Teacher
from atropos_agent.sampling import SPARE_TOKENS
from envs.config import AgentEnvConfig
from envs.running.environment import Environment


def teacher_key(config: AgentEnvConfig) -> str:
    """Return the teacher's key, "" without one. Raises ValueError if the environment has no variable with it."""
    key = os.environ.get(config.teacher_key, "")
    if config.teacher_key and not key:
        raise ValueError("--env.teacher_key is no variable of the environment; it names the one with the teacher's key")
    return key


def teacher_of(config: AgentEnvConfig) -> Teacher:
    """Return the teacher of a run's options. Raises ValueError if the environment has no variable with its key."""
    return Teacher(config.teacher, config.teacher_model, teacher_key(config), top=config.teacher_top_k)


def longest_row(config: AgentEnvConfig, servers: Iterable[Any]) -> int:
    """Return the tokens of the longest possible row. servers: the inference servers, whose context windows limit it."""
    windows: list[int | None] = [getattr(server, "max_model_len", None) for server in servers]
    return min([config.max_token_length, *(window - SPARE_TOKENS for window in windows if window is not None)])


@asynccontextmanager
async def open_teacher(env: Environment) -> AsyncIterator[Teacher | None]:
    """Open the teacher and check that it can score the environment's rows; None without one. Raises EngineError,
    ValueError."""
    if not env.config.teacher:
        yield None
        return
    if env.template is None:
        raise ValueError("--env.teacher scores token ids, and the inference server gives none; leave it out")
    async with teacher_of(env.config) as teacher:
        await teacher.check(env.template, longest_row(env.config, env.servers))
        yield teacher
