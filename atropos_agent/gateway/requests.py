"""An agent's request and its answer, in any protocol."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tools.base import ToolCall

Schemas = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's function format."""


class Fault(enum.Enum):
    """Why a request gets an error."""

    INVALID = "invalid"
    """The request is malformed, or asks for something impossible."""
    TOO_LONG = "too long"
    """A budget is over. Agents stop at this error; after most others they would try again."""
    UNKNOWN_KEY = "unknown key"
    NOT_FOUND = "not found"
    TOO_SLOW = "too slow"
    TOO_LARGE = "too large"
    OURS = "ours"
    """The inference server or the gateway failed."""

    @property
    def status(self) -> int:
        """Return HTTP's status code."""
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
    """An answer that is an error. param: the field at fault."""

    def __init__(self, message: str, fault: Fault = Fault.INVALID, *, param: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault
        self.param = param


@dataclass(frozen=True)
class HistoryCall:
    """A call in a message of an agent's request. arguments: as they were sent, an object or text."""

    id: str
    name: str
    arguments: Any

    @cached_property
    def meant(self) -> Any:
        """Return the arguments as they were meant; the text if it is no JSON. They are compared again and again."""
        if not isinstance(self.arguments, str):
            return self.arguments
        try:
            return json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return self.arguments


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message of an agent's request.

    role: "system", "user", "assistant" or "tool" (the result of the call `call_id`).
    text: its content, all parts of it. thinking: the thinking sent with it; None without.
    handle: number of the answer whose ids it has, beside those of calls; None without one.
    refers: parts of this answer, named here instead of sent: "text", and the places of calls.
    unshown: how many parts of its content are words in place of something no text can show.
    """

    role: str
    text: str = ""
    calls: Sequence[HistoryCall] = ()
    thinking: str | None = None
    call_id: str = ""
    handle: int | None = None
    refers: Sequence[str | int] = ()
    unshown: int = 0


@dataclass(frozen=True)
class GatewayRequest:
    """A request for a reply.

    messages: the history, as sent by the agent; only the part after the answer of number `behind`, if it names one.
    instructed: whether the first message is this request's alone, no part of the history of the answer it names.
    keeps_tools: whether its tools are those of the request that the answer it names had.
    continues: whether the protocol has a last message of the assistant's continued; in others another reply follows.
    model: as the agent calls it, for the answer. tools: those the model may call.
    max_tokens: the most the agent wants; None if it does not say. stop: strings that end the reply.
    forced: the parts of the reply that the agent wants forced, by field (`atropos_agent.types.FORCIBLE`); no inference
        server can.
    noted: names of settings that are not followed, such as `temperature`.
    extras: data for its own protocol alone.
    history_field, behind_field: names of the fields with `messages` and `behind`, for errors.
    """

    messages: Sequence[HistoryMessage]
    model: str = ""
    tools: Schemas = ()
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    stream: bool = False
    behind: int | None = None
    instructed: bool = False
    keeps_tools: bool = False
    continues: bool = False
    forced: Mapping[str, str] = field(default_factory=dict)
    noted: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    history_field: str = "messages"
    behind_field: str = "previous_response_id"

    @cached_property
    def toolset(self) -> bytes:
        """Return a digest of the tools, the same in any order. They are compared again and again."""
        return hashlib.sha256(
            "\n".join(sorted(json.dumps(tool, sort_keys=True) for tool in self.tools)).encode()
        ).digest()


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A call of the model's, as it is served.

    id: the rollout's own, valid in every protocol; template_id: the one given to the chat template instead.
    text: its arguments, as they were sampled if they are JSON. call: the call as read; None if it is broken.
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
    """A reply, with everything every protocol can tell.

    number: in the session, from 0; ids are made of it. stopped_at: the agent's stop string that ended it.
    finish_reason: "stop" or "length". thinking_tokens: of completion_tokens, as the tokenizer encodes the thinking.
    """

    number: int
    thinking: str | None
    content: str
    calls: Sequence[ReplyCall]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    stopped_at: str | None = None
    thinking_tokens: int = 0

    @property
    def whole(self) -> str:
        """Return the content with the broken calls in it, for protocols without a place for broken calls."""
        return "\n".join([self.content] * bool(self.content) + [call.text for call in self.calls if call.call is None])
