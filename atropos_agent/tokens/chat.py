"""Conversations in messages alone, with servers that return no token ids: for evaluation only, without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_agent.tokens.conversation import Completion, Place
from atropos_agent.types import THINK, THINK_END, EngineError, Message, SequenceData


class ChatLog:
    """A conversation in messages alone, in the shape of `Conversation`. It yields no rows."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.segments: Sequence[Any] = ((),)
        self.prompt: list[int] = []

    thinking_open = False

    def place(self) -> Place:
        """Return the conversation's present place."""
        return Place(0, 0, len(self.messages), 0, None, False, ())

    def fork(self, place: Place) -> ChatLog:
        """Return a conversation that goes on from an earlier place of this one."""
        return ChatLog(self.messages[: place.messages])

    def add_reply(self, completion: Completion) -> str:
        """Take in a reply; returns its text."""
        text = completion.text or ""
        self.messages.append({"role": "assistant", "content": text})
        return text

    def add_calls(self, message: Message, kind: object) -> None:
        """Leave the last reply as it is: the inference server is given its text."""

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Take in the messages before the next reply."""
        self.messages += messages

    def rows(self, only: object = None) -> list[SequenceData]:
        """Return no rows: there are no token ids."""
        return []

    def drift(self, rows: Sequence[SequenceData]) -> None:
        """Return None: the inference server renders the messages."""

    def plain_messages(self) -> list[Message]:
        """Return the messages as a person reads them."""
        return [dict(message) for message in self.messages]


def read_chat(response: Any) -> Completion:
    """Return the reply in an OpenAI ChatCompletion, thinking included.

    Some inference servers return thinking apart, as `reasoning` or `reasoning_content`, and some put the
    whole reply there and leave `content` empty. Raises EngineError when there is no reply."""
    if not response.choices:
        raise EngineError("the inference server returned no reply")
    choice = response.choices[0]
    content = choice.message.content or ""
    reasoning = getattr(choice.message, "reasoning_content", None) or getattr(choice.message, "reasoning", None)
    both = reasoning and content
    text = f"{THINK}\n{reasoning}\n{THINK_END}\n\n{content}" if both else content or reasoning or ""
    return Completion((), (), choice.finish_reason or "stop", text)
