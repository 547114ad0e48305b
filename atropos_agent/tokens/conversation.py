"""One conversation in token ids: what the inference server was given and what it sampled, in order.

Sampled ids are kept as they came, never decoded and encoded again. Where the chat template would
write earlier turns differently, a new segment starts with a fresh prompt; every sampled id is
trained in exactly one segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atropos_agent.tokens.encoding import CUT, not_text_replaced
from atropos_agent.tokens.probes import Frame, ReplyKind
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, Message, SequenceData


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
    segments: list[_Segment] = field(default_factory=list)
    _kinds: set[ReplyKind] = field(default_factory=set)
    _last: ReplyKind = ReplyKind.PLAIN
    _end: Sequence[int] = ()

    def __post_init__(self) -> None:
        self._kinds = {self.template.kind_of(m["content"]) for m in self.messages if m["role"] == "assistant"}
        self._start_segment()

    @property
    def prompt(self) -> list[int]:
        """Return ids that end where the next reply begins. Not a copy: send it before adding to it."""
        return self.segments[-1].tokens

    def add_reply(self, completion: Completion) -> str:
        """Take in a reply; returns its text without the end-of-turn token."""
        ids = completion.ids
        end = self.template.turn_end(ids, completion.finish_reason)
        self._end = () if end is None else ids[end:]
        # What the model made up of our marks' characters would be taken for them.
        text = not_text_replaced(self.template.decode(ids if end is None else ids[:end]))
        self.segments[-1].add_sampled(completion)
        self._last = self.template.kind_of(text)
        self._kinds.add(self._last)
        self.messages.append({"role": "assistant", "content": self.template.content_of(text)})
        return text

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Take in what comes before the next reply."""
        added = self.template.continuation(
            messages,
            has_system=self.messages[0]["role"] == "system",
            kinds=self._kinds,
            last=self._last,
            end=self._end,
            frame=self.frame,
        )
        self.messages += messages
        if added is None:
            self._start_segment()
        else:
            self.segments[-1].add_context(added)

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

    def plain_messages(self) -> list[Message]:
        """Return the messages as a person reads them."""
        return [{**message, "content": message["content"].replace(CUT, "")} for message in self.messages]

    def _start_segment(self) -> None:
        self.segments.append(_Segment.of(self.template.prompt(self.messages)))
