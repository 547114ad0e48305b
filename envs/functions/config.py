"""Options of environments made of functions."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from envs.config import AgentEnvConfig


class FunctionConfig(AgentEnvConfig):
    """Options of an environment made of a function."""

    prompts: dict[str, Path] = Field(default={})
    """Files in place of the function's prompt templates, as name=file"""
    sandbox: str = "docker"
    """What makes the sandboxes of functions that take one: docker, local (without isolation), or package.module:factory
    of a backend"""
