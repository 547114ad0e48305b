"""The tree of our answers, used to locate a request's history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.echo import is_echo, same, same_messages
from atropos_agent.gateway.fields import wrong
from atropos_agent.gateway.requests import Answer, GatewayRequest, HistoryCall, HistoryMessage, Refusal
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Conversation, Place
from atropos_agent.types import AgentStep


@dataclass(eq=False, slots=True)
class Line:
    """Turns of one conversation, each the continuation of the one before. tip: the last of them."""

    conversation: Conversation | ChatLog
    fitted: FittedFormat
    tip: Turn | None = None


@dataclass(frozen=True, slots=True)
class SampledReply:
    """The sampled reply of a turn.

    place: after the reply, in the line's conversation. called: whether the reply's calls are the template's.
    exchange: the number of it in the record.
    """

    answer: Answer
    place: Place
    called: bool
    step: AgentStep
    exchange: int


@dataclass(eq=False, slots=True)
class Turn:
    """A request and our reply to it.

    given: the messages since the reply of `parent`; all of them without a parent.
    retells: whether there are replies of ours among them.
    sampled: None until `work` has sampled it.
    waiting: how many clients wait for the answer. taken: whether one has had its last byte.
    """

    line: Line
    parent: Turn | None
    given: Sequence[HistoryMessage]
    request: GatewayRequest
    retells: bool = False
    sampled: SampledReply | None = None
    work: asyncio.Task[None] | None = None
    waiting: int = 0
    taken: bool = False
    children: list[Turn] = field(default_factory=list)
    echo: HistoryMessage | None = None
    """The last message found to be an echo of the answer; most echoes come in the same form again."""

    @property
    def path(self) -> list[Turn]:
        """Return the turns from the root to this one."""
        found: list[Turn] = []
        turn: Turn | None = self
        while turn is not None:
            found.append(turn)
            turn = turn.parent
        return found[::-1]

    def is_echoed(self, message: HistoryMessage) -> bool:
        """Tell whether a message is the answer as agents send it back."""
        if self.sampled is None:
            return False
        if message == self.echo or is_echo(message, self.sampled.answer):
            self.echo = message
            return True
        return False


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """The end of a request's history in the forest.

    turn: the last one of ours in it; None if it begins otherwise. rest: its messages after this turn.
    same: the turns with the same request there.
    """

    turn: Turn | None
    rest: Sequence[HistoryMessage]
    same: Sequence[Turn]


class Forest:
    """All conversations of one rollout. roots: their first turns, in the order in which they were begun."""

    def __init__(self) -> None:
        self.roots: list[Turn] = []
        self._answered: dict[int, Turn] = {}
        self._by_words: dict[str | tuple[str, ...], list[Turn]] = {}
        """Turns by the content of their answer's echo: the text, or the ids of calls."""
        self._broken: list[Turn] = []
        """Turns with unreadable calls; nothing is sure about their echo."""

    def locate(self, request: GatewayRequest) -> HistoryMatch:
        """Find how much of a request's history is ours."""
        messages = request.messages
        roots = [root for root in self.roots if root.request.toolset == request.toolset]
        deepest: tuple[Turn | None, int] = None, 0
        stack = [(root, 0) for root in roots]
        while stack:
            turn, start = stack.pop()
            end = start + len(turn.given)
            if end >= len(messages) or messages[end].role != "assistant":
                continue
            if not turn.is_echoed(messages[end]) or not same_messages(messages[start:end], turn.given):
                continue
            # Of several that are alike the one that the agent has had.
            if end + 1 > deepest[1] or (end + 1 == deepest[1] and turn.taken):
                deepest = turn, end + 1
            stack += [(child, end + 1) for child in turn.children]
        last, place = deepest
        rest = messages[place:]
        # A line begun again after a reply of ours, for what the agent wrote there itself, holds the whole history.
        begun = [root for root in roots if same_messages(messages, root.given)]
        behind = [] if last is None else [one for one in last.children if same_messages(rest, one.given)]
        return HistoryMatch(last, rest, [*behind, *begun])

    def whole(self, request: GatewayRequest) -> GatewayRequest:
        """Return a request with its whole history, if it names answers instead, or parts of them. Raises Refusal."""
        if any(message.refers for message in request.messages):
            request = replace(request, messages=[self._resolve_references(message) for message in request.messages])
        if request.behind is None:
            return request
        if request.behind not in self._answered:
            raise wrong(request.behind_field, f"there is no response {request.behind}")
        last = self._answered[request.behind]
        tools = last.request.tools if request.keeps_tools else request.tools
        first = int(request.instructed)
        history, new = list(request.messages[:first]), request.messages[first:]
        for turn in last.path:
            history += turn.given[turn.parent is None and turn.request.instructed :]
            if turn.sampled is not None:
                answer = turn.sampled.answer
                calls = [HistoryCall(call.id, call.name, call.text) for call in answer.calls]
                history.append(HistoryMessage("assistant", answer.content, calls, handle=answer.number))
        return replace(request, messages=[*history, *new], tools=tools, behind=None)

    def _resolve_references(self, message: HistoryMessage) -> HistoryMessage:
        """Return a message with the parts of our answer to which it refers. Raises Refusal."""
        if not message.refers:
            return message
        turn = self._answered.get(-1 if message.handle is None else message.handle)
        answer = turn.sampled.answer if turn is not None and turn.sampled is not None else None
        places = [place for place in dict.fromkeys(message.refers) if isinstance(place, int)]
        if answer is None or any(place >= len(answer.calls) for place in places):
            raise Refusal(f"item_reference: response {message.handle} has no such item", param="input")
        calls = [HistoryCall(call.id, call.name, call.text) for call in (answer.calls[place] for place in places)]
        text = answer.content if "text" in message.refers else message.text
        return replace(message, text=text, calls=(*message.calls, *calls), refers=())

    def find_turn(self, message: HistoryMessage) -> Turn | None:
        """Return the turn whose answer a message tells, in any place; None if it tells none."""
        if message.role != "assistant":
            return None
        if message.handle is not None and (turn := self._answered.get(message.handle)) and turn.is_echoed(message):
            return turn
        ids = tuple(call.id for call in message.calls)
        near = [*self._by_words.get(ids, ())] if ids else []
        near += self._by_words.get(message.text.strip(), ())
        if message.calls or message.handle is not None:
            near += self._broken
        return next((turn for turn in near if turn.is_echoed(message)), None)

    def add(self, turn: Turn) -> None:
        """Add a turn after its parent, or as a root."""
        (self.roots if turn.parent is None else turn.parent.children).append(turn)

    def remove(self, turn: Turn) -> None:
        """Take out a turn without an answer."""
        (self.roots if turn.parent is None else turn.parent.children).remove(turn)

    def set_answer(self, turn: Turn, sampled: SampledReply) -> None:
        """Give a turn its answer."""
        turn.sampled = sampled
        answer = sampled.answer
        self._answered[answer.number] = turn
        texts: set[str | tuple[str, ...]] = {answer.content.strip(), answer.whole.strip()}
        for words in (*texts, tuple(call.id for call in answer.calls)):
            self._by_words.setdefault(words, []).append(turn)
        if any(call.call is None for call in answer.calls):
            self._broken.append(turn)

    def __len__(self) -> int:
        """Return how many turns were answered."""
        return len(self._answered)

    @property
    def turns(self) -> Sequence[tuple[Turn, SampledReply]]:
        """Return the answered turns, in the order of their answers, and their sampled replies."""
        return [(turn, turn.sampled) for turn in self._answered.values() if turn.sampled is not None]


def change(found: HistoryMatch, turn: Turn, roots: Sequence[Turn]) -> str | None:
    """Return how a request departs from the known history: the name under which this is counted; None if it is new, or
    goes on. roots: the conversations begun before."""
    if found.same:
        return "asked again"
    if found.turn is not None and turn.parent is None:
        return "edited"
    beside = roots if turn.parent is None else turn.parent.children
    if any(begins(turn.given, other.given) for other in beside if other.request.toolset == turn.request.toolset):
        return "reply dropped"
    if turn.parent is None:
        return "rewritten" if turn.retells else None
    return "branched" if beside else None


def begins(messages: Sequence[HistoryMessage], ours: Sequence[HistoryMessage]) -> bool:
    """Tell whether messages begin with others. The last of those may be continued."""
    if len(messages) < len(ours):
        return False
    *before, last = ours
    return same_messages(messages[: len(before)], before) and (
        same(messages[len(before)].text, last.text) or messages[len(before)].text.startswith(last.text.strip())
    )
