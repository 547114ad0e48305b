"""Facts about a chat template from short conversations of marks: whether it leaves a conversation as it is
once new messages follow, the text that it then adds, and the replies with calls that it writes as their tool format
does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from atropos_agent.tokens.calls import PROBE, STUB, CallsKind, Kind, Tools, results_of, text_after, texts_of
from atropos_agent.tokens.header import Header
from atropos_agent.tokens.probes import Frame, ReplyKind, mark, marks, reply, shape_like, strip_whitespace, user
from atropos_agent.types import THINK, THINK_END, Message


class Renders(Protocol):
    """A chat template as it is used here; see `ChatTemplate`."""

    refusals: tuple[type[Exception], ...]
    header: Header

    def opens(self, thinking: tuple[str, str]) -> bool:
        """Tell whether prompts end inside of thinking between these tags."""
        ...

    def render(self, messages: Sequence[Message], *, replying: bool = True, tools: Tools = ()) -> str:
        """Return messages as text. Raises the exceptions in `refusals`."""
        ...

    def render_probe(self, messages: Sequence[Message], *, replying: bool = True, tools: Tools = ()) -> str:
        """Return what `render` does, which renders equal messages once."""
        ...

    def takes_results_after_text(self, ids: Sequence[str]) -> bool:
        """Tell whether results may follow a reply without calls."""
        ...


@dataclass(frozen=True, slots=True)
class Stability:
    """Short conversations of marks, in the shape of one in which `messages` come next.

    frame: the tool format's text around results. tools: those for the template.
    ignore_thinking: replies hold no thinking, but the prompt may begin or end some.
    """

    template: Renders
    messages: Sequence[Message]
    frame: Frame | None
    tools: Tools
    ignore_thinking: bool = False

    def holds(self, has_system: bool, kinds: Collection[Kind], last: Kind, settled: Sequence[Kind]) -> bool:
        """Tell whether new messages leave everything before them as the model has it: the prompt at the beginning of
        the segment, and the replies since then.

        kinds: of the replies since then; last: of the followed one; settled: of those before."""
        if last is ReplyKind.CHANNELLED or (isinstance(last, CallsKind) and last.dropped):
            return False
        start: list[Message] = [{"role": "system", "content": mark(999)}] if has_system else []
        start.append(user(0))
        for n, kind in enumerate(settled, start=1):
            start += self._turn(20 * n, kind)
        before = list(start)
        # In a fixed order, so that the answer does not depend on a hash seed.
        for n, kind in enumerate(in_order(kinds), start=1 + len(settled)):
            before += self._turn(20 * n, kind)
        sampled = probe(400, last)
        conversation = [*before, sampled, *self._following(sampled, 401)]
        try:
            began, earlier, later = (
                self.template.render(some, tools=self.tools) for some in (start, before, conversation)
            )
        except self.template.refusals:
            return False
        since = conversation[len(start) :]
        if sorted(marks(later)) != sorted(marks(began) + [m for message in since for m in marks_of(message)]):
            return False
        replies = [message["content"] for message in since if message["role"] == "assistant"]
        # Marks alone tell of a reply with calls, whose content a template may write elsewhere.
        plain = [text for text in replies if text] if not isinstance(last, CallsKind) else []
        header = self.template.header.text if last is ReplyKind.HEADED else ""
        behind = "" if isinstance(last, CallsKind) else header + sampled["content"]
        written = self._bare(later)
        if isinstance(last, CallsKind) and not self._has_same_thinking_tags(later, earlier, sampled, last):
            return False
        return all(self._bare(text) in written for text in plain) and all(
            written.startswith(self._bare(text)) for text in (began, earlier + behind)
        )

    def _has_same_thinking_tags(self, later: str, earlier: str, sampled: Message, kind: CallsKind) -> bool:
        """Tell whether the template writes thinking tags before a reply's calls if the model has written some."""
        if self.ignore_thinking:
            return True
        first = min(later.index(found) for found in marks_of(sampled))
        begun = later[min(len(earlier), first) : first] if later.startswith(earlier) else ""
        tags = any(tag in begun for tag in kind.shape.format.thinking)
        # Where thinking has no tags, it is found by its mark.
        return tags == kind.emptied if not kind.thought else True

    def _turn(self, i: int, kind: Kind) -> list[Message]:
        """Return a reply and the messages after it, with marks from i on."""
        message = probe(i, kind)
        return [message, *self._following(message, i + 1)]

    def _following(self, message: Message, i: int) -> list[Message]:
        """Return the messages after a reply: its results if it has calls, else marks in the shape of the new
        messages."""
        if "tool_calls" in message and (i < 401 or any("tool_call_id" in one for one in self.messages)):
            results = results_of(message, i)
            others = [one for one in self.messages if i >= 401 and "tool_call_id" not in one]
            return results + shape_like(others, i + len(results), self.frame)
        following = shape_like(self.messages, i, self.frame)
        ids = [one["tool_call_id"] for one in following if "tool_call_id" in one]
        if not ids or self.template.takes_results_after_text((ids[0], ids[-1])):
            return following
        return [{"role": "user", "content": mark(i)}]

    def _bare(self, text: str) -> str:
        text = strip_whitespace(text)
        return text.replace(THINK, "").replace(THINK_END, "") if self.ignore_thinking else text


def tail(
    template: Renders,
    messages: Sequence[Message],
    has_system: bool,
    frame: Frame | None,
    answered: bool,
    tools: Tools,
) -> str:
    """Return the template's text after a reply without calls. answered: there were results of calls before."""
    before: list[Message] = [{"role": "system", "content": "s"}] if has_system else []
    before.append(user(0))
    if answered or not any("tool_call_id" in message for message in messages):
        before += [reply(1), *shape_like(messages, 2, frame)]
    text = template.render([*before, reply(400), *messages], tools=tools)
    return text[text.rindex(mark(400)) + len(mark(400)) :]


def tail_after_calls(
    template: Renders,
    messages: Sequence[Message],
    has_system: bool,
    kind: CallsKind,
    called: Message,
    answered: bool,
    tools: Tools,
) -> str | None:
    """Return the template's text after a reply with calls; None if it ends it otherwise than the model.

    kind, called: of the reply, and the reply. answered: there were results of calls before."""
    before: list[Message] = [{"role": "system", "content": "s"}] if has_system else []
    before.append(user(0))
    if answered:
        earlier = kind.reply(20)
        before += [earlier, *results_of(earlier, 30)]
    marked = kind.shape.mark_message(called, 400)
    text = template.render([*before, marked, *messages], tools=tools)
    return text_after(text[text.rindex(mark(400)) + len(mark(400)) :], kind.shape.closing(marked, 400))


def can_read_back(template: Renders, kind: CallsKind, tools: Tools) -> bool:
    """Ask the template for a reply of this kind and its results, and the tool format for its reading of it."""
    message = kind.reply(20)
    shown = [mark(0), *marks_of(message), *(mark(30 + n) for n in range(len(message["tool_calls"])))]
    try:
        later = template.render_probe([user(0), message, *results_of(message, 30)], tools=tools)
        if sorted(marks(later)) != sorted(shown):  # so with most kinds of calls on most templates
            return False
        closing = kind.shape.closing(message, 20)
        began, opened, plain = (
            template.render_probe(some, tools=tools, replying=replying)
            for some, replying in (([user(0)], True), ([user(0)], False), ([user(0), reply(1), user(2)], False))
        )
    except template.refusals:
        return False
    # A prompt may begin thinking that the template leaves out of earlier turns.
    plain = plain[: plain.index(mark(1))]
    start = next((text for text in (began, plain, opened) if later.startswith(text)), None)
    end = later.rindex(mark(20)) + len(mark(20))
    rest = text_after(later[end:], closing)
    if start is None or rest is None:
        return False
    written = later[len(start) : len(later) - len(rest)]
    read = kind.shape.format.parse(written, thinking_open=start == began and template.opens(kind.shape.format.thinking))
    names = {call.name for call in read.calls}
    return not read.problems and names == {PROBE} and kind.shape.has_same_content(read, message)


def write_probe_call(template: Renders, ids: Sequence[str]) -> str:
    """Return a template's text of a reply that is a call, in the first shape that it takes; "" if it writes no
    call. ids: of calls, as tool formats make them."""
    arguments: dict[str, str] = {"x": mark(1)}
    shapes = itertools.product(dict.fromkeys(ids), (arguments, json.dumps(arguments, ensure_ascii=False)), ("", None))
    for call_id, given, content in shapes:
        function = {"name": PROBE, "arguments": given}
        call = {"id": call_id, "type": "function", "function": function}
        called: Message = {"role": "assistant", "content": content, "tool_calls": [call]}
        try:
            text, plain = (
                template.render([user(0), one], replying=False, tools=tools).rpartition(mark(0))[2]
                for one, tools in ((called, STUB), (reply(2), STUB))
            )
        except template.refusals:
            continue
        if PROBE in text and mark(1) in text:
            start = _common_length(text, plain)
            end = _common_length(text[start:][::-1], plain[start:][::-1])
            return text[start : len(text) - end].replace(mark(1), "x")
    return ""


def _common_length(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their start."""
    places = (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(places, min(len(first), len(second)))


def probe(i: int, kind: Kind) -> Message:
    """Return a marked reply of a kind; its last mark is i."""
    return kind.reply(i) if isinstance(kind, CallsKind) else reply(i, kind)


def in_order(kinds: Collection[Kind]) -> list[Kind]:
    """Return kinds in a fixed order."""
    plain: list[Kind] = [kind for kind in ReplyKind if kind in kinds]
    called = [kind for kind in kinds if isinstance(kind, CallsKind)]
    return plain + sorted(called, key=lambda one: (one.thought, one.content, one.several, one.dropped, one.emptied))


def marks_of(message: Message) -> list[str]:
    """Return the marks in all texts of a message."""
    return [found for text in texts_of(message) for found in marks(text)]
