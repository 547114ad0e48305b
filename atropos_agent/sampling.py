"""A rollout's one way to sample: prompt ids in, checked ids and logprobs out, recorded, budgets and outages counted."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from atroposlib.envs.server_handling.server_baseline import APIServer
from tenacity import RetryError

from atropos_agent import tracing
from atropos_agent.engines.replies import UnsoundReply, check_answer, check_chat_answer
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Completion, Conversation
from atropos_agent.tokens.record import Record
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentError, Conditions, Counts, EngineError

logger = logging.getLogger(__name__)

SPARE_TOKENS = 8
"""Tokens left free in an inference server's context window: some (SGLang) take no request that fills it to the last
token."""
GRACE_S = 15.0
"""How much longer a request may take, in seconds, if it is under way when the rollout's time is over."""
FAIR_REPLY_S, FAIR_TOKENS_PER_S = 1.0, 10.0
"""The most a reply takes from the rollout's time: seconds, and its tokens at this speed. If an inference server takes
longer, it hangs or is slow, by no fault of the model's."""
CHARACTERS_OF_TOKEN = 4
"""Characters of a token, about, if an inference server returns text alone."""

_CONDITIONS = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_steps", "max_total_tokens", "max_seconds"),
    *("history", "compaction"),
)
"""Fields of `AgentConfig` that say how a model was sampled."""

TRIES = 3
"""How often a turn is sent to a server for messages that cuts its reply off."""

T = TypeVar("T")


class Sampler:
    """Samples a rollout's replies, several at once if it has several conversations.

    server: an `APIServer` that takes token ids; one that takes messages if `template` is None.
    config: how to sample, and the budgets. split: "train" or "eval", for atroposlib's statistics.

    record: of every request and reply. counts: lost tokens and requests.
    """

    def __init__(self, server: APIServer, config: AgentConfig, template: ChatTemplate | None, split: str) -> None:
        self.server = server
        self.config = config
        self.template = template
        self.split = split
        self.record = Record()
        self.counts = Counts()
        seconds = config.max_seconds
        self.deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._lost_before = self._lost_tokens
        self._given_back_until = -math.inf
        self._place = tracing.Place.here()
        """The rollout's place in a trace: a session's requests come from outside of it."""
        self._requests: set[asyncio.Future[Any]] = set()

    def give_up(self) -> None:
        """Give up the requests that are not answered: their `sample` is cancelled. A reply that came is returned."""
        for request in self._requests:
            request.cancel()

    async def sample(
        self, conversation: Conversation | ChatLog, max_tokens: int | None, *, stop: Sequence[str] = ()
    ) -> Completion:
        """Sample one reply to a conversation's prompt, and check it against the request.

        max_tokens: as `budget` returns it. stop: strings that end this reply, beside the configuration's.
        Raises EngineError, TokenMismatch, ContextOverflow."""
        sent = list(conversation.prompt)
        with (
            self._place.enter_unless_traced(),
            tracing.engine_call(self._model, self.config, len(sent), max_tokens) as span,
        ):
            completion = await self._sample(conversation, sent, max_tokens, stop)
            tracing.record_reply(
                *(span, conversation.plain_messages, lambda: self._text(completion)),
                tokens=len(completion.ids),
                reason=completion.finish_reason,
                version=completion.version,
            )
        return completion

    def conditions(self, tools: Sequence[Mapping[str, Any]]) -> Conditions:
        """Return the conditions of sampling. tools: those shown to the model."""
        sampling = {name: getattr(self.config, name) for name in _CONDITIONS} | {"stop": list(self.config.stop)}
        return Conditions(self._model, tuple(tools), sampling)

    @property
    def _model(self) -> str:
        """Return the inference server's name of its model; "" for a server without a configuration."""
        return str(getattr(getattr(self.server, "config", None), "model_name", "") or "")

    def _text(self, completion: Completion) -> str:
        return completion.text or ("" if self.template is None else self.template.decode(list(completion.ids)))

    async def _sample(
        self, conversation: Conversation | ChatLog, sent: list[int], max_tokens: int | None, stop: Sequence[str]
    ) -> Completion:
        logger.debug("prompt: %d tokens, up to %s more", len(sent), max_tokens)
        options = {
            **({} if max_tokens is None else {"max_tokens": max_tokens}),
            "temperature": self.config.temperature,
            "top_p": self.config.top_p,
            # Left out if they cut nothing: not every server, nor every client, knows them.
            **({"top_k": self.config.top_k} if self.config.top_k else {}),
            **({"min_p": self.config.min_p} if self.config.min_p else {}),
            "n": 1,
            "stop": [*self.config.stop, *stop] or None,
            "split": self.split,
        }
        began, outage_s = time.monotonic(), self._outage_s
        try:
            if self.template is None:
                assert isinstance(conversation, ChatLog)  # noqa: S101 - without a template it is no other
                messages = [dict(message) for message in conversation.messages]
                request: dict[str, Any] = {**options, **({"tools": conversation.tools} if conversation.tools else {})}
                completion = await self._chat(messages, request)
                self._compensate_time(began, outage_s, len(completion.text or "") // CHARACTERS_OF_TOKEN)
                return completion
            asking = self.server.tokens_and_logprobs_completion(input_ids=sent, **options)
            answer = await self._answer(asking, _count_tokens)
            self._compensate_time(began, outage_s, _count_tokens(answer))
            completion = check_answer(answer, sent, self.template.unknown_id, most=max_tokens)
            self._check_length(completion, max_tokens)
        except AgentError as error:
            self.counts += Counts(refused_tokens=error.lost_tokens)
            raise
        finally:
            lost, self._lost_before = self._lost_tokens - self._lost_before, self._lost_tokens
            self.counts += Counts(refused_tokens=lost)
        self.record.add(sent, completion.ids, completion.logprobs)
        return completion

    async def _chat(self, messages: list[dict[str, Any]], options: Mapping[str, Any]) -> Completion:
        """Return a reply to messages. One that the server cut off is requested again: nothing has come of it yet."""
        for left in reversed(range(TRIES)):
            try:
                return check_chat_answer(await self._answer(self.server.chat_completion(messages=messages, **options)))
            except UnsoundReply as error:
                if not (error.passing and left and self.remaining() > 0):
                    raise
                logger.warning("%s; this turn is asked for again", error)
                self.counts += Counts(refused_tokens=error.lost_tokens)
        raise AssertionError  # the last one returns or raises

    def accept(self, completion: Completion) -> None:
        """Tell the server, if it keeps replies, that this one is part of its conversation now."""
        if (accept := getattr(self.server, "accept", None)) is not None:
            accept(completion.ids)

    def remaining(self) -> float:
        """Return the seconds left to the rollout."""
        return self.deadline - time.monotonic()

    def budget(self, prompt_tokens: int, requested: int | None = None) -> int | None:
        """Return the most tokens of the next reply; None if an inference server that takes messages decides.

        requested: at most so many. A server for ids is always given a number: several would stop after 16 without.
        Raises ValueError if none is known."""
        room = self.room(prompt_tokens)
        limits = [limit for limit in (self.config.max_tokens, requested, room) if limit is not None]
        if not limits and self.template is not None:
            raise ValueError(
                "AgentConfig.max_tokens is None, and how long a reply may be is not known: the inference server does "
                "not tell its context window; set max_tokens or max_total_tokens"
            )
        return min(limits, default=None)

    def room(self, prompt_tokens: int) -> int | None:
        """Return the tokens of room after a prompt; None if unknown."""
        known = [limit for limit in (self.config.max_total_tokens, self.window) if limit is not None]
        return min(known) - prompt_tokens if known else None

    def tokens(self, text: str) -> int:
        """Return about how many tokens a message has, before it is sent to the inference server."""
        return len(text) // CHARACTERS_OF_TOKEN if self.template is None else len(self.template.encode(text))

    @property
    def window(self) -> int | None:
        """Return the inference server's context window, as far as it is used; None if unknown."""
        window: int | None = getattr(self.server, "max_model_len", None)
        return None if window is None else window - SPARE_TOKENS

    def _check_length(self, completion: Completion, max_tokens: int | None) -> None:
        """Raise EngineError for a reply cut off before its limit."""
        if max_tokens is None:
            return
        if completion.finish_reason == "length" and len(completion.ids) < max_tokens and self.window is not None:
            raise EngineError(
                f"the inference server cut a reply off after {len(completion.ids)} of {max_tokens} tokens, for which "
                "there is room: it has a smaller context window than it says, or a limit of its own",
                lost_tokens=len(completion.ids),
            )

    async def _answer(self, asking: Coroutine[Any, Any, T], tokens: Callable[[T], int] = lambda _: 0) -> T:
        """Await the inference server's answer. If it has not come when the rollout's time is over, this proves nothing
        against the model: it has `GRACE_S` more. Raises EngineError when it does not come.

        tokens: tells how many an answer has."""
        began, outage_s = time.monotonic(), self._outage_s
        request = asyncio.ensure_future(asking)
        self._requests.add(request)
        try:
            limit = self.config.request_timeout_s
            await asyncio.wait({request}, timeout=min(limit, self.remaining()))
            if not request.done() and self.remaining() <= 0 and self._outage_s == outage_s and await self._alive():
                await asyncio.wait({request}, timeout=min(GRACE_S, began + limit - time.monotonic()))
            if request.done():
                return request.result()
            self.counts += Counts(abandoned_requests=1)
            raise EngineError(f"the inference server did not answer within {time.monotonic() - began:.0f} s")
        except TimeoutError as error:
            raise EngineError("the inference server did not answer in time") from error
        except RetryError as error:
            cause = _root_cause(error)
            raise EngineError(f"{type(cause).__name__}: {cause}") from cause
        except asyncio.CancelledError:
            came = request.done() and not request.cancelled() and request.exception() is None
            self.counts += Counts(refused_tokens=tokens(request.result())) if came else Counts(abandoned_requests=1)
            raise
        finally:
            self._requests.discard(request)
            if not request.done():
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

    def _compensate_time(self, began: float, outage_s: float, tokens: int) -> None:
        """Take from the rollout's time no more than a reply's fair share: the time lost to failing, hanging or slow
        inference servers is not the model's. began, outage_s: when the request was sent, and the outage until
        then."""
        now = time.monotonic()
        # Time that several requests have spent side by side is given back once.
        spent = now - max(began, self._given_back_until)
        self._given_back_until = now
        outage = self._outage_s - outage_s
        self.deadline += outage + max(0.0, spent - outage - FAIR_REPLY_S - tokens / FAIR_TOKENS_PER_S)

    @property
    def _outage_s(self) -> float:
        """Return the seconds a `Route` has lost to failed servers; 0 for other servers, which don't tell."""
        return float(getattr(self.server, "outage_s", 0.0))

    @property
    def _lost_tokens(self) -> int:
        """Return a `Route`'s count of tokens in replies it requested again; 0 for other servers."""
        return int(getattr(self.server, "lost_tokens", 0))

    async def _alive(self) -> bool:
        """Tell whether the inference server answers at all; taken for granted of servers without such a request."""
        ask = getattr(self.server, "alive", None)
        return ask is None or bool(await ask())


def _count_tokens(answer: tuple[Any, Sequence[Sequence[int]], Any, Any]) -> int:
    """Return how many tokens were sampled for an answer."""
    return sum(len(ids) for ids in answer[1])


def _root_cause(error: BaseException) -> BaseException:
    """Return the last failure: atroposlib's own servers wrap it, once for each of their loops of attempts."""
    while isinstance(error, RetryError):
        error = error.last_attempt.exception() or EngineError("no attempt was made")
    return error
