"""The command `warmstart`: it makes the small model's first adapter, and tries it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace

from rich.console import Console

from atropos_agent.types import AgentError
from envs.lab.parsers import warm_start_parser
from envs.lab.parts import missing_packages
from envs.lab.recipes import RECIPES
from envs.records.disk import make_folder
from envs.types import InfraError
from sandboxes.arguments import WRONG_USE
from sandboxes.base import SandboxError
from sandboxes.log import set_up_log
from sandboxes.naming import lazy_import

_ADAPTING = lazy_import("envs.lab.adapting")
"""Needs PyTorch."""


def main(argv: list[str]) -> int:
    """Make an adapter, or find it, and say how well the model then calls tools. Return the exit status."""
    options = warm_start_parser().parse_args(argv)
    console = Console(stderr=True)
    if (wrong := missing_packages("warmstart", smollm2=RECIPES[options.recipe].model == "smollm2")) is not None:
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
        make_folder(cache.expanduser(), cache, "HOME or --cache")
        trained = adapting.make(recipe, cache, console)
    except (AgentError, InfraError, SandboxError, ValueError) as error:
        console.print(f"warmstart: {error}", markup=False)
        return 1
    if options.out is not None:
        shutil.copyfile(trained, options.out)
    if options.trials:
        parsed, planned, exact = adapting.measure_replies(recipe, cache, trained, options.trials)
        console.print(
            f"{options.trials} replies to unseen tasks at temperature 1: {parsed:.0%} hold a call that parses, "
            f"{planned:.0%} begin with a plan, {exact:.0%} hold the expert's own command",
            markup=False,
        )
    print(options.out or trained)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
