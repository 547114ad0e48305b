"""A foreign agent that makes room by itself, for the preset `windows`.

    python -m envs.swe learn --preset windows --agent benchmarks/compacting_agent.py

Its program is `compacting_client.py` beside this file: Chat Completions over the gateway, from within the sandbox. Its
words are those of our own agent, so that the preset's policy knows them.
"""

import json
from pathlib import Path

from atropos_agent.compaction import SUM_UP, SUMMED_UP
from atropos_agent.formats.base import DEFAULT_PREAMBLE
from envs.agents.facts import HOME, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe
from envs.lab.windows import SUMMED_UP_AFTER, TOOLS
from tools import default_tools

_CLIENT = Path(__file__).with_name("compacting_client.py").read_text()


def start(at: Place) -> Start:
    """Run the client on the image's Python."""
    given = {
        "task": at.task,
        "url": at.v1,
        "system": f"{DEFAULT_PREAMBLE}\n\nYou work in {at.workdir}.",
        "tools": default_tools(None, TOOLS).schemas,  # type: ignore[arg-type]  # never run here
        "sum_up": SUM_UP,
        "summed_up": SUMMED_UP,
        "every": SUMMED_UP_AFTER[0],
        "summary_tokens": at.reply // 2,
    }
    return Start(["python3", "-I", f"{HOME}/client.py"], {"GIVEN": json.dumps(given)}, {f"{HOME}/client.py": _CLIENT})


AGENT = ForeignAgent(
    name="compacting",
    licence="MIT",
    recipe=Recipe(),
    start=start,
    protocol="chat",
    opening=250,
    budget="not",
    beside="summaries",
    shell=("terminal", "command", {}),
)
