"""One rollout's conversations: requests come in, each is answered in its place, and all end as an `AgentResult`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from atroposlib.envs.server_handling.server_baseline import APIServer
from jinja2 import TemplateError

from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.answers import answer_of
from atropos_agent.gateway.app import Receive, Scope, Send, respond
from atropos_agent.gateway.asked import Asked, Fault, Refusal, Told
from atropos_agent.gateway.branches import TRAINED, Branch, harvest
from atropos_agent.gateway.encoded import folded, following, opening
from atropos_agent.gateway.forest import Forest, Found, Line, Sampled, Turn, change
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Completion, Conversation
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentError, AgentResult, AgentStep, Counts, StopReason

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Session:
    """A rollout as the gateway sees it. Use it as `async with`; `Gateway.session` makes one that has an address.

    server: as of `AtroposAgent`, one `APIServer`: a `Route`, or what a recording serves.
    template: None where the server takes messages and gives no token ids; then there are no rows.
    tool_format: how the model calls tools.
    config: how to sample, and the budgets; the agent's own settings are noted and not followed. `max_steps` counts all
        replies.
    trained: the kinds of branches that are trained (`Branch`).
    tolerates: fields that may ask for something to be forced, though it is not: "tool_choice", "response_format",
        "text.format", "output_format". Others are refused.

    api_key: the key by which requests are known to be this rollout's. base_url: what an OpenAI client takes as such;
    anthropic_url: what an Anthropic client takes. Both are "" for a session without a gateway.
    """

    def __init__(
        self,
        server: APIServer,
        template: ChatTemplate | None,
        tool_format: FittedFormat,
        config: AgentConfig | None = None,
        *,
        split: str = "train",
        trained: Collection[Branch] = TRAINED,
        tolerates: Collection[str] = (),
        api_key: str = "",
        address: str = "",
    ) -> None:
        self.config = config or AgentConfig()
        self.template = template
        self.api_key = api_key
        self.base_url = f"{address}/v1" if address else ""
        self.anthropic_url = address
        self._fitted = tool_format
        self._trained = trained
        self._tolerates = tolerates
        self._sampler = Sampler(server, self.config, template, split)
        self._forest = Forest()
        self._counts = Counts()
        self._minted = 0
        """Ids of calls so far."""
        self._changes: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._work: set[asyncio.Task[None]] = set()
        self._failure: AgentError | None = None
        self._ended_by: StopReason | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take no more requests, and end what is under way."""
        self._closed = True
        self._counts += Counts(abandoned_requests=len(self._work))
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of this session's agent: an ASGI application. Whose request it is, the caller knows.

        `scope["extensions"]["atropos.untaken"]` is set when all is sent: call it where it turns out that the client
        did not take the last byte."""
        await respond(self, scope, receive, send)

    async def result(self, stop_reason: StopReason | None = None) -> AgentResult:
        """Return what the agent did, when it has ended. Ends the session.

        stop_reason: why it ended, where the caller knows better than that it did.
        Raises AgentError where a failure of ours was in it, with all that was sampled in `partial`."""
        await self.close()
        if self._failure is not None:
            self._failure.partial = self._result(None, str(self._failure))
            raise self._failure
        return self._result(stop_reason or self._ended_by or StopReason.ANSWERED)

    # What the protocols use

    def ask(self, asked: Asked) -> Turn:
        """Return the turn that answers a request, when its `work` is done. It is sampled whoever waits for it.

        Raises Refusal for what can't be done, AgentError for an earlier failure of ours."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise Refusal("the rollout has ended", Fault.TOO_LONG)
        self._check(asked)
        asked = self._forest.whole(asked)
        found = self._forest.locate(asked)
        turn = next((one for one in found.same if _is_wanted(one, asked)), None)
        if turn is not None:
            self._changes["answer repeated"] += 1
            return turn
        self._check_budget()
        turn = self._begin(asked, found)
        turn.work = asyncio.create_task(self._sample(turn))
        self._work.add(turn.work)
        turn.work.add_done_callback(self._done)
        return turn

    def count_tokens(self, asked: Asked) -> int:
        """Return how many tokens the prompt for a request would have. Raises Refusal."""
        self._check(asked)
        asked = self._forest.whole(asked)
        return len(self._placed(asked, self._forest.locate(asked), counting=True)[0].conversation.prompt)

    def fail(self, error: Exception) -> AgentError:
        """Remember that the rollout is spoilt by a failure of ours, and return it."""
        if self._failure is None:
            self._failure = error if isinstance(error, AgentError) else AgentError(f"{type(error).__name__}: {error}")
            if self._failure is not error:
                self._failure.__cause__ = error
        return self._failure

    # A request

    def _check(self, asked: Asked) -> None:
        """Raise Refusal for a request that no reply can follow."""
        for name, wanted in asked.forced.items():
            if name not in self._tolerates:
                raise Refusal(
                    f"{name}: {wanted!r} can't be forced on the model here; leave it to the model, or let the session "
                    f"tolerate {name!r}",
                    param=name,
                )
        if not asked.messages and asked.behind is None:
            raise Refusal("messages: must hold a message", param="messages")
        if asked.messages and asked.messages[-1].role == "assistant":
            raise Refusal("messages: the last one must not be the assistant's own: no reply is begun for the model")
        self._noted.update([*asked.noted, *asked.forced])

    def _check_budget(self) -> None:
        if self._sampler.remaining() <= 0:
            raise self._ends(StopReason.TIME, "the time of this rollout is over")
        if len(self._forest) + len(self._work) >= self.config.max_steps:
            raise self._ends(StopReason.MAX_STEPS, f"this rollout has had its {self.config.max_steps} turns")

    def _begin(self, asked: Asked, found: Found) -> Turn:
        """Put a request in its place, its prompt ready. Raises Refusal."""
        try:
            line, parent, given = self._placed(asked, found)
        except TemplateError as error:
            raise Refusal(f"messages: the model's chat template refuses them: {error}", param="messages") from error
        turn = Turn(line, parent, given, asked)
        turn.retells = parent is None and any(self._forest.retold(told) for told in given)
        kind = change(found, turn, self._forest.roots)
        if kind is not None:
            self._changes[kind] += 1
        line.tip = turn
        self._forest.add(turn)
        return turn

    def _placed(
        self, asked: Asked, found: Found, *, counting: bool = False
    ) -> tuple[Line, Turn | None, Sequence[Told]]:
        """Return the line in which a request is answered, the turn that it goes on from, and what is new in it.

        counting: nothing is to be changed."""
        parent = found.turn
        if parent is None or parent.sampled is None or any(told.role == "assistant" for told in found.rest):
            # History that is not ours, or not ours any more, is context.
            return _fitting(partial(self._root, asked), asked.messages), None, asked.messages
        line = parent.line
        if line.tip is not parent or counting:
            line = Line(line.conversation.fork(parent.sampled.place), line.fitted)
        _fitting(partial(self._continue, line, parent, parent.sampled), found.rest)
        return line, parent, found.rest

    def _continue(self, line: Line, parent: Turn, sampled: Sampled, messages: Sequence[Told]) -> None:
        try:
            line.conversation.add_messages(following(messages, line.fitted, sampled))
        except Exception:
            self._restore(line, parent)
            raise

    def _root(self, asked: Asked, told: Sequence[Told]) -> Line:
        fitted = self._fitted.with_tools(asked.tools)
        messages = opening(told, fitted, asked.tools, self._forest.retold)
        if self.template is None:
            return Line(ChatLog(messages), fitted)
        conversation = Conversation(
            self.template,
            messages,
            fitted.format.frame,
            fitted.format.literals,
            fitted.shown(asked.tools),
            fitted.shape,
            inside=fitted.inside,
            keeps_thinking=self.config.history == "sampled",
        )
        return Line(conversation, fitted)

    async def _sample(self, turn: Turn) -> None:
        """Sample a turn's reply. Raises Refusal at the end of a budget, AgentError for a failure of ours."""
        line, started = turn.line, time.monotonic()
        try:
            budget = self._sampler.budget(len(line.conversation.prompt))
            if budget <= 0:
                tokens = len(line.conversation.prompt)
                raise self._ends(StopReason.MAX_TOKENS, f"{tokens} tokens > {tokens + budget - 1} maximum")
            wanted = budget if turn.asked.max_tokens is None else min(budget, turn.asked.max_tokens)
            completion = await self._sampler.sample(line.conversation, wanted, stop=turn.asked.stop)
            self._take_in(turn, completion, time.monotonic() - started)
        except BaseException as error:
            self._forest.remove(turn)
            if turn.parent is not None:
                self._restore(line, turn.parent)
            if isinstance(error, ContextOverflow):
                raise self._ends(StopReason.MAX_TOKENS, str(error)) from error
            if isinstance(error, Exception) and not isinstance(error, Refusal):
                failure = self.fail(error)
                raise failure from failure.__cause__  # never from itself
            raise

    def _take_in(self, turn: Turn, completion: Completion, engine_s: float) -> None:
        """Make a turn's answer of what was sampled."""
        line, conversation = turn.line, turn.line.conversation
        exchange = len(self._sampler.record.exchanges) - 1
        segment, start = len(conversation.segments) - 1, len(conversation.prompt)
        opened = conversation.thinking_open
        text = conversation.add_reply(completion)
        self._sampler.accept(completion)
        reply = line.fitted.read(text, first_id=self._minted, thinking_open=opened)
        called = line.fitted.message(reply)
        if called is not None:
            conversation.add_calls(*called)
        number = len(self._forest)
        answer = answer_of(
            text,
            reply,
            completion,
            turn.asked,
            line.fitted,
            number=number,
            first_id=self._minted,
            prompt_tokens=start,
            thinking_open=opened,
        )
        self._minted += len(answer.calls)
        step = AgentStep(
            number,
            text,
            reply.thinking,
            reply.calls,
            finish_reason=completion.finish_reason,
            segment=segment,
            start=start,
            prompt_tokens=start,
            completion_tokens=len(completion.ids),
            engine_s=engine_s,
            content=reply.content,
        )
        sampled = Sampled(answer, conversation.place(), called is not None, step, exchange, completion.version)
        self._forest.answered(turn, sampled)
        self._counts += Counts(tool_calls=len(reply.calls), malformed_calls=len(reply.problems))

    def _restore(self, line: Line, parent: Turn) -> None:
        """Take back what was added to a line behind a turn, where nothing goes on from that."""
        if parent.sampled is not None:
            line.conversation = line.conversation.fork(parent.sampled.place)
            line.tip = parent

    def _done(self, work: asyncio.Task[None]) -> None:
        self._work.discard(work)
        if not work.cancelled():
            work.exception()  # whoever waits has it, too

    def _ends(self, reason: StopReason, why: str) -> Refusal:
        self._ended_by = self._ended_by or reason
        return Refusal(f"prompt is too long: {why}", Fault.TOO_LONG, param="messages")

    def _result(self, reason: StopReason | None, error: str | None = None) -> AgentResult:
        found = harvest(self._forest, self._sampler.record.exchanges, self._trained)
        last = found.main[-1] if found.main else None
        conversation = last.line.conversation if last is not None else None
        told: Mapping[str, Any] = {
            "branches": found.branches,
            "untrained_tokens": found.untrained,
            "changes": dict(self._changes),
            "not_followed": dict(self._noted),
        }
        return AgentResult(
            success=reason in (StopReason.ANSWERED, StopReason.SUBMITTED),
            final_response=last.sampled.answer.content if last is not None and last.sampled is not None else "",
            steps=found.steps,
            stop_reason=reason,
            segments=found.rows,
            messages=tuple(conversation.plain_messages()) if conversation is not None else (),
            error=error,
            metadata={"gateway": told},
            record=found.record,
            counts=self._counts + self._sampler.counts,
            carries_tokens=self.template is not None,
            drift=conversation.drift(conversation.rows()) if conversation is not None else None,
            conditions=self._sampler.conditions(last.asked.tools if last is not None else ()),
        )


def _fitting(encode: Callable[[Sequence[Told]], T], messages: Sequence[Told]) -> T:
    """Return what `encode` makes of messages, in a form that the chat template takes. Raises TemplateError."""
    try:
        return encode(messages)
    except TemplateError:
        if (other := folded(messages)) == list(messages):
            raise
        return encode(other)


def _is_wanted(turn: Turn, asked: Asked) -> bool:
    """Tell whether a turn answers a request that was asked before: nobody has had it, or waits for it, and it is not
    shorter than what is asked now."""
    if turn.taken or turn.waiting or tuple(turn.asked.stop) != tuple(asked.stop):
        return False
    if turn.sampled is None:
        return turn.asked.max_tokens == asked.max_tokens
    return turn.sampled.answer.finish_reason != "length" or turn.asked.max_tokens == asked.max_tokens
