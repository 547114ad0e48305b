"""Fit a tool format to a chat template: some parts are left to the template, the others are written as text.

Templates that show tools, write calls and take results do so; `auto` finds the format of a template's calls.
If a template does less, or nothing, tools stand in the system prompt, calls stay the reply's text, and results are
messages of a role accepted by the template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from jinja2 import TemplateError

from atropos_agent.formats import AUTO, FORMATS, TEMPLATE, ToolFormat, load_format
from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.native import Native, read_native
from atropos_agent.formats.plain import Plain
from atropos_agent.formats.reading import tags_of
from atropos_agent.tokens.calls import PROBE, CallShape, CallsKind, Tools, learn, map_texts
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Conversation
from atropos_agent.tokens.probes import MARK
from atropos_agent.tokens.stability import write_probe_call
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import Message, Reply
from tools.base import ToolCall, ToolResult

T = TypeVar("T")

CHATML = "<|im_start|>"


@dataclass(frozen=True)
class FittedFormat:
    """A tool format as one chat template takes it.

    template: None with inference servers that work on messages: then all is text.
    shape: of replies with calls for the template; None if calls stay text.
    own: whether the format is the template's or the tokenizer's own, also if calls stay text.
    shows_tools: whether the template shows the tools.
    role: of results that are text: "user", or "tool" if so configured.
    native: whether the endpoint shows the tools and gives calls as data; then none of it is text.
    why: how the format was found, for people.
    unread: the text of a call as the template writes it, if the format does not read it; "" if it writes none.
    calls_are_text: whether calls in replies are text like any other, because the model was shown no tools.
    """

    format: ToolFormat
    template: ChatTemplate | None = None
    shape: CallShape | None = None
    own: bool = False
    shows_tools: bool = False
    role: str = "user"
    why: str = "it was asked for"
    unread: str = ""
    native: bool = False
    calls_are_text: bool = False

    @classmethod
    def text(cls, tool_format: ToolFormat, template: ChatTemplate | None, role: str) -> FittedFormat:
        """Return a format unknown to the template: tools, calls and results are text."""
        return cls(tool_format, template, role=role)

    @classmethod
    def of(
        cls, name: str, template: ChatTemplate | None, role: str = AUTO, *, takes_tools: bool = False
    ) -> FittedFormat:
        """Return the format of this name, or the template's own for `auto`, as the template takes it.

        takes_tools: without a template, whether the endpoint takes tools itself: then `auto` leaves them to it.
        role: "auto" leaves to the template everything it can do; "user" and "tool" make text of tools, calls and
            results, with results as messages of this role. Raises ValueError for an unknown name, and for "template"
            if no format reads the template's calls."""
        if template is None:
            if name == TEMPLATE:
                raise ValueError("--env.tool_format template: the inference server shows no template")
            if name == AUTO and role == AUTO and takes_tools:
                return cls(Native(), shows_tools=True, native=True, why="the endpoint takes tools itself")
            known = Hermes() if name == AUTO else load_format(name)
            return cls(known, role="user" if role == AUTO else role, why="the inference server shows no template")
        fitted = _choose(template)
        if name == TEMPLATE and not fitted.own:
            writes = (
                f"writes a call as {fitted.unread!r}, which no format reads" if fitted.unread else "writes no calls"
            )
            raise ValueError(f"--env.tool_format template: the chat template {writes}; leave it to auto for text")
        if name not in (AUTO, TEMPLATE):
            fitted = cls._fit_named(load_format(name), template, fitted)
        if role != AUTO and not template.knows_role(role):
            raise ValueError(
                f"--env.tool_role {role}: the chat template takes no messages of that role; leave it to auto"
            )
        if role != AUTO:
            return cls(fitted.format, template, role=role, why=fitted.why, unread=fitted.unread)
        return replace(fitted, shows_tools=fitted.own and template.shows_tools)

    @classmethod
    def _fit_named(cls, chosen: ToolFormat, template: ChatTemplate, found: FittedFormat) -> FittedFormat:
        """Return the requested format. found: the template's own."""
        shape = learn(template, chosen)
        own = shape is not None or (found.own and type(found.format) is type(chosen))
        return cls(chosen, template, shape, own, unread="" if own else _written_call(template))

    @cached_property
    def warning(self) -> str | None:
        """Return a warning about calls in the template's own way, if the format does not read them; else None."""
        if not self.unread:
            return None
        return (
            f"the chat template writes a call as {self.unread!r}, which {type(self.format).__name__} does not read: "
            "the model is asked for calls as text instead, without the template's tools, and the template's calls are "
            "malformed"
        )

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the tags of the template's own calls, without the format's."""
        ours = {*self.format.control, *(getattr(self.format, name, "") for name in ("opening", "closing"))}
        return frozenset(tags_of(self.unread)) - ours

    def with_tools(self, schemas: Tools) -> FittedFormat:
        """Return the format, fitted to calls of these tools."""
        return replace(self, format=self.format.with_tools(schemas))

    @cached_property
    def results_after_text(self) -> bool:
        """Tell whether results are messages of role `tool` after a reply with its calls as text."""
        if not self.own or self.template is None:
            return False
        ids = self.format.call_id(0, "probe"), self.format.call_id(1, "probe")
        return self.template.takes_results_after_text(ids)

    @cached_property
    def inside(self) -> frozenset[int]:
        """Return the format's control tokens, without those that end a turn."""
        if self.template is None:
            return frozenset()
        return self.template.controls([text for text in self.format.control if text not in self.format.ends])

    # What stands before the first reply

    def shown(self, schemas: Tools) -> Tools:
        """Return the tools for the template to show, their text quoted; nothing if it shows none."""
        if self.template is None or not self.shows_tools:
            return ()
        return [map_texts(schema, self.template.quote) for schema in schemas]

    def system_prompt(self, schemas: Tools, *, preamble: str | None, working_dir: str | None) -> str:
        """Return the system message, with the tools if the template shows none."""
        return self.format.system_prompt(
            () if self.shows_tools else schemas, preamble=preamble, working_dir=working_dir
        )

    def opening(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages in OpenAI's shape, calls and results among them, as the template takes them, all quoted."""
        given: list[Message] = []
        results: list[ToolResult] = []
        called = False
        for message in messages:
            if message["role"] == "tool" and "tool_call_id" in message and not (called or self.results_after_text):
                # Results of calls that the template was not given as such.
                results.append(ToolResult(self._quote_message(message)["content"]))
                continue
            if results:
                given += self.format.messages(results, None, role=self.role)
                results = []
            given.append(self._quote_message(message))
            if message["role"] == "assistant":
                called = "tool_calls" in given[-1]
        return given + (self.format.messages(results, None, role=self.role) if results else [])

    def begin(
        self, template: ChatTemplate | None, messages: list[Message], schemas: Tools, *, keeps_thinking: bool
    ) -> Conversation | ChatLog:
        """Begin a conversation with messages as `opening` returns them. keeps_thinking: see `Conversation`.

        template: None if messages are the prompt."""
        if template is None:
            return ChatLog(messages, schemas if self.native else None)
        return Conversation(
            template,
            messages,
            self.format.frame,
            self.format.literals,
            self.shown(schemas),
            self.shape,
            inside=self.inside,
            thinking=self.format.thinking,
            keeps_thinking=keeps_thinking,
        )

    def _quote_message(self, message: Message) -> Message:
        if self.template is None:
            return {**message, "content": message.get("content") or ""}
        quote, given = self.template.quote, message.get("content") or ""
        if message["role"] == "assistant":
            content = self._quote_reply(self.template, given)
        else:
            content = quote(given, keep=self.format.control if message["role"] == "system" else ())
        calls = [_call(call) for call in message.get("tool_calls") or ()]
        if not calls:
            keys = [key for key in ("tool_call_id", "name") if self.own and key in message]
            kept: Message = {key: quote(str(message[key])) for key in keys}
            return {**kept, "role": message["role"], "content": content}
        thinking = message.get("reasoning_content") or message.get("reasoning") or message.get("thinking")
        reply = Reply(thinking, message.get("content") or "", calls, ())
        if (taken := self._message_with_calls(reply)) is not None:
            return taken[0]
        return {"role": "assistant", "content": self._quote_reply(self.template, self.format.turn(reply))}

    def _quote_reply(self, template: ChatTemplate, text: str) -> str:
        """Return a reply's text, quoted but for the format's control tokens; these too where the template refuses
        them."""
        quoted = template.quote(text, keep=self.format.control)
        if any(token in quoted for token in self.format.control):
            question: Message = {"role": "user", "content": PROBE}
            if template.refuses([question, {"role": "assistant", "content": quoted}, question]):
                return template.quote(text)
        return quoted

    # A turn

    def read(self, text: str, *, first_id: int, thinking_open: bool, message: Message | None = None) -> Reply:
        """Take a reply apart. text: everything sampled, but the end of the turn. message: the endpoint's own form."""
        if self.native and message is not None:
            return read_native(message, first_id)
        if self.template is not None and not self.format.channelled:
            text = self.template.header.content_of(text)
        if self.calls_are_text and not self.format.channelled:  # there calls stand in a channel of their own
            return self._read_text(text, thinking_open)
        reply = self.format.parse(text, first_id=first_id, thinking_open=thinking_open)
        if reply.calls or reply.problems or not any(mark in reply.content for mark in self.marks):
            return reply
        return replace(reply, problems=("the call is written in another way than was asked for",))

    def _read_text(self, text: str, thinking_open: bool) -> Reply:
        """Return a reply with its thinking apart, and its calls in the content as they were sampled."""
        places = self.format.literals(text, thinking_open=thinking_open)
        ends = [0, *(end for _, end in places)]
        starts = [*(start for start, _ in places), len(text)]
        around = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        read = self.format.parse(MARK.join(around), thinking_open=thinking_open)
        content = read.content.split(MARK)
        if len(content) != len(around):
            return Reply(None, text.strip(), (), ())
        calls = [*(text[start:end] for start, end in places), ""]
        whole = "".join(part for pair in zip(content, calls, strict=True) for part in pair)
        return Reply(read.thinking, whole.strip(), (), ())

    def message(self, reply: Reply) -> tuple[Message, CallsKind] | None:
        """Return a reply as a message with calls in the template's way, and its kind; None if it stays text."""
        return self._message_with_calls(reply) if reply.orderly else None

    def _message_with_calls(self, reply: Reply) -> tuple[Message, CallsKind] | None:
        """Return a reply as the message with calls that the template takes, and its kind; None if it takes none."""
        if self.shape is None or self.template is None:
            return None
        quote, takes = self.template.quote, self.template.takes
        message = self.shape.message(reply, quote)
        kind = self.shape.kind(
            message, dropped=bool(reply.thinking) and self.shape.thinking is None, emptied=reply.thinking == ""
        )
        if takes(kind.as_template_kind()):
            return message, kind
        if not reply.content or self.shape.thinking is None:
            return None
        # A template without a place for words before a call may have one for thinking (gpt-oss).
        thought = "\n".join(part for part in (reply.thinking, reply.content) if part)
        message = self.shape.message(replace(reply, thinking=thought, content=""), quote)
        kind = self.shape.kind(message)
        return (message, replace(kind, dropped=True)) if takes(kind) else None

    def results(self, results: Sequence[ToolResult], problems: Sequence[str], *, called: bool) -> list[Message]:
        """Return the messages that tell the model the results of its calls, as text that can't write control tokens.

        problems: of the malformed calls. called: the reply's calls are the template's (`message`)."""
        quote = str if self.template is None else self.template.quote
        quoted = [replace(result, content=quote(result.content)) for result in results]
        correction = self.format.correction([quote(problem) for problem in problems]) if problems else None
        if correction is not None and self.template is not None:
            # The format's own words may show a call, in the ids that the model itself must write.
            correction = self.template.quote_rest(correction, keep=self.format.control)
        if not (called or self.native or self.results_after_text):
            return self.format.messages(quoted, correction, role=self.role)
        messages: list[Message] = [
            {
                "role": "tool",
                "tool_call_id": quote(result.call.id) if result.call else "",
                "name": quote(result.call.name) if result.call else "",
                "content": result.content,
            }
            for result in quoted
        ]
        if correction is not None and self.native:
            messages.append({"role": "user", "content": correction})
        elif correction is not None:
            number = self.format.call_id(len(quoted), "error")
            messages.append({"role": "tool", "tool_call_id": number, "name": "error", "content": correction})
        return messages


def fitting(encode: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> T:
    """Return the result of `encode` for messages, in a form accepted by the chat template: some want a reply after
    each message. Raises TemplateError."""
    try:
        return encode(messages)
    except TemplateError:
        joined: list[Message] = []
        for message in messages:
            if joined and message["role"] == "user" and joined[-1]["role"] in ("user", "tool"):
                joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
            else:
                joined.append(message)
        if len(joined) == len(messages):
            raise
        return encode(joined)


def _call(call: Mapping[str, Any]) -> ToolCall:
    """Return the call given in OpenAI's shape, with its JSON arguments decoded. Raises ValueError."""
    function = call["function"]
    arguments = function.get("arguments") or {}
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of a call of {function['name']!r} must be a JSON object")
    return ToolCall(function["name"], arguments, call.get("id") or "")


def _choose(template: ChatTemplate) -> FittedFormat:
    """Return the format of a template's calls, else one of text known to models of its kind."""
    for name, kind in FORMATS.items():
        tool_format = kind()
        shape = learn(template, tool_format)
        if shape is not None:
            return FittedFormat(
                tool_format, template, shape, True, why=f"the template writes a call as {name} reads it"
            )
    written = _written_call(template)
    for name, kind in FORMATS.items():
        # Some templates leave the end of a call's section out.
        if any(_can_read(kind(), written + end) for end in ("", getattr(kind, "closing", ""))):
            why = f"the template writes a call in words of {name}, but not such that it can be given one"
            return FittedFormat(kind(), template, None, True, why=why)
    if not written and (named := _find_format(str(template.tokenizer.chat_template))):
        why = f"the template writes no call that it is shown, but its source has all tags of {named}"
        return FittedFormat(FORMATS[named](), template, None, True, why=why)
    knows = "the template writes calls that no format reads" if written else "the template writes no calls"
    if CHATML in str(template.tokenizer.chat_template):
        why = f"{knows}, and ChatML models are asked for Hermes"
        return FittedFormat(Hermes(), template, why=why, unread=written)
    return FittedFormat(Plain(), template, why=knows, unread=written)


def _written_call(template: ChatTemplate) -> str:
    return write_probe_call(template, [kind().call_id(0, PROBE) for kind in FORMATS.values()])


def _find_format(source: str) -> str | None:
    """Return the format with all its tags of a call in a template's source: of several the one with the most."""
    tags = {name: tags_of(kind().write(ToolCall(PROBE, {"x": "x"}))) for name, kind in FORMATS.items()}
    held = [name for name, own in tags.items() if own and all(tag in source for tag in own)]
    return max(held, key=lambda name: len(tags[name]), default=None)


def _can_read(tool_format: ToolFormat, written: str) -> bool:
    reply = tool_format.parse(written)
    return not reply.problems and [call.name for call in reply.calls] == [PROBE]
