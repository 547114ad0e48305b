"""One conversation in token ids: what the inference server was given and what it sampled, in order.

Sampled ids are kept as they came, never decoded and encoded again. Where the chat template would
write earlier turns differently, a new segment starts with a fresh prompt; every sampled id is
trained in exactly one segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jinja2 import TemplateError

from atropos_agent.tokens.drift import Drift, drift_of
from atropos_agent.tokens.encoding import CUT, SPELLED, unquoted
from atropos_agent.tokens.probes import Frame, ReplyKind
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, THINK, THINK_END, Message, SequenceData

Literals = Callable[[str], Sequence[tuple[int, int]]]
"""Where in a reply its calls stand (`ToolFormat.literals`)."""

_TAGS = re.compile(f"{THINK}|{THINK_END}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply as the inference server gave it: ids (stop token included), their logprobs and why
    it ended ("stop", "length", …). `text` is set only by inference servers that return no ids, `version` (of the
    oldest weights that had a part in it) only by those that say it."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str
    text: str | None = None
    version: int | None = None


@dataclass(slots=True)
class _Segment:
    tokens: list[int]
    masked: list[int]
    logprobs: list[float]
    turns: int = 0
    version: int | None = None

    @classmethod
    def of(cls, prompt: list[int]) -> _Segment:
        return cls(prompt, [IGNORED] * len(prompt), [NO_LOGPROB] * len(prompt))

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


@dataclass(slots=True)
class Conversation:
    """Messages and, in step with them, the ids of every segment."""

    template: ChatTemplate
    messages: list[Message]
    """Content quoted by `ChatTemplate.quote` where it is not ours."""
    frame: Frame | None = None
    """What the tool format puts around results."""
    literals: Literals | None = None
    """Where thinking tags in a reply are text like any other; None: nowhere."""
    segments: list[_Segment] = field(default_factory=list)
    _written: dict[ReplyKind, None] = field(default_factory=dict)
    """Of all replies as the template would write them, by where each occurs last."""
    _settled: tuple[ReplyKind, ...] = ()
    """Of the replies that the template has written."""
    _kinds: set[ReplyKind] = field(default_factory=set)
    """Of the replies that stand as they were sampled."""
    _last: ReplyKind = ReplyKind.PLAIN
    _end: Sequence[int] = ()
    _sent: tuple[int, int] = (0, 0)
    """Of the last prompt that was answered: how many ids and how many messages it has."""

    def __post_init__(self) -> None:
        given, self.messages = self.messages, []
        for message in given:
            if message["role"] == "assistant":
                self._add_written(self._tags_cut(message["content"]))
            else:
                self.messages.append(message)
        self._start_segment(self.template.prompt(self.messages))

    @property
    def prompt(self) -> list[int]:
        """Return ids that end where the next reply begins. Not a copy: send it before adding to it."""
        return self.segments[-1].tokens

    def add_reply(self, completion: Completion) -> str:
        """Take in a reply; returns its text without the end-of-turn token."""
        ids = completion.ids
        end = self.template.turn_end(ids, completion.finish_reason)
        self._end = () if end is None else ids[end:]
        self._sent = len(self.prompt), len(self.messages)
        quoted = self._tags_cut(self.template.quote_ids(ids if end is None else ids[:end]))
        self.segments[-1].add_sampled(completion)
        self._last = self.template.kind_of(quoted)
        self._kinds.add(self._last)
        self._add_written(self.template.content_of(quoted))
        return unquoted(quoted)

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Take in what comes before the next reply."""
        added = self.template.continuation(
            messages,
            has_system=self.messages[0]["role"] == "system",
            kinds=self._kinds,
            last=self._last,
            end=self._end,
            frame=self.frame,
            settled=self._settled,
        )
        self.messages += messages
        if added is not None:
            self.segments[-1].add_context(added)
            return
        prompt, known = self.template.prompt(self.messages), self.segments[-1].tokens
        if prompt[: len(known)] == known:
            self.segments[-1].add_context(prompt[len(known) :])
            self._settle()
        else:
            self._start_segment(prompt)

    def rows(self) -> list[SequenceData]:
        """Return a row for each segment that holds a sampled token, cut behind its last sampled token."""
        rows = []
        for index, segment in enumerate(self.segments):
            end = len(segment.masked)
            while end and segment.masked[end - 1] == IGNORED:
                end -= 1
            if not end:
                continue
            rows.append(
                SequenceData(
                    self.template.decode(segment.tokens[:end]),
                    segment.tokens[:end],
                    segment.masked[:end],
                    segment.logprobs[:end],
                    segment=index,
                    turns=segment.turns,
                    policy_version=segment.version,
                )
            )
        return rows

    def drift(self, rows: Sequence[SequenceData]) -> Drift | None:
        """Return how the last prompt that was answered differs from the template's own; None where it does not.

        rows: the conversation's."""
        ids, number = self._sent
        if not ids or not rows:
            return None
        messages = self.messages[:number]
        try:
            if not self.template.greedy and rows[-1].full_text.startswith(unquoted(self.template.render(messages))):
                return None
            return drift_of(self.template, rows[-1].tokens[:ids], messages)
        except TemplateError:
            return Drift.TEXT

    def plain_messages(self) -> list[Message]:
        """Return the messages as a person reads them."""
        return [{**message, "content": unquoted(message["content"])} for message in self.messages]

    def _start_segment(self, prompt: list[int]) -> None:
        self.segments.append(_Segment.of(prompt))
        self._settle()

    def _settle(self) -> None:
        """Remember that the template has written all replies so far, as it likes them."""
        self._settled, self._kinds = tuple(self._written), set()

    def _add_written(self, content: str) -> None:
        kind = self.template.kind_of(content)
        self._written.pop(kind, None)
        self._written[kind] = None
        self.messages.append({"role": "assistant", "content": content})

    def _tags_cut(self, quoted: str) -> str:
        """Return a reply with the thinking tags in its calls quoted: templates would cut it there."""
        if self.literals is None or not _TAGS.search(quoted):
            return quoted
        inside = [
            start + found.start()
            for start, end in self.literals(unquoted(quoted))
            for found in _TAGS.finditer(unquoted(quoted)[start:end])
        ]
        places = [place for place, character in enumerate(quoted) if character not in (CUT, SPELLED)]
        for place in reversed(inside):
            quoted = quoted[: places[place] + 1] + CUT + quoted[places[place] + 1 :]
        return quoted
