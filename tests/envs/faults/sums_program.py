"""The environment that adds numbers, as a program."""

import sys

from sums import Sums

from envs.cli import run

if __name__ == "__main__":
    sys.exit(run(Sums))
