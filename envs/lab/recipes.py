"""Recipes of first adapters, and the adapters in the cache."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from atropos_agent.formats import AUTO
from envs.agents.naming import find_foreign_agent
from envs.lab.kinds import EASY
from envs.lab.synthetic import examples
from sandboxes.naming import lazy_import

CACHE = Path("~/.cache/atropos-agent")
"""The folder of models and adapters."""

_OUTPUT_OF = lazy_import("envs.lab.parts:output_of")

_THREADS = min(4, os.cpu_count() or 1)
"""Threads of one operation of a small model alone on the machine."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An adapter's recipe: the same recipe gives the same adapter.

    model: the embedded inference server's name of it. examples: transcripts to train on; kinds: of their tasks, all
        when empty. planned: the share of transcripts from the planning solver; decided: the share of these that
        teaches to begin so. learning_rate: at the start; it falls to 0. revision: raised when prompts or training
        change, so no old adapter is taken for new. tool_format: as `--env.tool_format`. agent: at work on the
        tasks, as `--env.agent`; "" for our own. whole: one transcript in so many is whole, the others in the
        agent's brief manner (`Manner.brief`). autocast: as `lora.Recipe`.
    """

    examples: int
    planned: float
    decided: float
    kinds: tuple[str, ...] = ()
    model: str = "smollm2"
    rank: int = 8
    learning_rate: float = 2e-3
    batch: int = 8
    seed: int = 0
    revision: int = 1
    # Adapters of the model's own format keep the names that they had when there was no other.
    tool_format: str = field(default=AUTO, repr=False)
    agent: str = field(default="", repr=False)
    whole: int = field(default=1, repr=False)
    autocast: bool = field(default=False, repr=False)

    @property
    def digest(self) -> str:
        """Return the name of the recipe and its tasks, 12 hexadecimal digits, after those of a format and an agent."""
        content = repr((self, examples(self.examples, self.seed, self.kinds)))
        prefix = "" if self.tool_format == AUTO else f"{self.tool_format.replace('/', '.')}-"
        if (agent := find_foreign_agent(self.agent)) is not None:
            content, prefix = content + repr(agent.recipe), f"{prefix}{agent.name}-"
        if self.whole > 1 or self.autocast:
            content += repr((self.whole, self.autocast))
        return prefix + hashlib.sha256(content.encode()).hexdigest()[:12]

    def path(self, cache: Path = CACHE) -> Path:
        """Return the adapter's present or future folder."""
        return cache.expanduser() / "adapters" / f"warm-start-{self.digest}.safetensors"


RECIPES = {
    # Right commands alone, of few kinds: enough for calls that parse and many solved tasks of these, in minutes.
    # After 80 transcripts none of the demo's tasks is solved.
    "quick": Recipe(examples=120, planned=1.0, decided=1.0, kinds=EASY),
    # Much is to be learnt from the one who plans, but not that this is the one to follow.
    "full": Recipe(examples=2106, planned=0.75, decided=0.22),
    # An agent's opening is longer than all of our own agent's transcript, so that there is time for few whole ones.
    "few": Recipe(examples=400, planned=0.75, decided=0.22, kinds=EASY, revision=2, whole=4, autocast=True),
}


async def adapter(
    name: str, *, given: Path | None = None, cache: Path = CACHE, log: Path | None = None, agent: str = ""
) -> Path:
    """Return the user's adapter, or that of a recipe, made if missing.

    agent: with the manner to learn; "" for our own. log: a file for the messages meanwhile; our stderr without
    one. Raises FileNotFoundError when the given one is missing, PartError when none can be made.
    """
    known = find(name, given, cache, agent)
    if known is None:
        # A process of its own can be stopped, and gives its memory back.
        options = ["--recipe", name, "--trials", "0", "--cache", str(cache), "--threads", str(_THREADS)]
        options += ["--agent", agent] if agent else []
        known = Path(await _OUTPUT_OF()("warmstart", "-m", "envs.lab.warm_start", *options, log=log))
    return known


def find(name: str, given: Path | None = None, cache: Path = CACHE, agent: str = "") -> Path | None:
    """Return the user's adapter, or that of a recipe; None if it was not made yet.

    The full recipe's for the same agent, if present, is taken in place of any other. Raises FileNotFoundError.
    """
    if given is not None and not given.exists():
        raise FileNotFoundError(f"--adapter {given}: there is no such file")
    if given is not None:
        return given
    places = [replace(RECIPES[one], agent=agent).path(cache) for one in ("full", name)]
    return next((path for path in places if path.is_file()), None)
