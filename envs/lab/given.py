"""`--env NAME=VALUE`: options for the environment that a command starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from envs.swe.config import SWEEnvConfig

Given = Sequence[tuple[str, str]]


def add_env_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env",
        type=_parse_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the environment, such as workers=ray; may be repeated",
    )


def merge_settings(given: Given) -> dict[str, object]:
    """Return the options under the names that the environment's command line has for them."""
    return {f"env.{name}": value for name, value in given}


def uses_daemon(given: Given) -> bool:
    """Return whether the sandboxes are those of this machine's Docker daemon."""
    chosen = dict(given)
    return chosen.get("sandbox", "docker") == "docker" and "hosts" not in chosen


def _parse_setting(text: str) -> tuple[str, str]:
    """Return an option's name and its value."""
    name, equals, value = text.partition("=")
    if not (equals and name.split(".")[0] in SWEEnvConfig.model_fields):
        raise argparse.ArgumentTypeError(f"{text!r} is no option of the environment with its value, as workers=ray")
    return name, value
