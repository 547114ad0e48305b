"""A server with prepared replies, for tests, examples and trying out tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.token_server import TokenServer
from atropos_agent.tokens.template import ChatTemplate

Replies = Iterable[str] | Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One prompt and the reply to it, in token ids."""

    prompt: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]


class ScriptedServer(TokenServer):
    """Answers with the given replies, in order, each followed by the end-of-turn token.

    replies: texts, or a function of the prompt's ids. When texts run out, LookupError.
    Every turn is kept in `turns`. Logprobs are made up, the same for the same place.
    """

    def __init__(self, replies: Replies, tokenizer: Any, *, sample_stop: bool = True) -> None:
        super().__init__(APIServerConfig(model_name="scripted", base_url="", server_type="vllm"))
        self.initialized = True
        self.tokenizer = tokenizer
        self.turns: list[ScriptedTurn] = []
        self._template = ChatTemplate(tokenizer)
        self._texts: Iterator[str] | None = None if callable(replies) else iter(replies)
        self._function = replies if callable(replies) else None
        self._sample_stop = sample_stop

    async def tokens_and_logprobs_completion(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        prompt = list(kwargs["input_ids"])
        ids = self._template.encode(self._next(prompt), continues=True)
        reason = "stop"
        if self._sample_stop:
            close = self._template.close_id
            ids = [*ids, self.tokenizer.eos_token_id if close is None else close]
        if len(ids) > kwargs["max_tokens"]:
            ids, reason = ids[: kwargs["max_tokens"]], "length"
        logprobs = [-(1 + i % 7) / 8 for i in range(len(prompt), len(prompt) + len(ids))]
        self.turns.append(ScriptedTurn(prompt, ids, logprobs))
        return prompt, [ids], [logprobs], [reason]

    def _next(self, prompt: Sequence[int]) -> str:
        if self._function is not None:
            return self._function(prompt)
        try:
            return next(self._texts)  # type: ignore[arg-type]  # one of the two is set
        except StopIteration:
            raise LookupError("the scripted server has no reply left") from None
