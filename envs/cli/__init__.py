"""The command line of every environment, and what `doctor` examines. An environment's file ends with its `run`."""

from envs.cli.program import Program, called_as, load_environment, main, run

__all__ = ["Program", "called_as", "load_environment", "main", "run"]
