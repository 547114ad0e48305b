"""Agents that speak the Agent Client Protocol: the task is given to them over their standard input.

AGENT = ForeignAgent(name="mine", start=over_acp(start), ...), with a `start` for the program that serves the protocol,
such as `opencode acp`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from envs.agents.facts import HOME, Place, Start

_CLIENT = Path(__file__).with_name("acp_client.py")


def over_acp(start: Callable[[Place], Start]) -> Callable[[Place], Start]:
    """Return the start of an agent by a client in its sandbox, which needs a Python 3.9 there.

    start: of the agent's own program; it is given no task."""

    def start_client(at: Place) -> Start:
        program = start(replace(at, task=""))
        client = f"{HOME}/acp_client.py"
        argv = ["python3", "-I", client, at.workdir, at.task, *program.argv]
        return Start(argv, program.env, {**program.files, client: _CLIENT.read_text(encoding="utf-8")})

    return start_client
