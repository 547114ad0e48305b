"""Counts the replies of a function's rollout, and reports its turns to hooks.

A function has no loop that `atropos_agent.turns.Turns` could hold: its clients talk to the gateway, and its messages
are the whole prompt, where `Turns` puts a system prompt of its own first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from atropos_agent.types import AgentError, AgentResult
from envs.functions.arguments import Turn

Started = Callable[[int], Coroutine[Any, Any, None]]
"""Called with the tokens of a prompt just before its reply is sampled."""
Ended = Callable[[Turn], Coroutine[Any, Any, None]]


class ReportingServer:
    """Wraps a rollout's inference server, and counts the replies taken in.

    decode: ids into text; None for a server without ids.
    count: of replies taken in. Replies have the numbers of the steps in the rollout's result.
    """

    def __init__(self, server: Any, decode: Callable[[Sequence[int]], str] | None = None) -> None:
        self.count = 0
        self._server = server
        self._decode = decode
        self._started: Started | None = None
        self._ended: Ended | None = None
        self._reporting: set[asyncio.Task[None]] = set()
        self._prompts: dict[int, tuple[int, float]] = {}
        """Tokens of the prompt and seconds, by the id of the reply's list, until it is taken in."""
        self._under_way, self._since, self._sampled_s = 0, 0.0, 0.0

    def set_hooks(self, started: Started, ended: Ended) -> None:
        """Set the functions that every turn calls."""
        self._started, self._ended = started, ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    @property
    def sampling_s(self) -> float:
        """Return for how many seconds replies have been waited for, those side by side counted once."""
        return self._sampled_s + (time.monotonic() - self._since if self._under_way else 0.0)

    async def tokens_and_logprobs_completion(self, **options: Any) -> Any:
        """See `APIServer`."""
        prompt, began = len(options["input_ids"]), time.monotonic()
        answer = await self._pass_on(self._server.tokens_and_logprobs_completion, prompt, options)
        for ids in answer[1]:
            self._prompts[id(ids)] = prompt, time.monotonic() - began
        return answer

    async def chat_completion(self, **options: Any) -> Any:
        """See `APIServer`."""
        return await self._pass_on(self._server.chat_completion, 0, options)

    def accept(self, ids: Sequence[int]) -> None:
        """Take note of a reply taken in by a conversation."""
        if (accept := getattr(self._server, "accept", None)) is not None:
            accept(ids)
        number, self.count = self.count, self.count + 1
        prompt, seconds = self._prompts.pop(id(ids), (0, 0.0))
        if self._ended is not None:
            text = self._decode(ids) if self._decode is not None and ids else ""
            self._reporting.add(asyncio.ensure_future(self._ended(Turn(number, prompt, tuple(ids), text, seconds))))

    async def drain(self) -> None:
        """Wait until every turn is reported to every hook. Raises their exceptions."""
        await asyncio.gather(*self._reporting)

    async def _pass_on(self, ask: Callable[..., Awaitable[Any]], prompt: int, options: Any) -> Any:
        if self._started is not None:
            try:
                await self._started(prompt)
            except Exception as error:  # of the user
                raise AgentError(f"turn_started failed: {type(error).__name__}: {error}") from error
        if not self._under_way:
            self._since = time.monotonic()
        self._under_way += 1
        try:
            return await ask(**options)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._sampled_s += time.monotonic() - self._since


class TurnRewards:
    """The values for `llm.reward`. given: by turn."""

    def __init__(self, server: ReportingServer) -> None:
        self.given: dict[int, float] = {}
        self._server = server

    def add(self, value: float, turn: int | None) -> None:
        """Add to a turn's, the last one's for None. Raises ValueError."""
        count = self._server.count
        turn = count - 1 if turn is None else turn
        if not 0 <= turn < count:
            raise ValueError(f"there is no turn {turn} to reward: the model has replied {count} times")
        self.given[turn] = self.given.get(turn, 0.0) + value

    def of(self, result: AgentResult) -> list[float]:
        """Return one value a step of the result."""
        return [self.given.get(step.index, 0.0) for step in result.steps]
