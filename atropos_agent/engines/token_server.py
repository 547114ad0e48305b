"""The common part of all of our servers: they work by token ids alone."""

from __future__ import annotations

from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServer


class TokenServer(APIServer):  # type: ignore[misc]  # atroposlib is untyped
    """An `APIServer` with one way in, `tokens_and_logprobs_completion`, which a subclass defines.

    Chat and text completions are abstract in atroposlib, so they must be there; they refuse.
    """

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Do nothing: a request finds out by itself."""

    async def _chat_completion_wrapper(self, **kwargs: Any) -> Any:
        # For good: a text that the server encodes for itself makes no row that can be trusted.
        raise NotImplementedError("our servers work by token ids; see tokens_and_logprobs_completion")

    _completion_wrapper = _chat_completion_wrapper

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> Any:
        return await self.tokens_and_logprobs_completion(**kwargs)


def note_request(server: APIServer, split: str, seconds: float, tries: int = 1) -> None:
    """Keep atroposlib's statistics of a request, which it never bounds."""
    kept = (server.request_timings, server.attempts_list)
    kept = kept if split == "train" else (server.eval_request_timings, server.eval_attempts_list)
    for values, value in zip(kept, (seconds, tries), strict=True):
        values.append(value)
        del values[: -server.config.rolling_buffer_length]
