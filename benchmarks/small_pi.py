"""pi with an opening that a model of a million parameters can read: its shell alone, and a part of its system prompt.

python -m envs.swe learn --preset windows --agent benchmarks/small_pi.py
"""

import json
from dataclasses import replace

from envs.agents.facts import HOME, Place, Start
from envs.agents.pi import AGENT as PI

_SYSTEM = """\
You are an expert coding assistant operating inside pi, a coding agent harness. You help users by reading files, \
executing commands, editing code, and writing new files.

Guidelines:
- Use bash for file operations like ls, rg, find
- Be concise in your responses
- Show file paths clearly when working with files
"""
"""pi's own, without what is about other tools and about its documentation."""
_OPTIONS = ("--tools", "bash", "--no-context-files", "--system-prompt", _SYSTEM)
_ROOM = {"reserveTokens": 64, "keepRecentTokens": 16}
"""Nothing but the summary is kept."""


def start(at: Place) -> Start:
    """Run pi once, with these options and settings."""
    began = PI.start(at)
    settings = {f"{HOME}/pi/settings.json": json.dumps({"compaction": _ROOM})}
    return replace(began, argv=[*began.argv, *_OPTIONS], files={**began.files, **settings})


AGENT = replace(PI, name="small-pi", start=start, opening=300)
