"""The parser of `agents update`, apart from the work: explaining options needs none of its imports."""

from __future__ import annotations

from envs.messages import SWE, replace_command
from sandboxes.arguments import Parser

_UPDATES = """\
`python -m envs.swe agents update [NAME …]`: show or install newer versions of other people's agents.

It shows the pinned version of each agent and the registry's newest. With `--write` it updates the named agents, one
after the other: it makes the lock of the new version, installs it and runs the agent through a scripted conversation
in a sandbox. Pin and lock change only if this made one row.
"""


def updates_parser(prog: str = SWE) -> Parser:
    """Return the parser of `agents update`."""
    prog = replace_command(prog)
    parser = Parser(prog=f"{prog} agents update", description=replace_command(_UPDATES, prog))
    parser.add_argument("names", nargs="*", metavar="NAME", help="agents (default: all)")
    parser.add_argument("--write", action="store_true", help="update the pins of the named agents")
    parser.add_argument("--to", default="", metavar="VERSION", help="this version instead of the newest, for one agent")
    parser.add_argument("--tokenizer", default="", help="for --write: a model's tokenizer, with its chat template")
    parser.add_argument("--trust-remote-code", action="store_true", help="run a tokenizer that is a Python program")
    parser.add_argument("--image", help="for --write: the image of the sandbox (default: the base image)")
    return parser
