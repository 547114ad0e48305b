"""Options of environments made of functions."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from envs.config import AgentEnvConfig


class FunctionConfig(AgentEnvConfig):
    """Options of an environment made of a function."""

    needs_tools: ClassVar[bool] = False

    prompts: dict[str, Path] = Field(default={})
    """Files in place of the function's prompt templates, as name=file"""
    sandbox: str = "docker"
    """What makes the sandboxes of functions that take one: docker, local (without isolation), or package.module:factory
    of a backend"""
