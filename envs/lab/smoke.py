"""The smallest policy that can be seen to learn: a million parameters that know the right reply and
several wrong ones.

It is pre-trained on dialogues of one job, said in many ways, in which most replies are flawed: a call
that does not parse, a useless command, an answer instead of a call. Reinforcement learning then has to
find out which replies pay. Wordings of the tasks to evaluate on occur nowhere in training.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import Reply, SequenceData
from envs.lab.synthetic import Example, call, expert, transcripts

VERBS = ("Create", "Make", "Add", "Write", "Put here", "Set up")
OBJECTS = ("an empty file named ready", "the file ready, with nothing in it", "the file ready, of size zero")

FLAWED = 0.65
"""Share of the dialogues whose first reply is flawed."""

_VOCABULARY = 640
_DIALOGUES = 300
_STEPS = 150


def tasks() -> tuple[list[Example], list[Example]]:
    """Return the tasks to train on, and a third of all to evaluate on."""
    every = [Example("create_empty_file", f"{verb} {what}", "touch ready") for verb in VERBS for what in OBJECTS]
    random.Random(0).shuffle(every)
    return every[6:], every[:6]


def model(cache: Path, on_step: Callable[[int, float], None] | None = None) -> Path:
    """Return the folder of the model, made in half a minute where it is not there."""
    # Imported here, so that the tasks stay free of PyTorch.
    from atropos_agent.cpu_engine.scratch import make_model, make_tokenizer

    train, _ = tasks()
    # What the dialogues say beside the tasks is the format's, so that its words are a part of the model's name.
    said = (Hermes().instructions(()), Hermes().correction(()))
    name = hashlib.sha256(repr((train, _VOCABULARY, _DIALOGUES, _STEPS, FLAWED, said)).encode()).hexdigest()[:12]
    folder = cache.expanduser() / "models" / f"smoke-{name}"
    if folder.is_dir():
        return folder
    spelled = asyncio.run(_rows(train, make_tokenizer([], 0), expert))
    tokenizer = make_tokenizer([row.full_text for row in spelled], _VOCABULARY)
    rng = random.Random(0)
    drawn = [rng.choice(train) for _ in range(_DIALOGUES)]
    rows = asyncio.run(_rows(drawn, tokenizer, lambda task: _clumsy(task, rng)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        make_model(rows, tokenizer, Path(partial) / "model", steps=_STEPS, on_step=on_step)
        (Path(partial) / "model").rename(folder)
    return folder


def _clumsy(task: Example, rng: random.Random) -> list[Reply | str]:
    """Return the expert's replies, or others that begin with a flawed one."""
    right, submission = expert(task)
    if rng.random() >= FLAWED:
        return [right, submission]
    name, cut = task.command.split()[-1], Hermes().turn(right).replace('"}}', '"')
    return [rng.choice((cut, call("terminal", command=f"echo {name}"), f"I see {name}")), submission]


async def _rows(
    examples: Sequence[Example], tokenizer: Any, replies: Callable[[Example], Sequence[Reply | str]]
) -> list[SequenceData]:
    return [row async for row in transcripts(examples, tokenizer, replies)]


def main(argv: Sequence[str]) -> int:
    """Print the folder of a model that `learn` starts with: `smoke`, or a name that the embedded server knows. Made
    in a process of its own, so that it can be stopped. Returns the exit status."""
    # Imported here, so that the tasks stay free of PyTorch.
    from atropos_agent.cpu_engine.model import DEFAULT_CACHE, ModelNotFound, locate

    try:
        print(model(DEFAULT_CACHE) if argv[0] == "smoke" else locate(argv[0]))
    except (ModelNotFound, OSError, ValueError) as error:
        print(f"model {argv[0]} can't be had: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
