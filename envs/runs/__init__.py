"""Read a run: its rollouts, groups, tasks and metrics, while it goes on and afterwards."""

from envs.runs.reader import RunReader, open_run

__all__ = ["RunReader", "open_run"]
