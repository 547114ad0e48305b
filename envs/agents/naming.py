"""Agents by name: ours, those of this room, anybody else's by a dotted path or a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from envs.agents import (
    aider,
    claude_code,
    codex,
    gemini_cli,
    goose,
    gptme,
    hermes_agent,
    kilo,
    kimi_code,
    mini_swe_agent,
    opencode,
    openhands,
    pi,
    qwen_code,
    terminus_2,
)
from envs.agents.facts import ForeignAgent
from envs.running.mix import OURS, Mix
from sandboxes.naming import import_errors, lazy_import, resolve

if TYPE_CHECKING:  # its import takes seconds
    from atropos_agent.agent import AtroposAgent

_MODULES = (
    *(aider, claude_code, codex, gemini_cli, goose, gptme, hermes_agent, kilo, kimi_code, mini_swe_agent, opencode),
    *(openhands, pi, qwen_code, terminus_2),
)
FOREIGN: Mapping[str, ForeignAgent] = MappingProxyType({one.AGENT.name: one.AGENT for one in _MODULES})

Agent: TypeAlias = "ForeignAgent | type[AtroposAgent]"

_OUR_KIND = lazy_import(OURS["atropos"])


OWN = MappingProxyType(
    {
        "compaction": "makes room in its own way, and doctor shows where (docs/compaction.md)",
        "tools": "has its own tools",
        "system_prompt": "has its own system prompt",
    }
)
"""Options of our own agent, and what other people's have in their place."""


def find_agent(name: str) -> Agent:
    """Return the agent named by `--env.agent`. Raises ValueError with the remedy.

    name: one of `OURS` or of this room, the latter also with another version of its package (`codex@0.181.0`),
    package.module:name, or the path of a file with `AGENT`."""
    known, at, version = name.partition("@")
    if at and known in FOREIGN:
        try:
            return replace(FOREIGN[known], recipe=FOREIGN[known].recipe.with_version(version))
        except ValueError as error:
            raise ValueError(f"--env.agent {name}: {error}") from None
    found = (
        _load_file(Path(name))
        if name.endswith(".py")
        else resolve("--env.agent", name, {**OURS, **FOREIGN}, "atropos_agent.agents")
    )
    if isinstance(found, ForeignAgent) or (isinstance(found, type) and issubclass(found, _OUR_KIND())):
        return found
    what = "a ForeignAgent (see docs/agents.md) nor a subclass of AtroposAgent"
    raise ValueError(f"--env.agent {name}: this is neither {what}")


def find_foreign_agent(name: str | None) -> ForeignAgent | None:
    """Return the agent named by `--agent`, None for ours. Raises ValueError for an unknown name."""
    found = None if not name or name in OURS else find_agent(name)
    return found if isinstance(found, ForeignAgent) else None


def _load_file(path: Path) -> object:
    if not path.is_file():
        raise ValueError(f"--env.agent {path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--env.agent {path}: this is no Python file")
    module = importlib.util.module_from_spec(spec)
    with import_errors("--env.agent", str(path), path.stem):
        spec.loader.exec_module(module)
    if not hasattr(module, "AGENT"):
        raise ValueError(f"--env.agent {path}: it defines no AGENT; see docs/agents.md")
    return module.AGENT


def own_problems(name: str, given: Collection[str]) -> Sequence[ValueError]:
    """Return why agents have no use for options of our own agent, with the remedy; nothing if one of them is made like
    it, or is refused by `find_agent`. name: as `--env.agent`, of one or several. given: names of options."""
    try:
        agents = [find_agent(one) for one in Mix.of(name).names]
    except ValueError:
        return ()
    theirs = [agent.name for agent in agents if isinstance(agent, ForeignAgent)]
    if len(theirs) < len(agents):
        return ()
    listed = ", ".join(theirs)
    return [ValueError(f"--env.{one}: agent {listed} {how}; leave it out") for one, how in OWN.items() if one in given]


def room_problems(name: str, most: int) -> Sequence[ValueError]:
    """Return why rows of `most` tokens have no room for agents, with the remedy; nothing if they have, and nothing
    for agents refused by `find_agent`. name: as `--env.agent`, of one or several."""
    try:
        agents = [find_agent(one) for one in Mix.of(name).names]
    except ValueError:
        return ()
    return [
        ValueError(
            f"--env.max_token_length {most}: agent {agent.name} begins with about {agent.opening} tokens, before its "
            "first reply: raise it, or take an agent that says less (docs/agents.md)"
        )
        for agent in agents
        if isinstance(agent, ForeignAgent) and agent.opening >= most
    ]
