"""What an agent asks and what it is answered, in whichever protocol."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.base import ToolCall

Schemas = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's function format."""


class Fault(enum.Enum):
    """Why a request gets an error."""

    INVALID = "invalid"
    """It is malformed, or asks for what can't be done."""
    TOO_LONG = "too long"
    """A budget is over. Agents stop at it; they would try again after most others."""
    UNKNOWN_KEY = "unknown key"
    NOT_FOUND = "not found"
    TOO_SLOW = "too slow"
    TOO_LARGE = "too large"
    OURS = "ours"
    """The inference server or the gateway failed."""

    @property
    def status(self) -> int:
        """Return HTTP's."""
        return _STATUS[self]


_STATUS = {
    Fault.INVALID: 400,
    Fault.TOO_LONG: 400,
    Fault.UNKNOWN_KEY: 401,
    Fault.NOT_FOUND: 404,
    Fault.TOO_SLOW: 408,
    Fault.TOO_LARGE: 413,
    Fault.OURS: 500,
}


class Refusal(Exception):
    """An answer that is an error. param: the field that is at fault."""

    def __init__(self, message: str, fault: Fault = Fault.INVALID, *, param: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.param = param


@dataclass(frozen=True, slots=True)
class ToldCall:
    """A call in a message of an agent's request. arguments: as they were sent, an object or text."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Told:
    """A message of an agent's request.

    role: "system", "user", "assistant" or "tool" (the result of the call `call_id`).
    text: its content, all parts of it. thinking: what it thought; None where that was not sent.
    handle: number of the answer whose ids it has, beside those of calls; None where it has none.
    refers: what of that answer it names instead of telling it: "text", and the places of calls.
    unshown: how many parts of its content are words for what no text can show.
    """

    role: str
    text: str = ""
    calls: Sequence[ToldCall] = ()
    thinking: str | None = None
    call_id: str = ""
    handle: int | None = None
    refers: Sequence[str | int] = ()
    unshown: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a reply.

    messages: the history, as the agent tells it; behind the answer of number `behind`, where it names one.
    instructed: whether the first of them is this request's alone, no part of the history that its answer names.
    model: as the agent calls it, for the answer. tools: what the model may call.
    max_tokens: the most that the agent wants; None where it does not say. stop: strings that end the reply.
    forced: what of the reply the agent wants forced, by the field that says so; no inference server can.
    noted: names of settings that are not followed, such as `temperature`.
    extras: what only its own protocol knows.
    """

    messages: Sequence[Told]
    model: str = ""
    tools: Schemas = ()
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    stream: bool = False
    behind: int | None = None
    instructed: bool = False
    forced: Mapping[str, str] = field(default_factory=dict)
    noted: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A call of the model's, as it is served.

    id: the rollout's own, which every protocol takes; template_id: what the chat template is given instead.
    text: its arguments, as they were sampled where they are JSON. call: what was read; None where it is broken.
    offered: whether the agent has such a tool.
    """

    id: str
    name: str
    text: str
    call: ToolCall | None = None
    template_id: str = ""
    offered: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, as every protocol can tell it.

    number: in the session, from 0; ids are made of it. stopped_at: the agent's stop string that ended it.
    finish_reason: "stop" or "length".
    """

    number: int
    thinking: str | None
    content: str
    calls: Sequence[SaidCall]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    stopped_at: str | None = None

    @property
    def whole(self) -> str:
        """Return the content with the broken calls in it, for protocols that can't carry such."""
        return "\n".join([self.content] * bool(self.content) + [call.text for call in self.calls if call.call is None])
