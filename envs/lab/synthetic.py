"""Made-up terminal tasks with their solutions.

Transcripts of them (`envs.lab.transcripts`) teach a small model the format of calls before any reinforcement learning,
and it then practises on them. Names, texts and wordings are other ones than those of the starter pack, so the
starter pack's terminal tasks can be held out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_agent.types import Reply
from envs.lab.kinds import KINDS, Kind
from envs.lab.words import ACTIONS, ENDINGS, WORDS
from tools import ToolCall

TOOLS = ("terminal", "submit")
"""The tools in transcripts."""

WORKING_DIR = "/app"
"""Named in the prompts, as in the starter pack's image."""


@dataclass(frozen=True, slots=True)
class Example:
    """A task with its solution, a plan for it, and wrong commands.
    `files` are there at the start, by relative path."""

    kind: str
    instruction: str
    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    slips: Sequence[str] = ()


def examples(count: int, seed: int, kinds: Sequence[str] = ()) -> list[Example]:
    """Make `count` tasks, the kinds by turns, the same for the same seed. kinds: all when empty."""
    rng = random.Random(seed)
    chosen = [kind for kind in KINDS if not kinds or kind.name in kinds]
    return [_example(chosen[i % len(chosen)], rng) for i in range(count)]


def expert_replies(task: Example) -> list[Reply]:
    """Return the replies of a right solver, with the plan first if the task has one."""
    return [call("terminal", f"Plan: {task.plan}" if task.plan else "", command=task.command), call("submit")]


def hasty_replies(task: Example, rng: random.Random) -> list[Reply]:
    """Return the replies of a solver without a plan, right no more often than by drawing lots."""
    return [call("terminal", command=rng.choice((task.command, *task.slips))), call("submit")]


def call(name: str, content: str = "", **arguments: Any) -> Reply:
    """Return a reply with one call. content: the text before it."""
    return Reply(None, content, (ToolCall(name, arguments),), ())


_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _example(kind: Kind, rng: random.Random) -> Example:
    draw = _Draw(rng)
    instruction = rng.choice(kind.wordings).format_map(draw)
    return Example(
        kind.name,
        instruction,
        kind.command.format_map(draw),
        {name: text for place, sort in kind.files.items() for name, text in draw.content(place.format_map(draw), sort)},
        kind.plan.format_map(draw),
        [slip.format_map(draw) for slip in kind.slips],
    )


class _Draw(dict[str, str]):
    """The fields of one task, drawn on first access; no word occurs twice."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._words = iter(rng.sample(WORDS, len(WORDS)))
        self._letters = iter(rng.sample("cdefgh", 6))

    def __missing__(self, name: str) -> str:
        if name in ("number", "ordinal"):
            number, ordinal = self._rng.choice(list(_ORDINALS.items()))
            self.update(number=str(number), ordinal=ordinal)
        elif name in ("column", "place"):
            column = self._rng.choice((2, 3))
            self.update(column=str(column), place=_ORDINALS[column])
        else:
            self[name] = getattr(self, f"_{name.rstrip('0123456789')}")()
        return self[name]

    def content(self, place: str, sort: str) -> list[tuple[str, str]]:
        """Return the files, with their texts, for a sort of content at a place."""
        rng, word = self._rng, self._plain
        lines = [f"{word()}\n" for _ in range(rng.randint(5, 8))]
        match sort:
            case "sentences":
                lines = [f"{word()} {line}" if rng.random() < 0.7 else line for line in lines]
            case "repeated":
                lines += rng.sample(lines, 3)
                rng.shuffle(lines)
            case "holding":
                lines = [*(f"{line.strip()} {self['word']}\n" for line in lines[:3]), *lines[3:]]
                rng.shuffle(lines)
            case "sizes":
                names = sorted(self._file() for _ in range(3))
                # Never the first by its name, which would be found without a look at sizes.
                sizes = rng.choice(((1, 9, 4), (4, 1, 9)))
                return [(place + name, f"{word()}\n" * size) for name, size in zip(names, sizes, strict=True)]
            case "json":
                values = {self["key"]: rng.choice((rng.randint(2, 9999), word())), word(): word(), word(): 7}
                lines = [json.dumps(dict(sorted(values.items()))) + "\n"]
            case "csv":
                lines = [f"{word()},{word()},{word()}\n"] + [
                    f"{word()},{rng.randint(1, 99)},{rng.randint(1, 99)}\n" for _ in range(3)
                ]
            case "script":
                lines = ["#!/bin/sh\n", f"echo {word()}\n"]
        return [(place, "".join(lines))]

    def _plain(self) -> str:
        return next(self._words)

    _folder = _key = _plain

    def _word(self) -> str:
        word, number = self._plain(), self._rng.randint(1, 99)
        return self._rng.choice(
            (*[word] * 4, _plural(word), word.upper(), word.title(), f"{word}{number}", f"{word}.net")
        )

    def _stem(self) -> str:
        word = self._plain()
        return self._rng.choice(
            (word, word, _plural(word), _plural(word), f"{word}_{self._plain()}", next(self._letters))
        )

    def _file(self) -> str:
        return f"{self._stem()}.{self._rng.choice(ENDINGS)}"

    def _name(self) -> str:
        return self._file() if self._rng.random() < 0.3 else self._plain()

    def _script(self) -> str:
        return f"{self._stem()}.sh"

    def _data(self) -> str:
        return f"{self._stem()}.json"

    def _table(self) -> str:
        return f"{self._stem()}.csv"

    def _path(self) -> str:
        return "/".join(self._plain() for _ in range(self._rng.choice((1, 1, 2, 3))))

    def _text(self) -> str:
        word, number = self._plain, self._rng.randint(2, 999)
        forms: Sequence[Callable[[], str]] = (
            self._word,
            lambda: f"{word()} {word()}",
            lambda: f"{self._rng.choice(ACTIONS)} {word()}",
            lambda: f"{self._rng.choice(ACTIONS).title()} the {_plural(word())}",
            lambda: f"the {word()} is {word()}",
            lambda: f"{word()}={word()}",
            lambda: f"{word()}={self._rng.choice(('yes', 'no', 'on', 'off', 'false', number))}",
            lambda: f"{word()}: {number}",
            lambda: f"{number} {_plural(word())}",
            lambda: f"20{number % 30 + 10}-0{number % 9 + 1}-{number % 18 + 10} {word()}",
        )
        return self._rng.choice(forms)()


def _plural(word: str) -> str:
    """Return the plural of a word, or the word itself if its plural needs more than an s."""
    return word if word[-1] in "shxy" else f"{word}s"
