"""The command line of every environment, and `doctor`'s checks. An environment's file ends with its `run`."""

from envs.cli.program import Program, load_environment, main, run

__all__ = ["Program", "load_environment", "main", "run"]
