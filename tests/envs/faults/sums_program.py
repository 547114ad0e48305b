"""The environment that adds numbers, as a program. No task is quarantined, however often it fails."""

import sys

from sums import Sums

from envs.cli import run
from envs.config import AgentEnvConfig


class Untiring(AgentEnvConfig):
    task_failures: int = 100_000


class Faulty(Sums):
    env_config_cls = Untiring


if __name__ == "__main__":
    sys.exit(run(Faulty))
