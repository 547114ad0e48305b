"""Print the folder of a model to start `learn` with: a preset makes it, or the embedded server knows it.

It is made in a process of its own, so it can be stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

from atropos_agent.cpu_engine.model import DEFAULT_CACHE, ModelNotFound, locate
from atropos_agent.types import AgentError
from envs.agents.naming import find_foreign_agent
from envs.lab import smoke, windows
from envs.types import InfraError
from sandboxes.base import SandboxError


def main(argv: Sequence[str]) -> int:
    """Print the folder of `smoke`, `windows`, or a name known to the embedded server. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--agent")
    options = parser.parse_args(argv)
    try:
        made_up = {"smoke": smoke.model, "windows": windows.model}.get(options.model)
        agent = find_foreign_agent(options.agent)
        print(locate(options.model) if made_up is None else made_up(DEFAULT_CACHE, agent=agent))
    except (ModelNotFound, AgentError, InfraError, SandboxError, OSError, ValueError) as error:
        print(f"model {options.model} can't be had: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
