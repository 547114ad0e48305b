"""The seam between the agent and how a model is shown tools, calls them and hears of their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from atropos_agent.types import THINK, THINK_END, Message, Reply
from tools.base import ToolCall, ToolResult

DEFAULT_PREAMBLE = "You are an agent that works in a Linux sandbox by calling tools."


class ToolFormat(ABC):
    """How a model calls tools: its instructions, the reading of its replies, the messages of results.

    A subclass defines `instructions`, `parse`, `write` and `correction`. It keeps nothing between calls: one
    object serves every rollout. Nothing is to be repaired: a call that is not exactly in the
    format is a problem, because a repaired call would be rewarded like a correct one.

    A chat template does its own part itself (show tools, write calls and results), if `parse` reads its calls
    back; the rest of this class is for templates that can't.

    control: the format's own strings that a tokenizer may hold as single tokens. They stay control text
        in system messages, in replies given as examples and in corrections; everywhere else they are encoded as text.
    frame: the text before and after a result in a message's content, by which chat templates tell
        results from questions; None if the role alone tells them.
    ends: those of `control` with which a model ends a turn with calls; others never end one.
    thinking: the tags around thinking.
    channelled: thinking and content stand in messages of their own, with headers; `parse` is given all of these.
    """

    control: Sequence[str] = ()
    frame: tuple[str, str] | None = None
    ends: Sequence[str] = ()
    channelled: bool = False
    thinking: tuple[str, str] = (THINK, THINK_END)

    @abstractmethod
    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        """Return how the prompt shows tools, given by schemas in OpenAI's function format, and how to call them."""

    @abstractmethod
    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        """Take a reply apart, whatever is in it. Raises nothing.

        first_id: number of the first call, for ids (`call_0`) that are unique in a rollout.
        thinking_open: the prompt ended inside `<think>`, so the reply starts there.
        """

    @abstractmethod
    def write(self, call: ToolCall) -> str:
        """Return a call as a model writes it: `parse` reads it back.

        Raises ValueError for a call that the format can't write."""

    @abstractmethod
    def correction(self, problems: Sequence[str]) -> str:
        """Return the message to the model about its malformed calls.

        Strings in `control` are encoded here as in system messages, so a call in it has the ids that the
        model must write. In `problems`, which may quote the model, they are text."""

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> ToolFormat:
        """Return the format as it reads calls of these tools: itself, unless a schema decides the type of an
        argument."""
        return self

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        """Return the calls of one reply as a model writes them."""
        return "\n".join(map(self.write, calls))

    def turn(self, reply: Reply) -> str:
        """Return a whole reply as a model writes it: `parse` reads it back."""
        think, think_end = self.thinking
        thought = "" if reply.thinking is None else f"{think}\n{reply.thinking}\n{think_end}\n\n"
        return thought + "\n".join(part for part in (reply.content, self.write_all(reply.calls)) if part)

    def call_id(self, number: int, name: str) -> str:
        """Return the id of a rollout's call of this number, as the format's chat templates take it."""
        return f"call_{number}"

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        """Return the places of a reply's calls, malformed and cut off ones too, as (start, end). Thinking
        tags in them are text like any other.

        Without it a chat template may cut a call at a tag in its arguments. thinking_open: as in `parse`."""
        return ()

    def system_prompt(
        self,
        schemas: Sequence[Mapping[str, object]],
        *,
        preamble: str | None = None,
        working_dir: str | None = None,
    ) -> str:
        """Return the system message: the preamble, the model's working directory, and its tools.

        preamble: replaces the default; working_dir: named to the model; None leaves it out.
        """
        parts = [
            DEFAULT_PREAMBLE if preamble is None else preamble.strip(),
            f"You work in {working_dir}." if working_dir else "",
            self.instructions(schemas) if schemas else "",
        ]
        return "\n\n".join(part for part in parts if part)

    def messages(self, results: Sequence[ToolResult], correction: str | None, *, role: str) -> list[Message]:
        """Return the messages with results, and with the correction of malformed calls, to the model as text.

        results: in the order of their calls (`ToolResult.call`), contents quoted already.
        role: the configured chat role of results.
        """
        before, behind = self.frame or ("", "")
        contents = [result.content for result in results] + ([] if correction is None else [correction])
        return [{"role": role, "content": "\n".join(f"{before}{content}{behind}" for content in contents)}]
