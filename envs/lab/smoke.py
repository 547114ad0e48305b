"""The smallest policy seen to learn: it has a million parameters, and knows the right reply and
several wrong ones.

It is pre-trained on dialogues of one job, worded in many ways. Most replies in them are flawed: a call
that does not parse, a useless command, an answer instead of a call. Reinforcement learning then has to
find the replies that pay. Wordings of the tasks to evaluate on occur nowhere in training. For a
foreign agent there is a model of its own, with dialogues in that agent's manner.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import Reply, SequenceData
from envs.agents.facts import ForeignAgent
from envs.lab.synthetic import Example, call, expert_replies
from sandboxes.naming import lazy_import

if TYPE_CHECKING:  # its import takes seconds
    from envs.lab.manner import Manner

VERBS = ("Create", "Make", "Add", "Write", "Put here", "Set up")
OBJECTS = ("an empty file named ready", "the file ready, with nothing in it", "the file ready, of size zero")

FLAWED = 0.65
"""Share of the dialogues with a flawed first reply."""

_SCRATCH = lazy_import("atropos_agent.cpu_engine.scratch")
"""Needs PyTorch, and the tasks do not."""
_MANNER = lazy_import("envs.lab.manner:Manner")
_TRANSCRIPTS = lazy_import("envs.lab.transcripts:transcripts")
_VOCABULARY = 640
_WORDS = 1600
"""The vocabulary for a foreign agent with its long opening: most of its words are a token each."""
_DIALOGUES = 300
_STEPS = 150


def tasks() -> tuple[list[Example], list[Example]]:
    """Return the tasks to train on, and a third of all to evaluate on."""
    every = [Example("create_empty_file", f"{verb} {what}", "touch ready") for verb in VERBS for what in OBJECTS]
    random.Random(0).shuffle(every)
    return every[6:], every[:6]


def model(cache: Path, on_step: Callable[[int, float], None] | None = None, agent: ForeignAgent | None = None) -> Path:
    """Return the folder of the model, made in half a minute if missing; for a foreign `agent` it takes longer.

    Raises InfraError, SandboxError, AgentError if that agent can't be recorded."""
    train, _ = tasks()
    # What the dialogues say beside the tasks is the format's, so that its words are a part of the model's name.
    format_texts = (Hermes().instructions(()), Hermes().correction(()))
    made_of: tuple[Any, ...] = (train, _VOCABULARY, _DIALOGUES, _STEPS, FLAWED, format_texts)
    prefix, size = "smoke", _VOCABULARY
    if agent is not None:
        made_of, prefix, size = (*made_of, agent.recipe, _WORDS), f"smoke-{agent.name}", _WORDS

    def make(folder: Path) -> None:
        scratch = _SCRATCH()
        plain = scratch.make_tokenizer([], 0)
        manner = None if agent is None else asyncio.run(_MANNER().record(agent, plain))
        spelled = asyncio.run(_rows(train, plain, expert_replies, manner))
        tokenizer = scratch.make_tokenizer([row.full_text for row in spelled], size)
        rng = random.Random(0)
        drawn = [rng.choice(train) for _ in range(_DIALOGUES)]
        rows = asyncio.run(_rows(drawn, tokenizer, lambda task: _sample_replies(task, rng, manner), manner))
        scratch.make_model(rows, tokenizer, folder, steps=_STEPS, on_step=on_step)

    return cached_model(cache, prefix, made_of, make)


def cached_model(cache: Path, name: str, made_of: object, make: Callable[[Path], None]) -> Path:
    """Return the folder of a model in the cache, made if missing. made_of: everything that decides what it is."""
    folder = cache.expanduser() / "models" / f"{name}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            make(Path(partial) / "model")
            (Path(partial) / "model").rename(folder)
    return folder


def _sample_replies(task: Example, rng: random.Random, manner: Manner | None) -> list[Reply | str]:
    """Return the expert's replies, or others with a flawed one at the beginning."""
    right, submission = expert_replies(task)
    if rng.random() >= FLAWED:
        return [right, submission]
    name, cut = (
        task.command.split()[-1],
        Hermes().turn(manner.convert_reply(right) if manner else right).replace('"}}', '"'),
    )
    return [rng.choice((cut, call("terminal", command=f"echo {name}"), f"I see {name}")), submission]


async def _rows(
    examples: Sequence[Example],
    tokenizer: Any,
    replies: Callable[[Example], Sequence[Reply | str]],
    manner: Manner | None,
) -> list[SequenceData]:
    collect = _TRANSCRIPTS() if manner is None else manner.transcripts
    return [row async for row in collect(examples, tokenizer, replies)]
