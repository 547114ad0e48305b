"""One conversation in token ids: the inference server's prompts and its samples, in order.

Sampled ids are kept as they came, never decoded and encoded again. If the chat template would
write earlier turns differently, a new segment starts with a fresh prompt; every sampled id is
trained in exactly one segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from jinja2 import TemplateError

from atropos_agent.tokens.calls import CallShape, CallsKind, Kind, Tools, map_texts
from atropos_agent.tokens.drift import Drift, drift_of
from atropos_agent.tokens.encoding import CUT, SPELLED, unquote
from atropos_agent.tokens.experts import Experts, extend_experts, write_experts
from atropos_agent.tokens.probes import Frame, ReplyKind
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, THINK, THINK_END, Message, SequenceData

_STATE = ("thinking_open", "_settled", "_last", "_answered", "_end", "_sent", "_written", "_kinds")
"""Attributes of a conversation, beside its messages and segments, that change with every turn."""

_TAGS = re.compile(f"{THINK}|{THINK_END}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply as the inference server gave it: ids (stop token included), their logprobs and the
    finish reason ("stop", "length", …). `text` is set only by inference servers without ids. `version` (of the
    oldest weights that had a part in it) and `experts` (of prompt and reply) are set only by those that report
    them."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str
    text: str | None = None
    version: int | None = None
    experts: Experts | None = field(default=None, compare=False, repr=False)
    message: Message | None = None
    """The reply as an endpoint for messages gave it: `content`, `tool_calls`, and `raw` for its own next request."""
    used: tuple[int, int] | None = None
    """Tokens of prompt and reply, if an inference server without ids counts them."""


@dataclass(slots=True)
class _Segment:
    tokens: list[int]
    masked: list[int]
    logprobs: list[float]
    turns: int = 0
    version: int | None = None
    thinking_kept: bool = False
    called: list[tuple[int, int]] = field(default_factory=list)
    """Places of replies with calls that are the template's."""
    begun: tuple[int, int] = (0, 0)
    """With how many ids and how many messages it began."""
    experts: Experts | None = None

    @classmethod
    def of(cls, prompt: list[int], messages: int) -> _Segment:
        begun = len(prompt), messages
        return cls(prompt, [IGNORED] * len(prompt), [NO_LOGPROB] * len(prompt), begun=begun)

    def add_context(self, ids: Sequence[int]) -> None:
        self.tokens += ids
        self.masked += [IGNORED] * len(ids)
        self.logprobs += [NO_LOGPROB] * len(ids)

    def add_sampled(self, completion: Completion) -> None:
        self.tokens += completion.ids
        self.masked += completion.ids
        self.logprobs += completion.logprobs
        self.turns += 1
        known = [version for version in (self.version, completion.version) if version is not None]
        self.version = min(known, default=None)
        self.experts = extend_experts(self.experts, completion.experts, len(self.tokens))

    def experts_until(self, end: int) -> str | None:
        """Return the experts of all tokens before a place but the last; None if those of one are not known."""
        known = self.experts is not None and len(self.experts) >= end - 1
        return write_experts(self.experts[: end - 1]) if known and self.experts is not None else None


@dataclass(frozen=True, slots=True)
class Place:
    """A passed point of a conversation; another can go on from it (`Conversation.fork`)."""

    segment: int
    """Number of its segment."""
    tokens: int
    """Ids of its segment up to there."""
    messages: int
    turns: int
    version: int | None
    thinking_kept: bool
    state: tuple[object, ...]


@dataclass(slots=True)
class Conversation:
    """Messages and, in step with them, the ids of every segment."""

    template: ChatTemplate
    messages: list[Message]
    """The messages, with content from outside quoted by `ChatTemplate.quote`."""
    frame: Frame | None = None
    """The tool format's text around results."""
    literals: Callable[..., Sequence[tuple[int, int]]] | None = None
    """Returns the spans of a reply with thinking tags as plain text; None: there are none."""
    tools: Tools = ()
    """The tools that the template shows; empty if it shows none."""
    shape: CallShape | None = None
    """The shape of replies with calls; None if they are text."""
    keeps_thinking: bool = False
    """Whether replies stay as they were sampled even if the template would drop their thinking."""
    inside: frozenset[int] = frozenset()
    """The tool format's control tokens, which end no turn."""
    thinking: tuple[str, str] = (THINK, THINK_END)
    """The tool format's tags around thinking."""
    thinking_open: bool = False
    """Whether the prompt ends inside of thinking."""
    segments: list[_Segment] = field(default_factory=list)
    _written: dict[Kind, None] = field(default_factory=dict)
    """Kinds of all replies as the template would write them, in the order of each kind's last reply."""
    _settled: tuple[Kind, ...] = ()
    """Kinds of the replies that the template has written."""
    _kinds: set[Kind] = field(default_factory=set)
    """Kinds of the replies that stand as they were sampled."""
    _last: Kind = ReplyKind.PLAIN
    """Kind of the last reply, which may still turn out to hold calls."""
    _answered: bool = False
    """Whether there were results of calls."""
    _end: Sequence[int] = ()
    _sent: tuple[int, int] = (0, 0)
    """Numbers of ids and of messages in the last answered prompt."""

    def __post_init__(self) -> None:
        given, self.messages = self.messages, []
        self.thinking_open = self.template.opens(self.thinking)
        for message in given:
            if message["role"] != "assistant":
                self.messages.append(message)
            elif "tool_calls" in message and self.shape is not None:
                self._note(self.shape.kind(message))
                self.messages.append(message)
            else:
                content = self._quote_thinking_tags(message["content"])
                self._note(self.template.header.kind_of(content))
                self.messages.append({**message, "content": content})
        self._answered = any("tool_call_id" in message for message in self.messages)
        self._start_segment(self.template.prompt(self.messages, self.tools))

    @property
    def prompt(self) -> list[int]:
        """Return ids up to the beginning of the next reply. Not a copy: send it before adding to it."""
        return self.segments[-1].tokens

    def add_reply(self, completion: Completion) -> str:
        """Take in a reply; returns its text without the end-of-turn token."""
        ids = completion.ids
        end = self.template.turn_end(ids, completion.finish_reason, self.inside)
        self._end = () if end is None else ids[end:]
        self._sent = len(self.prompt), len(self.messages)
        text = self._quote_thinking_tags(self.template.quote_ids(ids if end is None else ids[:end]))
        self.segments[-1].add_sampled(completion)
        self._last = self.template.header.kind_of(text)
        self.messages.append({"role": "assistant", "content": self.template.header.content_of(text)})
        return unquote(text)

    def add_calls(self, message: Message, kind: CallsKind) -> None:
        """Take in the last reply as a message with calls, which the template takes."""
        self.messages[-1], self._last = message, kind
        self.segments[-1].called.append((self._sent[0], len(self.prompt)))

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Take in the messages before the next reply."""
        self._kinds.add(self._last)
        called = self.messages[-1] if isinstance(self._last, CallsKind) else None
        self._note(self._last if called is not None else self.template.header.kind_of(self.messages[-1]["content"]))
        continuation = partial(
            self.template.continuation,
            messages,
            has_system=self.messages[0]["role"] == "system",
            kinds=self._kinds,
            last=self._last,
            end=self._end,
            frame=self.frame,
            settled=self._settled,
            tools=bool(self.tools),
            called=called,
            answered=self._answered,
        )
        added = continuation()
        if added is None and self.keeps_thinking and (added := continuation(ignore_thinking=True)) is not None:
            self.segments[-1].thinking_kept = True
        self.messages += messages
        self._answered |= any("tool_call_id" in message for message in messages)
        self.thinking_open = self.template.opens_thinking_after(
            messages, self._last, tools=bool(self.tools), thinking=self.thinking
        )
        if added is not None:
            self.segments[-1].add_context(added)
            return
        prompt, known = self.template.prompt(self.messages, self.tools), self.segments[-1].tokens
        if prompt[: len(known)] == known:
            self.segments[-1].add_context(prompt[len(known) :])
            self._settle()
        else:
            self._start_segment(prompt)

    def place(self) -> Place:
        """Return the conversation's present place."""
        last = self.segments[-1]
        return Place(
            len(self.segments) - 1,
            len(last.tokens),
            len(self.messages),
            last.turns,
            last.version,
            last.thinking_kept,
            (*(getattr(self, name) for name in _STATE[:-2]), tuple(self._written), frozenset(self._kinds)),
        )

    def fork(self, place: Place) -> Conversation:
        """Return a conversation that goes on from an earlier place of this one. They share no mutable state;
        sampled tokens before the place stand in both."""
        given = self.segments[place.segment]
        last = _Segment(
            given.tokens[: place.tokens],
            given.masked[: place.tokens],
            given.logprobs[: place.tokens],
            place.turns,
            place.version,
            place.thinking_kept,
            [called for called in given.called if called[1] <= place.tokens],
            given.begun,
            None if given.experts is None else given.experts[: place.tokens],
        )
        forked = copy(self)
        forked.segments = [*self.segments[: place.segment], last]
        forked.messages = self.messages[: place.messages]
        for name, value in zip(_STATE, place.state, strict=True):
            setattr(forked, name, value)
        forked._written, forked._kinds = dict.fromkeys(forked._written), set(forked._kinds)
        return forked

    def rows(self) -> list[SequenceData]:
        """Return a row for each segment with a trained token, cut after its last one."""
        return [SequenceData(**fields) for fields in self.cut()]

    def cut(self, only: Mapping[int, Sequence[tuple[int, int]]] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the fields of each row: `SequenceData` goes through all tokens, so a row is made once.

        only: the trained replies, by segments, as (start, end); None trains all."""
        for index, segment in enumerate(self.segments):
            masked, logprobs = segment.masked, segment.logprobs
            if only is not None:
                masked, logprobs = [IGNORED] * len(masked), [NO_LOGPROB] * len(logprobs)
                for start, stop in only.get(index, ()):
                    masked[start:stop], logprobs[start:stop] = segment.masked[start:stop], segment.logprobs[start:stop]
            end = len(masked)
            while end and masked[end - 1] == IGNORED:
                end -= 1
            if end:
                yield {
                    "full_text": self.template.decode(segment.tokens[:end]),
                    "tokens": segment.tokens[:end],
                    "masked_tokens": masked[:end],
                    "logprobs": logprobs[:end],
                    "segment": index,
                    "turns": segment.turns,
                    "policy_version": segment.version,
                    "thinking_kept": segment.thinking_kept,
                    "experts": segment.experts_until(end),
                }

    def drift(self, text: str | None = None) -> Drift | None:
        """Return how the last answered prompt differs from the template's own; None if it does not.

        text: of the last segment with a trained token, if it is decoded already."""
        ids, number = self._sent
        trained = (one for one in reversed(self.segments) if any(mask != IGNORED for mask in reversed(one.masked)))
        segment = next(trained, None)
        if not ids or segment is None:
            return None
        messages = self.messages[:number]
        try:
            rendered = self.template.render(messages, tools=self.tools)
            if not self.template.greedy:
                text = self.template.decode(segment.tokens) if text is None else text
                if text.startswith(unquote(rendered)):
                    return None
            rendered = self._render_as_of_start(segment, rendered)
            called = [place for place in segment.called if place[1] <= ids]
            return drift_of(self.template, segment.tokens[:ids], messages, rendered, called)
        except TemplateError:
            return Drift.TEXT

    def _render_as_of_start(self, segment: _Segment, rendered: str) -> str:
        """Return a rendering of all messages as it would be had it begun when the segment did: a template may write the
        time."""
        ids, number = segment.begun
        opening = self.template.render(self.messages[:number], tools=self.tools)
        if not rendered.startswith(opening):
            return rendered
        return self.template.decode(segment.tokens[:ids]) + rendered[len(opening) :]

    def plain_messages(self) -> list[Message]:
        """Return the messages as a person reads them."""
        return [map_texts(message, unquote) for message in self.messages]

    def _start_segment(self, prompt: list[int]) -> None:
        self.segments.append(_Segment.of(prompt, len(self.messages)))
        self._settle()

    def _settle(self) -> None:
        """Count all replies so far as written by the template, in its own way."""
        self._settled, self._kinds = tuple(self._written), set()

    def _note(self, kind: Kind) -> None:
        self._written.pop(kind, None)
        self._written[kind] = None

    def _quote_thinking_tags(self, quoted: str) -> str:
        """Return a reply with the thinking tags in its calls quoted: templates would cut it there."""
        if self.literals is None or not _TAGS.search(quoted):
            return quoted
        text = unquote(quoted)
        places = [place for place, character in enumerate(quoted) if character not in (CUT, SPELLED)]
        inside = [
            places[found.start()] + 1
            for start, end in self.literals(text, thinking_open=self.thinking_open)
            for found in _TAGS.finditer(text, start, end)
        ]
        cuts = zip([0, *inside], [*inside, len(quoted)], strict=True)
        return CUT.join(quoted[start:end] for start, end in cuts)
