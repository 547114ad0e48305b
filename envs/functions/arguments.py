"""The arguments of a function: a model's address, prompt templates; and the reports to hooks."""

from __future__ import annotations

import hashlib
import math
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.types import Outcome, Seat, Task

_NUMBER = re.compile(r"(?<=[-_])\d+$")
"""The end of the gateway's ids for replies."""


class LLM:
    """The model of one rollout, at an address of its own.

    base_url: for an OpenAI client; anthropic_url: for an Anthropic client.
    api_key: the rollout's own. It is valid while the function runs.
    model: a name for requests; the run chooses the answering model.
    """

    def __init__(
        self, base_url: str, anthropic_url: str, api_key: str, model: str, give: Callable[[float, int | None], None]
    ) -> None:
        self.base_url = base_url
        self.anthropic_url = anthropic_url
        self.api_key = api_key
        self.model = model
        self._give = give

    def reward(self, value: float, reply: object = None) -> None:
        """Add to a turn's own advantage, beside the rollout's reward for all of its turns.

        reply: a client's return value, its id, or the turn's number from 0; None for the last
        reply. Raises ValueError if there is no such reply, or for a value that is not finite."""
        if not math.isfinite(value):
            raise ValueError(f"llm.reward takes a finite number, not {value}")
        self._give(float(value), None if reply is None else turn_of(reply))


def turn_of(reply: object) -> int:
    """Return the turn's number of a client's reply, by the id given to it. Raises ValueError."""
    if isinstance(reply, int):
        return reply
    name = getattr(reply, "id", reply)
    found = _NUMBER.search(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"{reply!r} is no reply of this model: its id has no number")
    return int(found[0])


class Prompt:
    """A prompt template, with `{names}` to fill in. Every row made with it has its digest.

    text: in the form for `str.format`. version: its name for people; the digest tells versions apart in any case.
    """

    def __init__(self, text: str, *, version: str = "") -> None:
        try:
            self.names = tuple(dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(text) if name))
        except ValueError as error:
            raise ValueError(f"the prompt template can't be read: {error}; write {{{{ for a brace") from error
        self.text = text
        self.version = version

    @classmethod
    def from_file(cls, path: Path | str) -> Prompt:
        """Read a template from a file; the file's name is its version."""
        return cls(Path(path).read_text(encoding="utf-8"), version=Path(path).name)

    @property
    def digest(self) -> str:
        """Return the first 16 digits of the text's sha256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def about(self) -> dict[str, str]:
        """Return version and digest, as rows carry them."""
        return {"version": self.version, "digest": self.digest}

    def format(self, **values: object) -> str:
        """Return the text with all names filled in. Raises ValueError for a missing or unknown name."""
        outer = {name.partition(".")[0].partition("[")[0] for name in self.names}
        if wrong := outer ^ values.keys():
            said = ", ".join(sorted(wrong))
            raise ValueError(f"the prompt template has the names {', '.join(sorted(outer)) or '(none)'}: not so {said}")
        return self.text.format(**values)


@dataclass(frozen=True, slots=True)
class Turn:
    """A sampled reply.

    number: in the rollout, from 0. prompt_tokens: of its prompt. ids: the reply's; none if the server gives none.
    text: the reply; "" if the server gives no ids. seconds: from its request to its last token.
    """

    number: int
    prompt_tokens: int
    ids: Sequence[int]
    text: str
    seconds: float


class Hooks:
    """Called when rollouts and turns begin and end. A subclass overrides the methods of interest.

    An exception in a hook is an infrastructure failure, as in the function itself. Turns side by side are reported
    side by side.
    """

    async def rollout_started(self, task: Task, llm: LLM, seat: Seat) -> None:
        """Take note: the function is called next."""

    async def turn_started(self, task: Task, llm: LLM, prompt_tokens: int) -> None:
        """Take note: a reply is sampled next."""

    async def turn_ended(self, task: Task, llm: LLM, turn: Turn) -> None:
        """Know of a reply. `llm.reward(value, turn.number)` rewards it."""

    async def rollout_ended(self, task: Task, llm: LLM, outcome: Outcome | Exception) -> None:
        """Take note of the rollout's end: with an outcome, or with an exception."""
