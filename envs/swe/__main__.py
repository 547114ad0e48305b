"""`python -m envs.swe`: the software engineering environment on the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

from atropos_agent import __version__
from envs.messages import replace_command, run_main
from envs.running.stopping import exit_on_interrupt
from sandboxes.naming import did_you_mean, lazy_import

USAGE = """\
python -m envs.swe COMMAND [OPTIONS]

  serve      make groups for a trainer at the Atropos API
  process    make groups without a trainer, as JSONL and an HTML page
  evaluate   attempt every evaluation task; report pass@k with standard errors
  doctor     check inference server, tokenizer, rows and sandboxes before you train
  view       show live or finished runs in a browser, or write rollouts into one file: `view RUN`
  groups     show each group's state and reason: `groups RUN_DIR`
  export     write rollouts as tables, triplets, or rows for TRL, verl, verifiers, tinker: `export RUN OUT`
  rejudge    judge a run's rollouts again, by other tests, rewards or verifiers: `rejudge RUN`
  tasks      `tasks get NAME`, `tasks check FOLDER`, `tasks attack FOLDER`, `tasks forge PACKAGE...`, `tasks convert …`,
             `tasks shell FOLDER ID`
  agents     compare agents by their evaluations: `agents RUN_DIR RUN_DIR…`; `agents update` finds newer versions
  join       join the parts of an evaluation that several processes made: `join OUT RUN_DIR RUN_DIR…`
  demo       run inference server, trainer API, environment and a stand-in trainer on this machine
  learn      train a small model on this machine, and plot its progress
  warmstart  train the small model's adapter for `demo` and `learn`

COMMAND --help shows the options of each; --version the package's version.
"""

COMMANDS = ("serve", "process", "evaluate", "doctor")

MODULES = {
    "agents": "envs.agents.table",
    "agents update": "envs.agents.updates",
    "demo": "envs.lab.demo",
    "export": "envs.running.exporting",
    "groups": "envs.running.groups",
    "join": "envs.records.joining",
    "learn": "envs.lab.learn",
    "rejudge": "envs.swe.rejudge",
    "tasks": "envs.swe.tasks",
    "view": "envs.viewer.command",
    "warmstart": "envs.lab.warm_start",
}
"""Commands in modules of their own, each with a `main`."""
PARSERS = {
    "agents update": "envs.agents.parsers:updates_parser",
    "demo": "envs.lab.parsers:demo_parser",
    "learn": "envs.lab.parsers:learn_parser",
    "rejudge": "envs.swe.parsers:rejudge_parser",
    "tasks": "envs.swe.parsers:tasks_parser",
    "view": "envs.viewer.parsers:view_parser",
    "warmstart": "envs.lab.parsers:warm_start_parser",
}
"""Their parsers, where the modules have slow imports, for which help and mistakes need not wait."""
_WITH_SANDBOXES = (*COMMANDS, "demo", "learn", "rejudge", "tasks")
_ELSEWHERE = (
    "This system is not Linux, on which the package is tested. Sandboxes need a Docker daemon on Linux: give "
    "--env.hosts ssh://USER@HOST, or set DOCKER_HOST"
)
_RUN = lazy_import("envs.swe.program:main")


def main(argv: Sequence[str]) -> int:
    """Run a command. The heavy imports of one command are not paid by another."""
    words = 2 if " ".join(argv[:2]) in MODULES else 1
    command, rest = " ".join(argv[:words]), argv[words:]
    if command in _WITH_SANDBOXES and not sys.platform.startswith("linux"):
        print(_ELSEWHERE, file=sys.stderr)
    if command in COMMANDS:
        return int(_RUN()(command, rest))
    if command in MODULES:
        with exit_on_interrupt():
            if command in PARSERS:
                lazy_import(PARSERS[command])()().parse_args(rest)
            print(f"{command}: loading …", file=sys.stderr)
            module = import_module(MODULES[command])
        return int(module.main(rest))
    if command == "--version":
        print(f"atropos-agent {__version__}")
        return 0
    if command in ("", "-h", "--help"):
        print(replace_command(USAGE))
        return 0
    near = did_you_mean(command, (*COMMANDS, *MODULES))
    print(f"there is no command {command!r}{near}\n\n{replace_command(USAGE)}", file=sys.stderr)
    return 2


def command() -> int:
    """Run this process's own command: `atropos-agent` on the command line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_main(main, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(command())
