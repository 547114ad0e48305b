"""Conversations in messages alone, with servers that return no token ids: for evaluation only, without rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.tokens.conversation import Completion, Place
from atropos_agent.types import THINK, THINK_END, EngineError, Message, SequenceData, count_of

RAW, THOUGHT, BESIDE = "raw", "reasoning", "beside"
"""Keys of a message: its parts in the endpoint's own protocol, such as signed thinking, which are sent back as they
came; its thinking, which is not; what a chat completion holds beside OpenAI's fields, which is sent back, too."""
RETURNED = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of a message's thinking that providers want back beside its calls: DeepSeek and Moonshot, vLLM, OpenRouter."""
_REASONS = {"model_length": "length", "max_tokens": "length", "end_turn": "stop", "tool_use": "tool_calls"}
"""OpenAI's names of why a reply ended, for Mistral's and those that gateways hand on."""
SIGNED = "extra_content"
"""The field of a call that Gemini wants back: it holds the signature of its thought."""


class ChatLog:
    """A conversation in messages alone, in the shape of `Conversation`. It yields no rows.

    tools: those that the endpoint itself shows to the model, in OpenAI's function format; then calls and results are
    messages of their own. None if all of this is text."""

    def __init__(self, messages: list[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.messages = messages
        self.tools = tools
        self.segments: Sequence[Any] = ((),)
        self.prompt: list[int] = []

    thinking_open = False

    def place(self) -> Place:
        """Return the conversation's present place."""
        return Place(0, 0, len(self.messages), 0, None, False, ())

    def fork(self, place: Place) -> ChatLog:
        """Return a conversation that goes on from an earlier place of this one."""
        return ChatLog(self.messages[: place.messages], self.tools)

    def add_reply(self, completion: Completion) -> str:
        """Take in a reply; returns its text."""
        text = completion.text or ""
        given = None if self.tools is None else completion.message
        self.messages.append(given or {"role": "assistant", "content": text})
        return text

    def add_calls(self, message: Message, kind: object) -> None:
        """Leave the last reply as it is: the inference server is given its text."""

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Take in the messages before the next reply."""
        self.messages += messages

    def rows(self) -> list[SequenceData]:
        """Return no rows: there are no token ids."""
        return []

    def cut(self, only: object = None) -> Iterator[dict[str, Any]]:
        """Yield the fields of no row."""
        return iter(())

    def drift(self, text: str | None = None) -> None:
        """Return None: the inference server renders the messages."""

    def plain_messages(self) -> list[Message]:
        """Return the messages as a person reads them."""
        return [
            {
                name: _unsigned(value) if name == "tool_calls" else value
                for name, value in message.items()
                if name not in (RAW, BESIDE)
            }
            for message in self.messages
        ]


def read_chat(response: Any) -> Completion:
    """Return the reply in an OpenAI ChatCompletion, thinking and calls included.

    Some inference servers return thinking apart, as `reasoning` or `reasoning_content`, and some put the
    whole reply there and leave `content` empty. Raises EngineError when there is no reply."""
    if not response.choices:
        raise EngineError("the inference server returned no reply")
    choice = response.choices[0]
    content, thought = _texts(choice.message.content)
    given = (getattr(choice.message, name, None) for name in ("reasoning_content", "reasoning"))
    separate = next((text for text in given if text and isinstance(text, str)), None)
    reasoning: str | None = separate or thought
    calls = [_call(call) for call in getattr(choice.message, "tool_calls", None) or ()]
    if reasoning and not (content or calls):
        content, reasoning = reasoning, None
    message: Message = {"role": "assistant", "content": content}
    raw, extra = getattr(choice.message, RAW, None), getattr(choice.message, "model_extra", None) or {}
    beside = {name: extra[name] for name in RETURNED if extra.get(name)} if content != separate else {}
    own = ((THOUGHT, reasoning), ("tool_calls", calls), (RAW, raw), (BESIDE, beside))
    message |= {name: value for name, value in own if value}
    reason = ended_by(choice)
    ended = reason if reason and isinstance(reason, str) else "stop"
    return Completion((), (), ended, text_of(message), message=message, used=_used(response))


def ended_by(choice: Any) -> Any:
    """Return why a reply ended, by OpenAI's names where others are known."""
    reason = choice.finish_reason
    reason = reason.get("type") if isinstance(reason, dict) else reason
    return _REASONS.get(reason.lower(), reason.lower()) if isinstance(reason, str) else reason


def _texts(content: Any) -> tuple[str, str]:
    """Return the text of a content, and its thinking: some servers, such as Mistral's, give parts of these."""
    if not isinstance(content, list):
        return str(content or ""), ""
    parts = [part for part in content if isinstance(part, dict)]
    thoughts = ["".join(_texts(part["thinking"])) for part in parts if part.get("thinking")]
    return "".join(str(part.get("text") or "") for part in parts), "\n".join(thoughts)


def text_of(message: Message) -> str:
    """Return a reply as one text, with its thinking, and with its calls as people read them."""
    thought = f"{THINK}\n{message[THOUGHT]}\n{THINK_END}\n\n" if message.get(THOUGHT) else ""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    lines = [f"{call['name']}({call['arguments']})" for call in calls]
    return thought + "\n".join(part for part in (message["content"], *lines) if part)


def _call(call: Any) -> dict[str, Any]:
    function = call.function
    given = function.arguments or "{}"
    # Some servers give the object itself.
    fields = {"name": str(function.name), "arguments": given if isinstance(given, str) else json.dumps(given)}
    signed = (getattr(call, "model_extra", None) or {}).get(SIGNED)
    more = {SIGNED: signed} if signed else {}
    return {"id": str(call.id or ""), "type": "function", "function": fields, **more}


def _unsigned(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in call.items() if name != SIGNED} for call in calls]


def _used(response: Any) -> tuple[int, int] | None:
    usage = getattr(response, "usage", None)
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    return (count_of(counts[0]), count_of(counts[1])) if all(type(count) is int for count in counts) else None
