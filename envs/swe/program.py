"""The software engineering environment as `python -m envs.swe` starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.cli import Program
from envs.swe.config import SWEEnvConfig

if TYPE_CHECKING:
    from envs.cli.doctor import Surroundings
    from envs.swe.environment import SWEEnv


def _load() -> type[SWEEnv]:
    from envs.swe.environment import SWEEnv  # takes its time, which a misspelt option need not

    return SWEEnv


def _surroundings() -> Surroundings:
    from envs.swe.doctor import surroundings

    return surroundings


PROGRAM = Program("python -m envs.swe", SWEEnvConfig, _load, _surroundings)
