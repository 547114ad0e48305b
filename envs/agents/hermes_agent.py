"""Hermes Agent (MIT, PyPI): Chat Completions, streamed."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_RUN = f"import sys; sys.path.insert(0, {PACK + '/python'!r}); from hermes_cli.main import main; main()"
_LEAST = 64_000
"""It refuses smaller windows; our own limit ends it then."""


def start(at: Place) -> Start:
    """Run `hermes -z` with its tools for commands and files. Its settings are JSON, which is YAML too."""
    model = {
        "default": "ours",
        "provider": "custom",
        "base_url": at.v1,
        "api_key": KEY,
        "context_length": max(at.window, _LEAST),
    }
    settings = {"model": {**model, "max_tokens": at.reply}, "agent": {"max_turns": at.turns}}
    env = {"HOME": HOME, "HERMES_HOME": f"{HOME}/hermes", "HERMES_YOLO_MODE": "1"}
    options = ["-t", "terminal,file", "--model", "ours", "--provider", "custom", "-z", at.task]
    files = {f"{HOME}/hermes/config.yaml": json.dumps(settings)}
    return Start(["python3", "-I", "-c", _RUN, *options], env, files)


AGENT = ForeignAgent(
    name="hermes-agent",
    licence="MIT",
    recipe=Recipe(pypi=("hermes-agent==0.19.0",), least_python="3.11"),
    start=start,
    protocol="chat",
    opening=4500,
    budget="turns, tokens of a reply",
    beside="a title, summaries when it compacts",
    shell=("terminal", "command", {}),
)
