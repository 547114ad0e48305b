"""Chat templates in token ids: whole prompts, and what a template adds for new messages.

A conversation is encoded once, piece by piece. `prompt` encodes messages from the start;
`continuation` encodes only what the template puts behind a reply for the messages that follow
it, learnt from a short probe conversation, so its cost does not grow with the history. Where the
template would write earlier turns differently once new messages follow, `continuation` says so
by returning None.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from atropos_agent.tokens.encoding import CUT, SPELLED, Encoder, unquoted
from atropos_agent.tokens.probes import Frame, ReplyKind, is_framed, mark, marks, reply, shaped, squeeze, user
from atropos_agent.types import THINK, THINK_END, Message


class ChatTemplate:
    """A tokenizer's chat template.

    tokenizer: a transformers tokenizer with a chat template.
    kwargs: passed to the template, such as `enable_thinking`.

    close_id: the control token with which the template ends a reply; None where it has none.
    opens_thinking: whether prompts end inside `<think>`.
    folds_system: whether a system message is put in front of the first user message: where the template knows
        no system role, and where `fold_system` asks for it. Templates that move the system message along with
        the conversation (Mistral's stands before the last user message) rewrite history at every turn without.
    joins_turns: whether the template refuses two messages of one role in a row, so that they are
        joined to one.
    header: what the template writes between its prompt for a reply and a reply's content, where
        that holds control tokens, as gpt-oss's `<|channel|>final<|message|>` does: the model samples
        it. Else "".

    Raises ValueError when the tokenizer has no template, or one that loses messages.
    """

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
        self.quote_ids = self._encoder.quote_ids
        self.encode, self.decode = self._encoder.encode, self._encoder.decode
        # The members of a group begin alike.
        self._encoded = lru_cache(maxsize=32)(self.encode)
        # Set before the first rendering, which asks for them.
        self.folds_system = self.joins_turns = False
        if not self._keeps([user(0), reply(1), user(2)]):
            raise ValueError("the chat template loses messages of a plain user-assistant-user conversation")
        self.folds_system = fold_system or not self._keeps([{"role": "system", "content": mark(0)}, user(1)])
        self.joins_turns = not self._keeps([user(0), user(1)])
        opening, later = self.render([user(0)]), self.render([user(0), reply(1), user(2)])
        generation = opening[opening.index(mark(0)) :]
        self.opens_thinking = generation.rfind(THINK) > generation.rfind(THINK_END)
        self.close_id = self._find_close(later)
        self.header = self._find_header(opening, later)
        self.stop_ids = {i for i in (self.tokenizer.eos_token_id, self.close_id) if i is not None}
        """Ids that end a turn: the tokenizer's end of sequence and what the template closes with."""
        scaffold = set(self.encode(later)) - self.stop_ids
        self._ending_ids = self.stop_ids | (self._encoder.special_ids - scaffold)
        self.greedy = any(token.lstrip or token.rstrip for token in tokenizer.added_tokens_decoder.values())
        """Whether control tokens take up white space beside them, so that ids don't tell all of a text."""
        self._known_ids: set[int] = set()
        self._stable: dict[Any, bool] = {}

    def unknown_id(self, ids: Sequence[int]) -> int | None:
        """Return the first of these ids that the tokenizer's vocabulary does not hold; None where it holds all."""
        if self._known_ids.issuperset(ids):
            return None
        for i in ids:
            if not self._encoder.knows(i):
                return i
            self._known_ids.add(i)
        return None

    def turn_end(self, ids: Sequence[int], finish_reason: str) -> int | None:
        """Return where in sampled ids the token stands that ended the turn; None when there is none.

        Inference servers may stop at control tokens that the tokenizer does not name as its end of sequence;
        the template's own scaffold is none of them. Only white space may stand behind the end."""
        for place in range(len(ids) - 1, max(-1, len(ids) - 4), -1):
            if ids[place] in self.stop_ids:
                return place
            if self.decode(ids[place:]).strip():
                break
        if ids and finish_reason == "stop" and ids[-1] in self._ending_ids:
            return len(ids) - 1
        return None

    def content_of(self, text: str) -> str:
        """Return a reply's content, quoted or not, as the template takes it: without the model's header."""
        if not self.header:
            return text
        last = self.header[self.header.rindex(self._encoder.controls_in(self.header)[-1]) :]
        pattern = f"{CUT}?".join(map(re.escape, last)) if self._begins_with_header(text) else re.escape(last)
        *_, end = (0, *(found.end() for found in re.finditer(pattern, text)))
        return text[end:]

    def kind_of(self, text: str) -> ReplyKind:
        """Return what the template tells a reply, quoted or not, apart by."""
        if not self.header:
            return ReplyKind.of(text.replace(SPELLED, ""))
        text = unquoted(text).lstrip() if self._begins_with_header(text) else text
        rest = text.removeprefix(self.header)
        if any(token in rest for token in self._encoder.controls_in(self.header)):
            return ReplyKind.CHANNELLED
        return ReplyKind.PLAIN if rest == text else ReplyKind.HEADED

    def _begins_with_header(self, text: str) -> bool:
        """Tell whether a reply begins as its header does, in whichever ids; further inside spelled ones are text."""
        return unquoted(text).lstrip().startswith(self._encoder.controls_in(self.header)[0])

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return ids of a whole conversation that ends where the model's reply begins."""
        return list(self._encoded(self.render(messages)))

    def knows_role(self, role: str) -> bool:
        """Tell whether a message of this role may follow a reply, and is shown to the model."""
        return self._keeps([user(0), reply(1), {"role": role, "content": mark(2)}])

    def continuation(
        self,
        messages: Sequence[Message],
        *,
        has_system: bool,
        kinds: Collection[ReplyKind],
        last: ReplyKind,
        end: Sequence[int],
        frame: Frame | None = None,
        settled: Sequence[ReplyKind] = (),
    ) -> list[int] | None:
        """Return ids that follow a reply when `messages` come next, up to the start of the next reply.

        kinds: of all replies that stand there as they were sampled; last: of the one that is followed.
        settled: of those before them that the template has written, in its own way.
        end: the token with which the inference server ended the turn, so that it is not added again, and the
            white space that it sampled behind; empty when it did not.
        frame: what the tool format puts around results.
        Returns None when the template then writes earlier turns differently, also by ending them
        with another token than the inference server did.
        """
        if end and end[0] != self.close_id:
            return None
        shape = tuple((m["role"], is_framed(m, frame)) for m in messages)
        key = (has_system, frozenset(kinds), last, frame, shape, tuple(settled))
        if key not in self._stable:
            # Twice, because a template with a date in it differs from itself at midnight.
            self._stable[key] = any(
                self._is_stable(messages, has_system, kinds, last, frame, settled) for _ in range(2)
            )
        if not self._stable[key]:
            return None
        head = [{"role": "system", "content": "s"}] if has_system else []
        text = self.render([*head, user(0), reply(1), *shaped(messages, 2, frame), reply(400), *messages])
        tail = text[text.rindex(mark(400)) + len(mark(400)) :]
        if not end:
            return self.encode(tail, continues=True)
        tail, close = tail.lstrip(), self._encoder.text_of(end[0])
        behind = self.decode(end[1:])
        if behind or not tail.startswith(close):
            return self.encode(tail.removeprefix(close).removeprefix(behind), continues=True)
        # Encoded with the end that was sampled, because some such tokens take up the white space behind them.
        return self.encode(tail, continues=True)[1:]

    def render(self, messages: Sequence[Message], *, replying: bool = True) -> str:
        """Return the template's text for messages; when `replying`, up to where the model's reply begins."""
        return str(
            self.tokenizer.apply_chat_template(
                self._fitted(messages), tokenize=False, add_generation_prompt=replying, **self._kwargs
            )
        )

    def _fitted(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages in roles that the template takes."""
        fitted: list[Message] = []
        for message in messages:
            last = fitted[-1] if fitted else None
            folds = self.folds_system and last is not None and last["role"] == "system" and message["role"] == "user"
            joins = self.joins_turns and last is not None and last["role"] == message["role"]
            if last is not None and (folds or joins):
                fitted[-1] = {**message, "content": f"{last['content']}\n\n{message['content']}"}
            else:
                fitted.append(message)
        return fitted

    def _is_stable(
        self,
        messages: Sequence[Message],
        has_system: bool,
        kinds: Collection[ReplyKind],
        last: ReplyKind,
        frame: Frame | None,
        settled: Sequence[ReplyKind],
    ) -> bool:
        """Tell whether new messages leave what stands before them as the model has it: the prompt with which the
        segment began, and the replies since then."""
        start: list[Message] = [{"role": "system", "content": mark(999)}] if has_system else []
        start.append(user(0))
        for n, kind in enumerate(settled, start=1):
            start += [reply(20 * n, kind), *shaped(messages, 20 * n + 1, frame)]
        before = list(start)
        # In a fixed order, so that the answer does not depend on a hash seed.
        for n, kind in enumerate([kind for kind in ReplyKind if kind in kinds], start=1 + len(settled)):
            before += [reply(20 * n, kind), *shaped(messages, 20 * n + 1, frame)]
        sampled = reply(400, last)
        conversation = [*before, sampled, *shaped(messages, 401, frame)]
        try:
            began, earlier, later = (self.render(some) for some in (start, before, conversation))
        except TemplateError:
            return False
        since = conversation[len(start) :]
        replies = [squeeze(message["content"]) for message in since if message["role"] == "assistant"]
        if last is ReplyKind.CHANNELLED or sorted(marks(later)) != sorted(
            marks(began) + [m for message in since for m in marks(message["content"])]
        ):
            return False
        written = squeeze(later)
        header = self.header if last is ReplyKind.HEADED else ""
        beginnings = (began, earlier + header + sampled["content"])
        return all(text in written for text in replies) and all(
            written.startswith(squeeze(text)) for text in beginnings
        )

    def _keeps(self, messages: Sequence[Message]) -> bool:
        """Tell whether the template shows each of these messages once."""
        try:
            found = marks(self.render(messages))
        except TemplateError:
            return False
        return sorted(found) == sorted(m for message in messages for m in marks(message["content"]))

    def _find_close(self, later: str) -> int | None:
        followed = self._encoder.leading_control(later[later.index(mark(1)) + len(mark(1)) :])
        text = self.render([user(0), reply(1)], replying=False)
        alone = self._encoder.leading_control(text[text.index(mark(1)) + len(mark(1)) :])
        # Without a token of its own behind the last reply, what follows belongs to the next message.
        return followed if alone is not None or followed == self.tokenizer.eos_token_id else None

    def _find_header(self, opening: str, later: str) -> str:
        header = later[: later.index(mark(1))]
        header = header.removeprefix(opening) if header.startswith(opening) else ""
        return header if self._encoder.leading_control(header) is not None else ""
