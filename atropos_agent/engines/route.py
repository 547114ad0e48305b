"""A rollout's way to the inference servers: one of them, the same while it is well, else another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from atropos_agent.engines.completions import Answer, CompletionsServer, EngineDown
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.types import EngineError, TokenMismatch


class Route(TokenServer):
    """The way of a rollout's requests: to the inference server that served the last one, whose cache holds the
    prefix. While that one fails, the same ids go to the least busy of those that are well; while
    none is, they wait.

    patience_s: how long a request waits, in all, for an inference server that answers.
    """

    def __init__(self, engines: Sequence[CompletionsServer], *, patience_s: float = 1800.0) -> None:
        super().__init__(engines[0].config)
        self.initialized = True
        self._lost_s = 0.0
        self._failing_since: float | None = None
        self._engines = engines
        self._own: CompletionsServer | None = None
        self._patience_s = patience_s

    @property
    def outage_s(self) -> float:
        """Return the seconds that requests have spent on inference servers that failed, and in waiting for one that
        does not, until now."""
        return self._lost_s + (0.0 if self._failing_since is None else time.monotonic() - self._failing_since)

    @property
    def max_model_len(self) -> int | None:
        """Return the smallest context window, in tokens; None when no inference server tells."""
        return min((e.max_model_len for e in self._engines if e.max_model_len is not None), default=None)

    async def alive(self) -> bool:
        """Tell whether anything answers where the last request went."""
        return self._own is not None and await self._own.alive()

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Answer:
        """Sample as `CompletionsServer` does. Raises ContextOverflow, TokenMismatch, EngineError."""
        began = time.monotonic()
        refusals: dict[CompletionsServer, Exception] = {}
        try:
            while True:
                engine = await self._choose(refusals)
                started = time.monotonic()
                try:
                    answer = await engine.once(**kwargs)
                    if answer[0] != kwargs["input_ids"]:
                        raise TokenMismatch(f"{engine.label} was given another prompt than was sent")
                except EngineDown as error:
                    self._failing_since = began
                    engine.mark(error)
                    if time.monotonic() - began > self._patience_s:
                        waited = f"no inference server has answered for {self._patience_s:.0f} s"
                        raise EngineError(f"{waited}: {error}") from error
                except (EngineError, TokenMismatch) as error:
                    # The request may be at fault, or this inference server alone: the others decide.
                    refusals[engine] = error
                    if len(refusals) == len(self._engines):
                        raise
                    engine.mark(error)
                else:
                    engine.mark(None)
                    if self._failing_since is not None:
                        self._lost_s, self._failing_since = self._lost_s + started - began, None
                    return answer
        finally:
            self._lost_s, self._failing_since = self.outage_s, None

    async def _choose(self, refusals: dict[CompletionsServer, Exception]) -> CompletionsServer:
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
