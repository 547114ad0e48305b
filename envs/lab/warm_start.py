"""Train the first adapter of SmolLM2-135M: `python -m envs.swe warmstart`.

As published, that model never makes a valid call, so no reward ever differs and nothing can be
learnt. Supervised training on transcripts of made-up tasks (`envs.lab.synthetic`) gives it the format
and the commands. The transcripts of the full recipe come from two solvers without any label: one plans in a
few words, then takes the right command; the other acts at once, mostly wrongly. The choice between them is left
to reinforcement learning. An adapter is made on first use and kept in the cache of models. For a foreign
agent the transcripts are in its manner (`envs.lab.manner`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace

from rich.console import Console

from atropos_agent.fitted import AUTO
from atropos_agent.formats import load_format
from atropos_agent.types import AgentError
from envs.lab.parts import lacking
from envs.lab.recipes import CACHE, RECIPES
from envs.messages import SWE, as_called
from envs.types import InfraError
from sandboxes.arguments import WRONG_USE, Parser, count, file, folder, named, natural, positive
from sandboxes.base import SandboxError
from sandboxes.log import set_up_log
from sandboxes.naming import later

_ADAPTING = later("envs.lab.adapting")
"""Needs PyTorch."""


def main(argv: list[str]) -> int:
    """Make an adapter, or find it, and say how well the model then calls tools. Return the exit status."""
    options = _parser().parse_args(argv)
    console = Console(stderr=True)
    if (wrong := lacking("warmstart", smollm2=RECIPES[options.recipe].model == "smollm2")) is not None:
        console.print(wrong, markup=False)
        return WRONG_USE
    adapting = _ADAPTING()
    adapting.set_up(options.threads)
    set_up_log()
    names = ("examples", "rank", "learning_rate", "seed", "tool_format", "agent")
    given = {name: getattr(options, name) for name in names}
    recipe = replace(RECIPES[options.recipe], **{name: value for name, value in given.items() if value is not None})
    cache = options.cache
    try:
        trained = adapting.make(recipe, cache, console)
    except (AgentError, InfraError, SandboxError, ValueError) as error:
        console.print(f"warmstart: {error}", markup=False)
        return 1
    if options.out is not None:
        shutil.copyfile(trained, options.out)
    if options.trials:
        parsed, planned, exact = adapting.try_out(recipe, cache, trained, options.trials)
        console.print(
            f"{options.trials} replies to unseen tasks at temperature 1: {parsed:.0%} hold a call that parses, "
            f"{planned:.0%} begin with a plan, {exact:.0%} hold the expert's own command",
            markup=False,
        )
    print(options.out or trained)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=as_called(f"{SWE} warmstart"), description=as_called(__doc__))
    add = parser.add_argument
    add("--recipe", choices=sorted(RECIPES), default="full", help="what it is made of (default: %(default)s)")
    add("--examples", type=count, help="transcripts to train on, instead of the recipe's")
    add("--rank", type=count, help="of the adapter, instead of the recipe's")
    add("--learning-rate", type=positive, help="at the start, instead of the recipe's")
    add("--seed", type=int, help="of tasks and training, instead of the recipe's")
    add("--tool-format", type=_tool_format, help="in which calls are taught, as --env.tool_format (default: auto)")
    add("--agent", type=named, help="who attempts the tasks: a name of docs/agents.md, or a file (default: our own)")
    add("--trials", type=natural, default=54, help="replies to try it with afterwards (default: %(default)s)")
    add("--threads", type=count, default=1, help="threads of one operation (default: %(default)s)")
    add("--out", type=file, help="copy the adapter to this file as well")
    add("--cache", type=folder, default=CACHE, help="folder of models and adapters (default: %(default)s)")
    return parser


def _tool_format(text: str) -> str:
    """Return the name or dotted path of a tool format."""
    try:
        if text != AUTO:
            load_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
