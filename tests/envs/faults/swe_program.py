"""`python -m envs.swe`, with no task quarantined, however often it fails."""

import sys

from envs.cli import run
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv


class Untiring(SWEEnvConfig):
    task_failures: int = 100_000


class Faulty(SWEEnv):
    env_config_cls = Untiring


if __name__ == "__main__":
    sys.exit(run(Faulty))
