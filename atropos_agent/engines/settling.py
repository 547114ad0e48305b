"""Find out the meaning of a repeated odd answer from the server's other answers."""

from __future__ import annotations

from typing import Protocol

from atropos_agent.engines.errors import ContextOverflow, OddAnswer
from atropos_agent.types import AgentError, EngineError


class ProbedServer(Protocol):
    """The needed part of a server.

    max_model_len: its context window in tokens; None until it is known."""

    max_model_len: int | None

    @property
    def label(self) -> str:
        """Return how messages call it."""
        ...

    async def can_sample(self, prompt: list[int]) -> bool:
        """Tell whether the server samples a token after this prompt."""
        ...


async def settle_error(server: ProbedServer, error: OddAnswer, prompt: list[int]) -> AgentError:
    """Return ContextOverflow if the prompt's length alone is the reason of an odd answer, EngineError if this
    request or this server is refused for good, else the error itself: the server is broken, which may pass.

    A newly found context window is noted in `server.max_model_len`."""
    if not error.broken:
        return EngineError(f"{error} (each time)")
    filler = prompt[:1]
    if not await server.can_sample(filler) or await server.can_sample(prompt):
        return error
    if server.max_model_len is None and not await server.can_sample(filler * len(prompt)):
        fits, fails = 1, len(prompt)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if await server.can_sample(filler * middle) else (fits, middle)
        if not await server.can_sample(filler * fits):
            return error  # it has broken meanwhile
        # With the requested token.
        server.max_model_len = fits + 1
        return ContextOverflow(f"{server.label} takes prompts of up to {fits} tokens, not of {len(prompt)}: {error}")
    return EngineError(f"{error} (each time, while it answers other requests)")
