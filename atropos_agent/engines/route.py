"""A rollout's way to the inference servers: one of them, the same while it is well, else another."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.engines.completions import Answer, CompletionsServer
from atropos_agent.engines.errors import ContextOverflow, OddAnswer
from atropos_agent.engines.replies import EndOf, UnknownId, UnsoundReply, check_answer
from atropos_agent.engines.sessions import Session
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.types import AgentError, EngineError, TokenMismatch

INTERRUPTIONS = 20
"""Most replies to one request, one after another, that a server may abort; with the pauses between them some
minutes."""


class Route(TokenServer):
    """The way of a rollout's requests: to the inference server of the last one, whose cache holds the
    prefix. While it fails, the same ids go to the least busy of the well ones; while
    none is well, they wait.

    unknown_id: knows the model's vocabulary (`ChatTemplate.unknown_id`); None leaves it out.
    end_of: knows the end of a reply (`ChatTemplate.end_of`); None leaves it out.

    session: names the rollout in every request.
    """

    patience_s = 1800.0
    """How long a request waits, in all, for an inference server's answer, in seconds."""

    def __init__(
        self,
        engines: Sequence[CompletionsServer],
        *,
        unknown_id: UnknownId | None = None,
        end_of: EndOf | None = None,
    ) -> None:
        super().__init__(engines[0].config)
        self.initialized = True
        self._lost_s = 0.0
        self._failing_since: float | None = None
        self.lost_tokens = 0
        """Sampled tokens of aborted or unsound replies, which were requested again."""
        self._engines = engines
        self._unknown_id = unknown_id
        self._end_of = end_of
        self._own: CompletionsServer | None = None
        self.session = Session()

    @property
    def outage_s(self) -> float:
        """Return the seconds that requests have spent until now on failing inference servers, and in waiting for a well
        one."""
        return self._lost_s + (0.0 if self._failing_since is None else time.monotonic() - self._failing_since)

    @property
    def max_model_len(self) -> int | None:
        """Return the smallest context window, in tokens; None when no inference server tells."""
        return min((e.max_model_len for e in self._engines if e.max_model_len is not None), default=None)

    async def alive(self) -> bool:
        """Tell whether anything answers at the place of the last request."""
        return self._own is not None and await self._own.alive()

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Answer:
        """Sample as `CompletionsServer` does. Returns sound replies only. Raises ContextOverflow, TokenMismatch,
        EngineError."""
        began = time.monotonic()
        refusals: dict[CompletionsServer, AgentError] = {}
        tries: Counter[CompletionsServer] = Counter()
        try:
            while True:
                engine = await self._choose(refusals)
                started = time.monotonic()
                try:
                    answer = await engine.once(**kwargs, session=self.session)
                    self._check(engine, answer, kwargs)
                except (EngineError, TokenMismatch) as error:
                    # A server that does not answer says nothing of the request.
                    tries[engine] = tries[engine] + 1 if isinstance(error, OddAnswer | UnsoundReply) else 0
                    found = await self._settle_error(engine, error, tries[engine], kwargs["input_ids"])
                    if not (isinstance(found, EngineError) and found.passing):
                        # The request may be at fault, or this inference server alone: the others decide.
                        refusals[engine] = found
                        if isinstance(found, ContextOverflow) or len(refusals) == len(self._engines):
                            raise found from found.__cause__
                    elif time.monotonic() - began > self.patience_s:
                        waited = f"no inference server has answered for {self.patience_s:.0f} s"
                        raise EngineError(f"{waited}: {error}", lost_tokens=error.lost_tokens) from error
                    else:
                        self._failing_since = began
                    self.lost_tokens += error.lost_tokens
                    engine.note_outcome(error)
                else:
                    engine.note_outcome(None)
                    if self._failing_since is not None:
                        self._lost_s, self._failing_since = self._lost_s + started - began, None
                    return answer
        finally:
            self._lost_s, self._failing_since = self.outage_s, None

    def _check(self, engine: CompletionsServer, answer: Answer, request: Mapping[str, Any]) -> None:
        """Check that a reply is sound, and whole if the server says so. Raises UnsoundReply, TokenMismatch."""
        most = request.get("max_tokens")
        reply = check_answer(answer, request["input_ids"], self._unknown_id, label=engine.label, most=most)
        if self._end_of is not None:
            engine.check_end(reply, self._end_of(reply.ids, request.get("stop") or ()))

    async def _settle_error(
        self, engine: CompletionsServer, error: AgentError, tries: int, prompt: list[int]
    ) -> AgentError:
        """Return the exception for an error: a repeated one may be permanent."""
        if isinstance(error, OddAnswer) and tries % engine.attempts == 0:
            return await engine.settle_error(error, prompt)
        if isinstance(error, UnsoundReply) and tries >= INTERRUPTIONS:
            return EngineError(f"{error} ({tries} times)", lost_tokens=error.lost_tokens)
        return error

    async def _choose(self, refusals: Mapping[CompletionsServer, Exception]) -> CompletionsServer:
        usable = [engine for engine in self._engines if engine not in refusals]
        while True:
            now = time.monotonic()
            well = [engine for engine in usable if engine.sick_until <= now]
            if self._own not in well and well:
                self._own = min(well, key=lambda engine: engine.in_flight)
            if self._own in well:
                assert self._own is not None  # noqa: S101 - None is no server
                return self._own
            await asyncio.sleep(min(engine.sick_until for engine in usable) - now)
