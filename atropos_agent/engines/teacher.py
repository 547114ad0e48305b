"""A teacher: another model on an inference server of its own, which scores the tokens that ours has sampled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.errors import NotThisServer
from atropos_agent.engines.tokenizers import TEXT, compare_tokenizers
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, AgentResult, EngineError, SequenceData, TeacherScores

PATIENCE_S = 1800.0
"""Seconds in which a teacher that does not answer gets more requests, as long as an inference server is waited for."""
FIRST_S = 120.0
"""Seconds for its first answer: a long row takes its time on a busy server."""
_ANSWER_S = 1200
"""Longest wait for one answer, in seconds."""
_MOST_ID = 2**31
"""No vocabulary has as many tokens."""
_NAMES = (
    *(("--openai.model_name", "--env.teacher_model"), ("--openai.base_url", "--env.teacher")),
    *(("--openai.api_key", "--env.teacher_key"), (", or --openai.server_type to what it speaks", "")),
)


class TeacherServer(CompletionsServer):
    """The teacher's inference server, with vLLM's `/v1/completions` and `prompt_logprobs`."""

    question_s = PATIENCE_S
    first_s = FIRST_S

    @property
    def label(self) -> str:
        return f"the teacher at {self.url}"

    async def connect(self) -> None:
        try:
            await super().connect()
        except EngineError as error:
            message = str(error)
            for theirs, ours in _NAMES:
                message = message.replace(theirs, ours)
            raise type(error)(message) from error


class Teacher:
    """Scores the rows of rollouts. Use it as `async with`.

    top: so many of its likeliest tokens are kept for each place."""

    def __init__(self, url: str, model: str, key: str = "", *, top: int = 0) -> None:
        config = APIServerConfig(
            base_url=url, model_name=model, api_key=key, server_type="vllm", timeout=_ANSWER_S, health_check=False
        )
        self.server = TeacherServer(config)
        self._top = top

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    async def check(self, template: ChatTemplate, longest: int) -> None:
        """Find out whether the server can score rows of a model with this tokenizer.

        longest: tokens of a row. Raises NotThisServer and ModelNotServed with the remedy; EngineError if it does not
        answer."""
        server = self.server
        await server.connect()
        named = f"{server.label} ({server.config.model_name})"
        if (window := server.max_model_len) is not None and window <= longest:
            raise NotThisServer(
                f"{named} has a context window of {window} tokens, too small for rows of {longest}; start it with "
                f"--max-model-len {longest + 1}, or lower --env.max_token_length"
            )
        for text in (TEXT, _conversation(template)):
            if (difference := await compare_tokenizers(server, template.tokenizer, text)) is not None:
                raise NotThisServer(
                    f"{named} has another tokenizer, so it can't score our ids: {difference.text}; set --env.teacher "
                    "to a server whose model has the tokenizer of the one that is trained"
                )
        ids = [int(i) for i in template.tokenizer.encode(TEXT, add_special_tokens=False)]
        await server.scores(ids, self._top)

    async def score(self, result: AgentResult) -> AgentResult:
        """Return a result with the teacher's scores in its rows. Raises AgentError for an infrastructure failure."""
        return replace(result, segments=tuple(await asyncio.gather(*map(self._score_row, result.segments))))

    async def _score_row(self, row: SequenceData) -> SequenceData:
        sampled = [place for place, mask in enumerate(row.masked_tokens) if mask != IGNORED]
        if not sampled:
            return row
        ids = [int(i) for i in row.tokens[: sampled[-1] + 1]]
        async with self.server.sem:
            places = await self.server.scores(ids, self._top)
        kept = [places[place - 1] for place in sampled]
        logprobs = [found[row.tokens[place]] for place, found in zip(sampled, kept, strict=True)]
        if not all(-math.inf < value <= 0 for value in logprobs):
            raise EngineError(f"{self.server.label} returned logprobs that are positive or not finite")
        best = [sorted(_possible(found), key=found.__getitem__, reverse=True)[: self._top] for found in kept]
        if any(len(found) < self._top for found in best):
            raise EngineError(f"{self.server.label} did not return its {self._top} likeliest tokens everywhere")
        likeliest = best, [[found[i] for i in chosen] for found, chosen in zip(kept, best, strict=True)]
        return replace(row, teacher=TeacherScores(logprobs, *(likeliest if self._top else ())))


def _possible(found: Mapping[int, float]) -> list[int]:
    """Return the ids that a row can hold, of those with a logprob that is one."""
    return [i for i, value in found.items() if 0 <= i < _MOST_ID and -math.inf < value <= 0]


def _conversation(template: ChatTemplate) -> str:
    """Return a conversation as the template writes it: models of one vocabulary may differ in their control tokens."""
    messages: Sequence[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
    return template.render(list(messages)) + "".join(template.tokenizer.decode([i]) for i in sorted(template.stop_ids))
