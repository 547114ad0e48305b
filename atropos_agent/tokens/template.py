"""Chat templates in token ids: whole prompts, and a template's additions for new messages.

A conversation is encoded once, piece by piece. `prompt` encodes messages from the start;
`continuation` encodes only the template's text after a reply for the messages after
it. It learns this text from a short probe conversation, so its cost does not grow with the history. If the
template would write earlier turns differently once new messages follow, `continuation` says so
by returning None.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import TemplateError

from atropos_agent.tokens.calls import PROBE, STUB, CallsKind, Kind, Tools
from atropos_agent.tokens.encoding import Encoder
from atropos_agent.tokens.header import Header
from atropos_agent.tokens.probes import MARK, Frame, ReplyKind, is_framed, mark, marks, reply, system, user
from atropos_agent.tokens.stability import (
    Stability,
    can_read_back,
    marks_of,
    probe,
    tail,
    tail_after_calls,
)
from atropos_agent.types import THINK, THINK_END, Message

_REFUSALS: tuple[type[Exception], ...] = (TemplateError, TypeError, KeyError, ValueError, AttributeError, IndexError)
"""Exceptions of templates about messages of a shape that they don't take."""
_KEPT = 1 << 18
"""Characters of the longest prompt with kept ids: the members of a group begin alike."""
_SHAPES = 10_000
"""Shapes of new messages with a known text of the template, at most."""


class End(enum.Enum):
    """The end of a reply."""

    TOKEN = "token"
    STRING = "string"
    NONE = "none"


class ChatTemplate:
    """A tokenizer's chat template.

    tokenizer: a transformers tokenizer with a chat template.
    kwargs: passed to the template, such as `enable_thinking`.

    close_id: the control token with which the template ends a reply; None if it has none.
    opens_thinking: whether prompts end inside `<think>`.
    folds_system: whether a system message is put in front of the first user message: if the template knows
        no system role, or if `fold_system` asks for it. Templates that move the system message along with
        the conversation (Mistral's stands before the last user message) rewrite history at every turn without.
    joins_turns: whether the template refuses two messages of one role in a row, so they are
        joined to one.
    merges_system: whether the template takes one system message at the start and refuses or loses a second one, so
        those at the beginning of a conversation are joined to one.
    moves_late_system: whether the template refuses or loses system messages in mid-conversation, so they are
        written as the user's.
    wants_tools: whether the template refuses a conversation without a list of tools (Hermes 3's `tool_use`), so it gets
        an empty one.
    wants_thinking: whether the template refuses replies without thinking (Hermes 4's, with thinking=true), so
        an empty thought is put before them.
    header: the template's text between its prompt for a reply and a reply's content, if
        it holds control tokens, as gpt-oss's `<|channel|>final<|message|>` does: the model samples
        it. Else false.

    Raises ValueError when the tokenizer has no template, or one that loses or refuses messages.
    """

    refusals = _REFUSALS

    def __init__(self, tokenizer: Any, *, fold_system: bool = False, **kwargs: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                f"tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template; "
                "take the instruction-tuned model's tokenizer or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._kwargs = kwargs
        self._encoder = Encoder(tokenizer)
        self.quote, self.quote_rest = self._encoder.quote, self._encoder.quote_rest
        self.quote_ids, self.normalized = self._encoder.quote_ids, self._encoder.normalized
        self.encode, self.decode = self._encoder.encode, self._encoder.decode
        self._encoded = lru_cache(maxsize=32)(self.encode)
        # Set before the first rendering, which asks for them.
        self.folds_system = self.joins_turns = False
        self.merges_system = self.moves_late_system = False
        self.wants_tools, self.wants_thinking = self._find_wants()
        self.folds_system = fold_system or not self._shows_once([system(0), user(1)])
        self.joins_turns = not self._shows_once([user(0), user(1)])
        self.merges_system = not self._shows_once([system(0), system(1), user(2)])
        self.moves_late_system = not self._keeps_late_system()
        opening, later = self.render([user(0)]), self.render([user(0), reply(1), user(2)])
        self._generation = opening[opening.index(mark(0)) :]
        self.opens_thinking = self.opens((THINK, THINK_END))
        self.close_id = self._find_close(later)
        header = self._find_header(opening, later)
        self.header = Header(header, self._encoder.controls_in(header))
        self.stop_ids = {i for i in (self.tokenizer.eos_token_id, self.close_id) if i is not None}
        """Ids that end a turn: the tokenizer's end of sequence and the template's closing token."""
        scaffold = set(self.encode(later)) - self.stop_ids
        self._ending_ids = self.stop_ids | (self._encoder.special_ids - scaffold)
        self.greedy = any(token.lstrip or token.rstrip for token in tokenizer.added_tokens_decoder.values())
        """Whether control tokens take up white space beside them, so ids don't tell all of a text."""
        self.controls = self._encoder.controls
        self._controls = self.stop_ids | self._encoder.control_ids
        self._known_ids: set[int] = set()
        self._stable: dict[Any, bool] = {}
        self._takes: dict[CallsKind, bool] = {}
        self._probed: dict[tuple[str, bool, bool], str | None] = {}
        self._results: dict[tuple[int, ...], bool] = {}
        self._opens: dict[tuple[Kind, int, bool], bool] = {}

    def unknown_id(self, ids: Sequence[int]) -> int | None:
        """Return the first of these ids outside of the tokenizer's vocabulary; None if it holds all."""
        if self._known_ids.issuperset(ids):
            return None
        for i in ids:
            if not self._encoder.knows(i):
                return i
            self._known_ids.add(i)
        return None

    def turn_end(self, ids: Sequence[int], finish_reason: str, inside: Collection[int] = ()) -> int | None:
        """Return the place in sampled ids of the token that ended the turn; None when there is none.

        Inference servers may stop at control tokens that the tokenizer does not name as its end of sequence;
        the template's own scaffold is none of them. Only white space may come after the end.

        inside: control tokens of the tool format, which end no turn."""
        for place in range(len(ids) - 1, max(-1, len(ids) - 4), -1):
            if ids[place] in self.stop_ids:
                return place
            if self.decode(ids[place:]).strip():
                break
        if ids and finish_reason == "stop" and ids[-1] in self._ending_ids and ids[-1] not in inside:
            return len(ids) - 1
        return None

    def end_of(self, ids: Sequence[int], stop: Sequence[str] = ()) -> End:
        """Return the end of a reply: a control token, one of the strings to stop at, or neither.

        Any control token counts: an inference server's own configuration says at which of them it stops."""
        controls = self._controls
        tail = next((place for place in range(len(ids) - 1, max(-1, len(ids) - 4), -1) if ids[place] in controls), None)
        if tail is not None and not self.decode(ids[tail + 1 :]).strip():
            return End.TOKEN
        longest = 4 * max(map(len, stop), default=0)  # a character has up to four bytes, each of which may be a token
        text = self.decode(ids[-longest - 1 :]) if longest else ""
        return End.STRING if any(one in text for one in stop) else End.NONE

    def prompt(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        """Return ids of a whole conversation up to the beginning of the model's reply."""
        text = self.render(messages, tools=tools)
        return list(self._encoded(text)) if len(text) <= _KEPT else self.encode(text)

    def knows_role(self, role: str) -> bool:
        """Tell whether a message of this role may follow a reply, and is shown to the model."""
        return self._shows_once([user(0), reply(1), {"role": role, "content": mark(2)}])

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template shows tools itself."""
        parameters = {"type": "object", "properties": {mark(11): {"type": "string", "description": mark(12)}}}
        function = {"name": mark(13), "description": mark(14), "parameters": {**parameters, "required": [mark(11)]}}
        try:
            shown = self.render([user(0)], tools=[{"type": "function", "function": function}])
        except _REFUSALS:
            return False
        # Some templates show them as Python or JSON writes them, with the marks escaped.
        return {mark(i) for i in (0, 11, 13, 14)} <= set(marks(shown.replace(ascii(MARK).strip("'"), MARK)))

    @cached_property
    def keeps_thinking_in_content(self) -> bool:
        """Whether the template leaves thinking in tags in a reply's content."""
        return not self.opens_thinking and self._shows_once([user(0), reply(1, ReplyKind.THOUGHT), user(2)])

    def opens(self, thinking: tuple[str, str]) -> bool:
        """Tell whether prompts end inside of thinking between these tags."""
        return _is_open(self._generation, thinking)

    def opens_thinking_after(
        self, messages: Sequence[Message], last: Kind, *, tools: bool, thinking: tuple[str, str] = (THINK, THINK_END)
    ) -> bool:
        """Tell whether the prompt after such messages after a reply of this kind ends inside of thinking.

        Some templates that open thinking do not after results of calls. thinking: its tags, the same in each call."""
        if not self.opens(thinking) or not any("tool_call_id" in message for message in messages):
            return self.opens(thinking)
        key = last, len(messages), tools
        if key not in self._opens:
            self._opens[key] = True
            following = [{**message, "content": mark(n)} for n, message in enumerate(messages, start=1)]
            try:
                text = self.render([user(0), probe(400, last), *following], tools=STUB if tools else ())
                self._opens[key] = _is_open(text[text.rindex(mark(len(messages))) :], thinking)
            except _REFUSALS:
                pass
        return self._opens[key]

    def takes(self, kind: CallsKind) -> bool:
        """Tell whether the template writes replies of this kind so their tool format reads them back."""
        if kind not in self._takes:
            self._takes[kind] = can_read_back(self, kind, STUB)
        return self._takes[kind]

    def takes_results_after_text(self, ids: Sequence[str]) -> bool:
        """Tell whether messages of role `tool` may follow replies without calls for the template.

        ids: two of calls, as the tool format makes them."""
        # The ids' letters and digits mean nothing to a template, their length may.
        key = tuple(map(len, ids))
        if key not in self._results:
            first, second = (
                {"role": "tool", "tool_call_id": i, "name": PROBE, "content": mark(n)}
                for n, i in zip((2, 4), ids, strict=True)
            )
            self._results[key] = self._shows_once([user(0), reply(1), first, reply(3), second])
        return self._results[key]

    def continuation(
        self,
        messages: Sequence[Message],
        *,
        has_system: bool,
        kinds: Collection[Kind],
        last: Kind,
        end: Sequence[int],
        frame: Frame | None = None,
        settled: Sequence[Kind] = (),
        tools: bool = False,
        called: Message | None = None,
        answered: bool = True,
        ignore_thinking: bool = False,
    ) -> list[int] | None:
        """Return ids that follow a reply when `messages` come next, up to the start of the next reply.

        kinds: of all replies that stand there as they were sampled; last: of the followed one.
        settled: of those before them in the template's own writing.
        end: the token with which the inference server ended the turn, and the white space that it sampled
            after; it is not added again. Empty when it did not end it.
        frame: the tool format's text around results.
        tools: whether the template shows tools.
        called: the followed reply, if its calls are the template's.
        answered: whether there were results of calls before.
        ignore_thinking: whether all replies count as if they held no thinking, so it may stay even if the template
            would drop it.
        Returns None when the template then writes earlier turns differently, also by ending them
        with another token than the inference server did.
        """
        if called is None and end and end[0] != self.close_id:
            return None
        if ignore_thinking:
            kinds, last, settled = (
                {kind.without_thinking() for kind in kinds},
                last.without_thinking(),
                [kind.without_thinking() for kind in settled],
            )
        shape = tuple((m["role"], is_framed(m, frame), "tool_call_id" in m) for m in messages)
        key = (has_system, frozenset(kinds), last, frame, shape, tuple(settled), tools, ignore_thinking)
        if key not in self._stable:
            if len(self._stable) >= _SHAPES:  # an agent may send ever other ones
                self._stable.clear()
            # Twice, because a template with a date in it differs from itself at midnight.
            probe = Stability(self, messages, frame, STUB if tools else (), ignore_thinking)
            self._stable[key] = any(probe.holds(has_system, kinds, last, settled) for _ in range(2))
        if not self._stable[key]:
            return None
        shown = STUB if tools else ()
        if isinstance(last, CallsKind) and called is not None:
            text = tail_after_calls(self, messages, has_system, last, called, answered, shown)
        else:
            text = tail(self, messages, has_system, frame, answered, shown)
        return None if text is None else self._encode_tail(text, end, closes=called is not None)

    def _encode_tail(self, text: str, end: Sequence[int], *, closes: bool) -> list[int] | None:
        """Return ids of the text after a reply, without the sampled end."""
        if not end:
            return self.encode(text, continues=True)
        text, close = text.lstrip(), self._encoder.text_of(end[0])
        if closes and not text.startswith(close):
            return None
        behind = self.decode(end[1:])
        if behind or not text.startswith(close):
            return self.encode(text.removeprefix(close).removeprefix(behind), continues=True)
        # Encoded with the end that was sampled, because some such tokens take up the white space after them.
        return self.encode(text, continues=True)[1:]

    def render(self, messages: Sequence[Message], *, replying: bool = True, tools: Tools = ()) -> str:
        """Return the template's text for messages; when `replying`, up to the beginning of the model's reply.

        tools: shown by the template. Raises TemplateError for messages unfit for the template."""
        shown = list(tools) or ([] if self.wants_tools else None)
        options = {"tools": shown, "tokenize": False, "add_generation_prompt": replying, **self._kwargs}
        try:
            return str(self.tokenizer.apply_chat_template(self._fit_roles(messages), **options))
        except _REFUSALS as error:
            if isinstance(error, TemplateError):
                raise
            # Such as a schema of which the template joins a number to a text.
            raise TemplateError(f"{type(error).__name__}: {error}") from error

    def render_probe(self, messages: Sequence[Message], *, replying: bool = True, tools: Tools = ()) -> str:
        """Return what `render` does, once for the many tool formats that ask the same. Raises TemplateError."""
        key = repr(messages), replying, bool(tools)
        if key not in self._probed:
            try:
                self._probed[key] = self.render(messages, replying=replying, tools=tools)
            except _REFUSALS:
                self._probed[key] = None
        if (text := self._probed[key]) is None:
            raise TemplateError("the template refuses the messages")
        return text

    def refuses(self, messages: Sequence[Message]) -> bool:
        """Tell whether the template raises an error for messages."""
        try:
            self.render(messages)
        except TemplateError:
            return True
        return False

    def _fit_roles(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages in the template's roles."""
        fitted: list[Message] = []
        for given in messages:
            last = fitted[-1] if fitted else None
            late = self.moves_late_system and given["role"] == "system" and any(m["role"] != "system" for m in fitted)
            message = {**given, "role": "user"} if late else given
            content = message["content"] if message["role"] == "assistant" else None
            if self.wants_thinking and content and THINK_END not in content:
                message = {**message, "content": f"{THINK}\n{THINK_END}\n{content}"}
            folds = self.folds_system and last is not None and last["role"] == "system" and message["role"] == "user"
            several = self.joins_turns or (self.merges_system and message["role"] == "system")
            joins = several and last is not None and _joinable(last, message)
            if last is not None and (folds or joins):
                fitted[-1] = {**message, "content": f"{last['content']}\n\n{message['content']}"}
            else:
                fitted.append(message)
        return fitted

    def _shows_once(self, messages: Sequence[Message]) -> bool:
        """Tell whether the template shows each of these messages once."""
        try:
            found = marks(self.render(messages))
        except _REFUSALS:
            return False
        return sorted(found) == sorted(m for message in messages for m in marks_of(message))

    def _find_wants(self) -> tuple[bool, bool]:
        """Return `wants_tools` and `wants_thinking`. Raises ValueError for a template that takes no conversation."""
        plain = [user(0), reply(1), user(2)]
        for wants in ((False, False), (False, True), (True, False), (True, True)):
            self.wants_tools, self.wants_thinking = wants
            if self._shows_once(plain):
                return wants
        try:
            self.render(plain)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses a plain user-assistant-user conversation: {error}") from error
        raise ValueError("the chat template loses messages of a plain user-assistant-user conversation")

    def _keeps_late_system(self) -> bool:
        """Tell whether the template shows system messages in mid-conversation, and at its end."""
        begun = [user(0), reply(1), system(2)]
        return self._shows_once([*begun, user(3), reply(4), user(5)]) and self._shows_once(begun)

    def _find_close(self, later: str) -> int | None:
        followed = self._encoder.leading_control(later[later.index(mark(1)) + len(mark(1)) :])
        text = self.render([user(0), reply(1)], replying=False)
        alone = self._encoder.leading_control(text[text.index(mark(1)) + len(mark(1)) :])
        # Without a token of its own after the last reply, what follows belongs to the next message.
        return followed if alone is not None or followed == self.tokenizer.eos_token_id else None

    def _find_header(self, opening: str, later: str) -> str:
        header = later[: later.index(mark(1))]
        header = header.removeprefix(opening) if header.startswith(opening) else ""
        # Thinking tags are separated from content as everywhere, also where a template writes them empty (GLM).
        bare = header.replace(THINK, "").replace(THINK_END, "")
        return header if self._encoder.leading_control(bare) is not None else ""


def _is_open(text: str, thinking: tuple[str, str]) -> bool:
    return text.rfind(thinking[0]) > text.rfind(thinking[1])


def _joinable(first: Message, second: Message) -> bool:
    """Tell whether two messages may be one: of one role, and neither with calls or a call's result."""
    keys = ("tool_calls", "tool_call_id")
    return first["role"] == second["role"] and not any(key in message for key in keys for message in (first, second))
