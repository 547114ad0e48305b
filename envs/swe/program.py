"""The software engineering environment as `python -m envs.swe` starts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envs.cli import Program, run
from envs.messages import SWE, replace_command
from envs.swe.config import SWEEnvConfig
from sandboxes.naming import lazy_import

PROGRAM = Program(
    SWE,
    SWEEnvConfig,
    lazy_import("envs.swe.environment:SWEEnv"),
    lazy_import("envs.swe.doctor:surroundings"),
)


def main(command: str, argv: Sequence[str]) -> int:
    """Run a command of the environment. Returns the exit status."""
    return run(replace(PROGRAM, prog=replace_command(SWE)), [command, *argv])
