"""Parsers of `demo`, `learn` and `warmstart`, apart from the work: explaining options needs none of its imports."""

from __future__ import annotations

import argparse
from pathlib import Path

from atropos_agent.formats import AUTO, load_format
from envs.agents.naming import find_foreign_agent
from envs.lab.given import add_env_option
from envs.lab.kinds import EASY
from envs.lab.presets import PRESETS
from envs.lab.recipes import CACHE, RECIPES
from envs.messages import SWE, replace_command
from sandboxes.arguments import (
    Parser,
    existing_path,
    nonempty_text,
    nonnegative_int,
    output_file,
    output_folder,
    positive_float,
    positive_int,
    url,
)

_DEMO = """\
`python -m envs.swe demo`: the whole loop on this machine, from nothing to checked batches.

It starts the Atropos API, the embedded inference server with a small real model, and the environment,
each as a process of its own, then stands in for the trainer: registers, pulls batches, checks every
row. After the requested groups it stops everything it started and reports its findings.
"""
_LEARN = """\
`python -m envs.swe learn`: train a small model on this machine, and plot its progress.

It starts the Atropos API, the inference server, the environment with Docker sandboxes and a trainer, and evaluates
on held-out tasks before, during and after. A process that dies is started again; the same `--run-dir` continues the
run.
"""
_WARM_START = """\
Train the first adapter of SmolLM2-135M: `python -m envs.swe warmstart`.

As published, that model never makes a valid call, so no reward ever differs and nothing can be
learnt. Supervised training on transcripts of made-up tasks (`envs.lab.synthetic`) gives it the format
and the commands. The transcripts of the full recipe come from two solvers without any label: one plans in a
few words, then takes the right command; the other acts at once, mostly wrongly. The choice between them is left
to reinforcement learning. An adapter is made on first use and kept in the cache of models. For a foreign
agent the transcripts are in the format of its requests (`envs.lab.manner`).
"""

WITHIN: dict[str, list[str]] = {"trl": ["-m", "envs.lab.with_trl"]}
"""Trainers with the environment in their own process, so neither the trainer API nor another process is needed."""


GIVEN = {
    "steps": "steps of the trainer",
    "groups": "groups of a step",
    "group_size": "rollouts of a group",
    "evaluations": "evaluations on held-out tasks, the first before and the last after training; 2 or more",
}
"""The fields of a preset that an option replaces, each with its help."""


def demo_parser() -> Parser:
    """Return the parser of `demo`."""
    parser = Parser(prog=replace_command(f"{SWE} demo"), description=replace_command(_DEMO))
    add = parser.add_argument
    add("--groups", type=positive_int, default=16, help="groups to pull before it ends (default: %(default)s)")
    add("--group-size", type=positive_int, default=4, help="rollouts of a group (default: %(default)s)")
    add(
        "--tags", type=nonempty_text, default=",".join(EASY), help="tasks with one of these tags (default: %(default)s)"
    )
    add(
        "--model",
        type=nonempty_text,
        default="smollm2",
        help="model of the embedded inference server (default: %(default)s)",
    )
    add("--engine-url", type=url, help="address of an inference server to use, instead of starting one")
    add("--adapter", type=existing_path, help="begin with this warm start of SmolLM2 (default: made on first use)")
    add("--run-dir", type=output_folder, help="directory of the run (default: a new one under runs/)")
    add_env_option(parser)
    return parser


def learn_parser() -> Parser:
    """Return the parser of `learn`."""
    parser = Parser(prog=replace_command(f"{SWE} learn"), description=replace_command(_LEARN))
    add = parser.add_argument
    add("--preset", choices=sorted(PRESETS), default="smoke", help="size of the run (default: %(default)s)")
    # The name of 0.1.
    add("--rung", choices=sorted(PRESETS), dest="preset", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    add(
        "--run-dir",
        type=output_folder,
        help="directory of the run; that of an earlier run continues it (default: a new one under runs/)",
    )
    add("--engine-url", type=url, help="address of an inference server to use, instead of starting one")
    add("--model", type=nonempty_text, help="folder or hub name of the model that your server serves")
    add(
        "--trainer",
        type=_parse_trainer,
        help="trl for TRL's AsyncGRPOTrainer, or a trainer's file to run instead of envs.lab.trainer",
    )
    add(
        "--adapter",
        type=existing_path,
        help="adapter that the model begins with (default: as the preset says, made on first use)",
    )
    add(
        "--agent",
        type=_check_agent,
        help="the agent for the tasks: a name of docs/agents.md, or a file (default: our own)",
    )
    add_env_option(parser)
    for name, about in GIVEN.items():
        add(f"--{name.replace('_', '-')}", type=positive_int, help=f"{about} (default: as the preset says)")
    add("--seed", type=int, default=0, help="seed of task order and trainer (default: %(default)s)")
    return parser


def _parse_trainer(text: str) -> str | Path:
    """Return a trainer's name, or its file."""
    try:
        return text if text in WITHIN else existing_path(text).resolve()
    except argparse.ArgumentTypeError:
        known = f"{', '.join(WITHIN)} or a trainer's file"
        raise argparse.ArgumentTypeError(
            f"{text} is no trainer's name and no file that is there; take {known}. Other trainers start the "
            "environment: docs/trainers.md"
        ) from None


def warm_start_parser() -> Parser:
    """Return the parser of `warmstart`."""
    parser = Parser(prog=replace_command(f"{SWE} warmstart"), description=replace_command(_WARM_START))
    add = parser.add_argument
    add(
        "--recipe",
        choices=sorted(RECIPES),
        default="full",
        help="transcripts and settings to train with (default: %(default)s)",
    )
    add("--examples", type=positive_int, help="transcripts to train on, instead of the recipe's")
    add("--rank", type=positive_int, help="rank of the adapter, instead of the recipe's")
    add("--learning-rate", type=positive_float, help="learning rate at the start, instead of the recipe's")
    add("--seed", type=int, help="seed of tasks and training, instead of the recipe's")
    add(
        "--tool-format",
        type=_check_tool_format,
        help="format of the calls in transcripts, as --env.tool_format (default: auto)",
    )
    add(
        "--agent",
        type=_check_agent,
        help="the agent for the tasks: a name of docs/agents.md, or a file (default: our own)",
    )
    add(
        "--trials",
        type=nonnegative_int,
        default=54,
        help="replies sampled afterwards to test it (default: %(default)s)",
    )
    add("--threads", type=positive_int, default=1, help="threads of one operation (default: %(default)s)")
    add("--out", type=output_file, help="copy the adapter to this file as well")
    add("--cache", type=output_folder, default=CACHE, help="folder of models and adapters (default: %(default)s)")
    return parser


def _check_agent(text: str) -> str:
    """Return the name, dotted path or file of one agent."""
    try:
        find_foreign_agent(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--env.agent ")) from error
    return text


def _check_tool_format(text: str) -> str:
    """Return the name or dotted path of a tool format."""
    try:
        if text != AUTO:
            load_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
