"""One rollout's conversations: requests come in, each is answered in its place, and all end as an `AgentResult`.

Sampling, reading a reply and making rows are those of our own loop (`sampling`, `harvest`). A session is not written on
`Turns`: an agent's requests hold whole histories, in any order and several at once, so its conversations are located,
not held.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from atroposlib.envs.server_handling.server_baseline import APIServer

from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.answers import answer_of
from atropos_agent.gateway.app import Receive, Scope, Send, respond
from atropos_agent.gateway.bounds import UNKNOWN, Bounds, Share, TooLong
from atropos_agent.gateway.branches import TRAINED, harvest
from atropos_agent.gateway.encoding import foreign_calls
from atropos_agent.gateway.forest import Forest, HistoryMatch, SampledReply, Turn, change
from atropos_agent.gateway.histories import order_history
from atropos_agent.gateway.prompts import Prompts, check_request
from atropos_agent.gateway.protocol import NOTED
from atropos_agent.gateway.requests import Fault, GatewayRequest, HistoryCall, Refusal
from atropos_agent.harvest import compaction_of, take_in
from atropos_agent.offload import offload
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.conversation import Completion
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentError, AgentResult, Branch, Counts, Reply, StopReason, Unanswered

_OURS = re.compile(r"call_(\d{1,6})")


class Session:
    """A rollout as the gateway sees it. Use it as `async with`; `Gateway.session` makes one with an address.

    server: as of `AtroposAgent`, one `APIServer`: a `Route`, or the server of a recording.
    template: None if the server takes messages and gives no token ids; then there are no rows.
    tool_format: how the model calls tools.
    config: how to sample, and the budgets; the agent's own settings are noted and not followed. `max_steps` counts all
        replies.
    trained: the kinds of branches that are trained (`Branch`).
    tolerates: fields that may ask for something to be forced, though it is not (`atropos_agent.types.FORCIBLE`).
        Others are refused.

    api_key: the key that marks requests as this rollout's. base_url: the base URL for an OpenAI client;
    anthropic_url: for an Anthropic client. Both are "" for a session without a gateway.
    refused: the first refusals of requests for a reply, by whether they showed tools.
    failure: the first infrastructure failure; it spoils the rollout; None without. ended_by: the first budget that was
        over when the agent sent a request; None before, and if it went on in another conversation than one too long.
    share: of the event loop.
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
        self._trained = trained
        self._tolerates = tolerates
        self._sampler = Sampler(server, self.config, template, split)
        self._forest = Forest()
        self._prompts = Prompts(template, tool_format, self._forest, keeps_thinking=self.config.history == "sampled")
        self._counts = Counts()
        self._minted = 0
        """Ids of calls so far."""
        self._reading = asyncio.Lock()
        """Held while a reply is read: its calls get the next ids."""
        self._changes: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._unshown: dict[tuple[str, str], int] = {}
        """Parts that could not be shown, by message: a history begun again tells it again."""
        self.share = Share()
        self._work: set[asyncio.Task[None]] = set()
        self.refused: dict[bool, Refusal] = {}
        self.failure: AgentError | None = None
        self.ended_by: StopReason | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take no more requests, and end those under way. Replies that were sampled are kept."""
        self._closed = True
        self._sampler.give_up()  # a turn's own task is not cancelled: its reply may have come, and is not read yet
        await asyncio.gather(*self._work, return_exceptions=True)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of this session's agent: an ASGI application. The caller knows the request's origin.

        `scope["extensions"]["atropos.untaken"]` is set when all is sent: call it if it turns out that the client
        did not take the last byte."""
        await respond(self, scope, receive, send)

    async def result(self, stop_reason: StopReason | None = None) -> AgentResult:
        """Return the agent's result, when it has ended. Ends the session.

        stop_reason: why it ended, if the caller knows more than the mere end.
        Raises AgentError after an infrastructure failure, with everything sampled in `partial`. It is Unanswered if the
        agent's first requests were refused."""
        await self.close()
        if self.failure is None and self.ended_by is None and (refusal := self._blocking_refusal()) is not None:
            remedy = "give the agent other settings, or take another model or agent; doctor tries them"
            self.failure = Unanswered(f"what the agent asked first was refused: {refusal}; {remedy}")
        if self.failure is not None:
            self.failure.partial = self._result(None, str(self.failure))
            raise self.failure
        return self._result(stop_reason or self.ended_by or StopReason.ANSWERED)

    # What whoever watches the agent asks

    @property
    def working(self) -> bool:
        """Return whether a reply is being sampled."""
        return bool(self._work)

    @property
    def turns(self) -> Sequence[tuple[Turn, SampledReply]]:
        """Return the answered turns, in the order of their answers, and their sampled replies."""
        return self._forest.turns

    def remaining_s(self) -> float:
        """Return the seconds the agent has left, none after an infrastructure failure."""
        return 0.0 if self.failure is not None else self._sampler.remaining()

    # What the protocols use

    def ask(self, request: GatewayRequest) -> Turn:
        """Return the turn that answers a request, when its `work` is done. It is sampled even if no client waits for
        it.

        Raises Refusal for impossible requests, AgentError for an earlier infrastructure failure."""
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise Refusal("the rollout has ended", Fault.TOO_LONG)
        request, found = self._locate_request(request)
        turn = next((one for one in found.same if _is_wanted(one, request)), None)
        if turn is not None:
            self._changes["answer repeated"] += 1
            return turn
        self._check_budget()
        turn = self._begin(request, found)
        turn.work = asyncio.create_task(self._sample(turn))
        self._work.add(turn.work)
        turn.work.add_done_callback(self._done)
        return turn

    def count_tokens(self, request: GatewayRequest) -> int:
        """Return how many tokens the prompt for a request would have. Raises Refusal."""
        request, found = self._locate_request(request)
        return len(self._prompts.place(request, found, self.bounds, counting=True)[0].conversation.prompt)

    @property
    def bounds(self) -> Bounds:
        """Return the limits of a request."""
        limits = (self.config.max_total_tokens, self._sampler.window)
        return Bounds(min((limit for limit in limits if limit is not None), default=UNKNOWN))

    def too_long(self, error: TooLong, *, counting: bool) -> Refusal:
        """Return the refusal of a request too long for a prompt. counting: its tokens were to be counted alone."""
        if counting:
            return Refusal(f"prompt is too long: {error}", Fault.TOO_LONG, param="messages")
        return self._end_refusal(StopReason.MAX_TOKENS, str(error))

    def note_refusal(self, refusal: Refusal, *, tools: bool) -> None:
        """Remember the refusal of a request for a reply. tools: whether it showed some."""
        if refusal.fault is not Fault.TOO_LONG:  # the end of a budget, or of the rollout
            self.refused.setdefault(tools, refusal)

    def _blocking_refusal(self) -> Refusal | None:
        """Return the refusal that kept the agent from its work; None if it could begin."""
        return None if len(self._forest) else self.refused.get(True, self.refused.get(False))

    def fail(self, error: Exception) -> AgentError:
        """Remember that the rollout is spoilt by an infrastructure failure, and return it."""
        if self.failure is None:
            self.failure = error if isinstance(error, AgentError) else AgentError(f"{type(error).__name__}: {error}")
            if self.failure is not error:
                self.failure.__cause__ = error
        return self.failure

    # A request

    def _locate_request(self, request: GatewayRequest) -> tuple[GatewayRequest, HistoryMatch]:
        """Return a request with its whole history, in order, and the history's end in the forest. Raises Refusal,
        TooLong."""
        request = self._forest.whole(request)
        self.bounds.check_number(request.messages)
        self._note_settings(request)
        request = replace(request, messages=order_history(request.messages, self._forest.find_turn))
        return request, self._forest.locate(request)

    def _note_settings(self, request: GatewayRequest) -> None:
        """Note a request's settings that are not followed. Raises Refusal if no reply can follow it."""
        check_request(request, self._tolerates)
        for name in (*request.noted, *request.forced):
            if name in self._noted or len(self._noted) < NOTED:
                self._noted[name] += 1

    def _check_budget(self) -> None:
        if self._sampler.remaining() <= 0:
            raise self._end_refusal(StopReason.TIME, "the time of this rollout is over")
        if len(self._forest) + sum(not work.done() for work in self._work) >= self.config.max_steps:
            raise self._end_refusal(StopReason.MAX_STEPS, f"this rollout has had its {self.config.max_steps} turns")

    def _begin(self, request: GatewayRequest, found: HistoryMatch) -> Turn:
        """Add a request's turn to the forest, with its prompt ready. Raises Refusal."""
        line, parent, given = self._prompts.place(request, found, self.bounds)
        if parent is None:
            self._minted = max(self._minted, _next_call_number(foreign_calls(given, self._forest.find_turn)))
        turn = Turn(line, parent, given, request)
        turn.retells = parent is None and any(self._forest.find_turn(message) for message in given)
        kind = change(found, turn, self._forest.roots)
        if kind is not None:
            self._changes[kind] += 1
        line.tip = turn
        self._forest.add(turn)
        return turn

    async def _sample(self, turn: Turn) -> None:
        """Sample a turn's reply. Raises Refusal at the end of a budget, AgentError for an infrastructure failure."""
        line, started, ended_by = turn.line, time.monotonic(), self.ended_by
        try:
            if self._closed:
                raise Refusal("the rollout has ended", Fault.TOO_LONG)
            tokens = len(line.conversation.prompt)
            budget = self._sampler.budget(tokens, turn.request.max_tokens)
            if budget is not None and budget <= 0:
                raise self._end_refusal(StopReason.MAX_TOKENS, f"{tokens} tokens > {tokens + budget - 1} maximum")
            completion = await self._sampler.sample(line.conversation, budget, stop=turn.request.stop)
            await self._store_answer(turn, completion, time.monotonic() - started)
            if ended_by is StopReason.MAX_TOKENS and turn.request.tools:
                self.ended_by = None  # one conversation was too long, and the agent goes on in another
        except BaseException as error:  # also a cancellation: the turn is taken back
            self._prompts.take_back(turn)
            if isinstance(error, ContextOverflow):
                raise self._end_refusal(StopReason.MAX_TOKENS, str(error)) from error
            if isinstance(error, Exception) and not isinstance(error, Refusal):
                failure = self.fail(error)
                raise failure from failure.__cause__  # never from itself
            raise

    async def _store_answer(self, turn: Turn, completion: Completion, engine_s: float) -> None:
        """Make a turn's answer from the sampled reply."""
        exchange = len(self._sampler.record.exchanges) - 1
        async with self._reading:
            work = partial(self._read, turn, completion, engine_s=engine_s, exchange=exchange)
            reply, sampled = await offload(work, len(completion.ids))
            self._sampler.accept(completion)
            self._minted += len(sampled.answer.calls)
            self._forest.set_answer(turn, sampled)
        self._unshown |= {(message.call_id, message.text): message.unshown for message in turn.given if message.unshown}
        self._counts += Counts(tool_calls=len(reply.calls), malformed_calls=len(reply.problems))

    def _read(
        self, turn: Turn, completion: Completion, *, engine_s: float, exchange: int
    ) -> tuple[Reply, SampledReply]:
        """Take a reply apart; return its answer and its sampled parts. It changes nothing but the turn's
        conversation."""
        line, number = turn.line, len(self._forest)
        read = take_in(
            *(line.conversation, line.fitted, completion), number=number, first_id=self._minted, engine_s=engine_s
        )
        answer = answer_of(
            read.text,
            read.reply,
            completion,
            turn.request,
            line.fitted,
            number=number,
            first_id=self._minted,
            prompt_tokens=read.step.prompt_tokens,
            thinking_open=read.opened,
        )
        return read.reply, SampledReply(answer, line.conversation.place(), read.called, read.step, exchange)

    def _done(self, work: asyncio.Task[None]) -> None:
        self._work.discard(work)
        if not work.cancelled():
            work.exception()  # whoever waits has it, too

    def _end_refusal(self, reason: StopReason, why: str) -> Refusal:
        self.ended_by = self.ended_by or reason
        return Refusal(f"prompt is too long: {why}", Fault.TOO_LONG, param="messages")

    def _result(self, reason: StopReason | None, error: str | None = None) -> AgentResult:
        found = harvest(
            *(self._forest, self._sampler.record.exchanges, self._trained),
            trains_summaries=self.config.trains_summaries,
        )
        last = found.main[-1] if found.main else None
        conversation = last.line.conversation if last is not None else None
        details: Mapping[str, Any] = {
            "branches": found.branches,
            "untrained_tokens": found.untrained,
            **compaction_of(found.steps, found.shortened.count, found.shortened.saved),
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
            metadata={"gateway": details},
            record=found.record,
            counts=self._counts + self._sampler.counts + Counts(unshown=sum(self._unshown.values())),
            carries_tokens=self.template is not None,
            drift=conversation.drift() if conversation is not None else None,
            conditions=self._sampler.conditions(last.request.tools if last is not None else ()),
        )


def _next_call_number(calls: Sequence[HistoryCall]) -> int:
    """Return a number for the next call: ids from it on are neither these calls' own, nor those given for them to the
    chat template."""
    found = [_OURS.fullmatch(call.id) for call in calls]
    return max([len(calls), *(int(one[1]) + 1 for one in found if one is not None)])


def _is_wanted(turn: Turn, request: GatewayRequest) -> bool:
    """Tell whether a turn answers an earlier request: no client has had it, or waits for it, and it is not shorter
    than the reply requested now."""
    if turn.taken or turn.waiting or tuple(turn.request.stop) != tuple(request.stop):
        return False
    if turn.sampled is None:
        return turn.request.max_tokens == request.max_tokens
    return turn.sampled.answer.finish_reason != "length" or turn.request.max_tokens == request.max_tokens
