"""Kilo CLI (MIT, npm), made from OpenCode: Chat Completions, streamed."""

from dataclasses import replace

from envs.agents import opencode
from envs.agents.facts import HOME, PACK, Place, Start
from envs.agents.recipes import Recipe


def start(at: Place) -> Start:
    """Run `kilo run`, with OpenCode's settings under its own names."""
    theirs = opencode.start(at)
    env = {name.replace("OPENCODE", "KILO"): value for name, value in theirs.env.items()}
    program = f"{PACK}/node_modules/@kilocode/cli-linux-{at.cpu}/bin/kilo"
    return Start([program, *theirs.argv[1:]], {**env, "HOME": HOME}, theirs.files)


AGENT = replace(
    opencode.AGENT,
    name="kilo",
    recipe=Recipe(npm=("@kilocode/cli-linux-{cpu}@7.7.9",), libc="glibc"),
    start=start,
    opening=14700,
)
