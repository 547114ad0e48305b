"""Make the prompt of a request: check the request, then continue, fork or begin its conversation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from jinja2 import TemplateError

from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.bounds import Bounds
from atropos_agent.gateway.encoding import fold_messages, messages_after, opening, put_calls_into_words
from atropos_agent.gateway.fields import wrong
from atropos_agent.gateway.forest import Forest, HistoryMatch, Line, SampledReply, Turn
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage, Refusal
from atropos_agent.tokens.template import ChatTemplate

T = TypeVar("T")


def check_request(request: GatewayRequest, tolerates: Collection[str]) -> None:
    """Raise Refusal for a request that no reply can follow. tolerates: as `Session` takes it."""
    for name, wanted in request.forced.items():
        if name not in tolerates:
            raise Refusal(
                f"{name}: {wanted!r} can't be forced on the model here; leave it to the model, or have the demand "
                f"accepted and not followed: tolerates=[{name!r}]",
                param=name,
            )
    if not request.messages:
        raise wrong(request.history_field, "must hold a message")
    if request.continues and request.messages[-1].role == "assistant":
        why = "the last one must not be the assistant's own: no reply is begun for the model"
        raise wrong(request.history_field, f"{why}; end with a message of the user's, or with results")


class Prompts:
    """Prepares the prompts of a rollout's requests.

    template: None if messages are the prompt. forest: holds the answered turns.
    keeps_thinking: whether earlier turns stay as they were sampled (`Conversation`).
    """

    def __init__(
        self, template: ChatTemplate | None, tool_format: FittedFormat, forest: Forest, *, keeps_thinking: bool
    ) -> None:
        self._template = template
        self._fitted = tool_format
        self._forest = forest
        self._keeps_thinking = keeps_thinking

    def place(
        self, request: GatewayRequest, found: HistoryMatch, bounds: Bounds, *, counting: bool = False
    ) -> tuple[Line, Turn | None, Sequence[HistoryMessage]]:
        """Return the line for a request's answer, the turn it goes on from, and the new messages in it.

        counting: nothing is to be changed. Raises TooLong, and Refusal for messages that the chat template takes in no
        form."""
        try:
            return self._place_request(request, found, bounds, counting)
        except TemplateError as error:
            raise wrong(request.history_field, f"the model's chat template refuses them: {error}") from error

    def take_back(self, turn: Turn) -> None:
        """Take out a turn without an answer, and the messages added to its line for it."""
        self._forest.remove(turn)
        if turn.parent is not None:
            _restore(turn.line, turn.parent)

    def _place_request(
        self, request: GatewayRequest, found: HistoryMatch, bounds: Bounds, counting: bool
    ) -> tuple[Line, Turn | None, Sequence[HistoryMessage]]:
        parent = found.turn
        begins = not found.rest or any(message.role == "assistant" for message in found.rest)
        if parent is None or parent.sampled is None or begins:
            return self._begin_line(request, bounds)
        line, echo = parent.line, request.messages[-len(found.rest) - 1]
        if line.tip is not parent or counting:
            line = Line(line.conversation.fork(parent.sampled.place), line.fitted)
        try:
            _encode_fitting(partial(_continue_line, line, parent, parent.sampled, echo, bounds), found.rest)
        except TemplateError:
            if put_calls_into_words(request.messages) == list(request.messages):
                raise
            return self._begin_line(request, bounds)  # a template that takes no reply whose calls have no results
        return line, parent, found.rest

    def _begin_line(self, request: GatewayRequest, bounds: Bounds) -> tuple[Line, None, Sequence[HistoryMessage]]:
        """Begin a line: history that is not ours, or not ours any more, is context."""
        return _encode_fitting(partial(self._begin, request, bounds), request.messages), None, request.messages

    def _begin(self, request: GatewayRequest, bounds: Bounds, messages: Sequence[HistoryMessage]) -> Line:
        bounds.check_size(request.tools)
        fitted = replace(self._fitted.with_tools(request.tools), calls_are_text=not request.tools)
        rendered = opening(messages, fitted, request.tools, self._forest.find_turn, bounds.check_size)
        begun = fitted.begin(self._template, rendered, request.tools, keeps_thinking=self._keeps_thinking)
        return Line(begun, fitted)


def _continue_line(
    line: Line,
    parent: Turn,
    sampled: SampledReply,
    echo: HistoryMessage,
    bounds: Bounds,
    messages: Sequence[HistoryMessage],
) -> None:
    new = messages_after(messages, line.fitted, sampled, echo)
    bounds.check_size(new)
    with ExitStack() as undo:
        undo.callback(_restore, line, parent)
        line.conversation.add_messages(new)
        undo.pop_all()


def _restore(line: Line, parent: Turn) -> None:
    """Take back the messages added to a line after a turn, if nothing goes on from them."""
    if parent.sampled is not None:
        line.conversation = line.conversation.fork(parent.sampled.place)
        line.tip = parent


def _encode_fitting(encode: Callable[[Sequence[HistoryMessage]], T], messages: Sequence[HistoryMessage]) -> T:
    """Return the result of `encode` for messages, in the first form accepted by the chat template. Raises
    TemplateError."""
    forms = [list(messages), fold_messages(messages), fold_messages(put_calls_into_words(messages))]
    *others, last = [form for place, form in enumerate(forms) if form not in forms[:place]]
    for form in others:
        with suppress(TemplateError):
            return encode(form)
    return encode(last)
