"""`python -m envs.swe`: the software engineering environment on the command line."""

from __future__ import annotations

import sys
from importlib import import_module

USAGE = """\
python -m envs.swe COMMAND [OPTIONS]

  serve      make groups for a trainer that is registered with the Atropos API
  process    make groups without a trainer; JSONL and an HTML page
  evaluate   attempt every evaluation task; pass@k with standard errors
  doctor     is everything there, and would training be right? A certificate, also with --json
  demo       everything at once, on this machine: engine, trainer API, environment, a stand-in trainer
  groups     what became of a run's groups, and why, in one table: `groups RUN_DIR`
  learn      a model gets better on this machine: everything above with a trainer, and its curve
  tasks      `tasks check FOLDER`, `tasks forge PACKAGE...`, `tasks convert FORMAT SOURCE`
  warmstart  train the small model's adapter for the demo

COMMAND --help shows the options of each.
"""

MODULES = {
    "demo": "envs.lab.demo",
    "doctor": "envs.swe.doctor",
    "groups": "envs.running.groups",
    "learn": "envs.lab.learn",
    "tasks": "envs.swe.tasks",
    "warmstart": "envs.lab.warm_start",
}
"""Commands that are modules of their own, each with a `main`."""


def main(argv: list[str]) -> int:
    """Run a command. The heavy imports of one command are not paid by another."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("serve", "process", "evaluate"):
        from envs.cli import main as run
        from envs.swe.environment import SWEEnv

        return run(SWEEnv, command, rest)
    if command in MODULES:
        return int(import_module(MODULES[command]).main(rest))
    if command in ("", "-h", "--help"):
        print(USAGE)
        return 0
    print(f"there is no command {command!r}\n\n{USAGE}", file=sys.stderr)
    return 2


def command() -> int:
    """Run the command that this process was started with: `atropos-agent` on the command line."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command())
