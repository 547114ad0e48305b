"""The bodies of vLLM's `/v1/completions`: the fields of a request and the form of an answer.

Field names, defaults and null fields follow vllm/entrypoints/openai/completion/protocol.py of
vLLM 0.33. Options that the embedded server lacks are refused, never ignored.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from atropos_agent.cpu_engine.sampling import Logprobs, SamplingParams
from atropos_agent.cpu_engine.scheduler import FinishedSequence

_COLDEST = 0.01
"""vLLM's least temperature above 0; by a far smaller one logits would become infinite."""
_LOWEST = -9999.0
"""vLLM's number for a logprob of minus infinity, which JSON can't hold."""


class BadRequest(ValueError):
    """A request that vLLM would refuse. `status` is HTTP's, `param` the field at fault."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


class CompletionRequest(BaseModel):
    """The body of a request. Unlisted fields are refused."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: list[NonNegativeInt] | list[list[NonNegativeInt]] | str | list[str]
    echo: bool | None = False
    logprobs: int | None = Field(None, ge=0, le=20)
    max_tokens: NonNegativeInt | None = 16
    n: int = Field(1, ge=1, le=128)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = Field(None, ge=0, le=20)
    add_special_tokens: bool = True
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    user: str | None = None
    request_id: str | None = None
    # Accepted with the value that means "off", as clients send them by habit.
    stream: Literal[False] | None = False
    suffix: Literal[""] | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    repetition_penalty: Literal[1] | None = None
    min_tokens: Literal[0] = 0
    spaces_between_special_tokens: bool = True  # of no effect: fast tokenizers add no such spaces

    def prompts(self, tokenizer: Any) -> list[list[int]]:
        """Return the prompts in token ids."""
        items: list[Any] = [self.prompt] if isinstance(self.prompt, str) or _is_ids(self.prompt) else list(self.prompt)
        prompts = [
            tokenizer.encode(item, add_special_tokens=self.add_special_tokens) if isinstance(item, str) else item
            for item in items
        ]
        if not prompts or not all(prompts):
            raise BadRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        return prompts

    def sampling(self) -> SamplingParams:
        """Return the sampling parameters. Raises BadRequest for combinations without sense."""
        temperature = 1.0 if self.temperature is None else self.temperature
        temperature = max(temperature, _COLDEST) if temperature else 0.0
        max_tokens = 16 if self.max_tokens is None else self.max_tokens
        if max_tokens == 0 and not self.echo:
            raise BadRequest("max_tokens must be at least 1, got 0.", param="max_tokens")
        if temperature == 0 and self.n > 1:
            raise BadRequest(f"n must be 1 when using greedy sampling, got {self.n}.", param="n")
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not all(stop):
            raise BadRequest("stop cannot contain an empty string.", param="stop")
        scored = self.logprobs if self.prompt_logprobs is None and self.echo else self.prompt_logprobs
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            stop=stop,
            stop_token_ids=self.stop_token_ids or [],
            ignore_eos=self.ignore_eos,
            include_stop_str_in_output=self.include_stop_str_in_output,
            skip_special_tokens=self.skip_special_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=scored,
            seed=self.seed,
        )


def _is_ids(prompt: Sequence[Any]) -> bool:
    return not prompt or isinstance(prompt[0], int)


def check_length(prompt: Sequence[int], max_tokens: int, vocab_size: int, max_model_len: int) -> None:
    """Raise BadRequest when a prompt does not fit the context window or holds unknown ids."""
    if len(prompt) + max_tokens > max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {max_tokens} "
            f"output tokens and your prompt contains {len(prompt)} input tokens, for a total of "
            f"{len(prompt) + max_tokens} tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens.",
            param="input_tokens",
        )
    if (highest := max(prompt)) >= vocab_size:
        raise BadRequest(f"Token id {highest} is out of vocabulary", param="prompt")


def completion_body(
    request: CompletionRequest,
    model: str,
    prompts: Sequence[Sequence[int]],
    results: Sequence[FinishedSequence],
    tokenizer: Any,
) -> dict[str, Any]:
    """Return the answer's body. `results` holds `request.n` completions for each prompt, in order."""
    choices = []
    for index, result in enumerate(results):
        choices.append(_choice(request, index, prompts[index // request.n], result, tokenizer))
    read = sum(map(len, prompts))
    sampled = sum(len(result.token_ids) for result in results)
    return {
        "id": f"cmpl-{request.request_id or uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {
            "prompt_tokens": read,
            "total_tokens": read + sampled,
            "completion_tokens": sampled,
            "prompt_tokens_details": {"cached_tokens": sum(r.cached_tokens for r in results[:: request.n])},
        },
        "kv_transfer_params": None,
    }


def error_body(message: str, status: int, param: str | None = None) -> dict[str, Any]:
    """Return an error in vLLM's shape."""
    kinds = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
    kind = kinds.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def _choice(
    request: CompletionRequest, index: int, prompt: Sequence[int], result: FinishedSequence, tokenizer: Any
) -> dict[str, Any]:
    text, places = result.text, [*result.logprobs]
    shown: list[Logprobs | None] = list(places)
    ids = list(result.token_ids)
    if request.echo:
        # vLLM leaves the prompt's text out when ids were requested.
        text = ("" if request.return_token_ids else tokenizer.decode(prompt)) + text
        shown = [*(result.prompt_logprobs or []), *places]
        ids = [*prompt, *ids]
    return {
        "index": index,
        "text": text,
        "logprobs": None if request.logprobs is None else _logprobs(request, ids, shown, tokenizer),
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "token_ids": list(result.token_ids) if request.return_token_ids else None,
        "prompt_logprobs": None
        if result.prompt_logprobs is None
        else _prompt_logprobs(result.prompt_logprobs, tokenizer),
        "prompt_token_ids": list(prompt) if request.return_token_ids else None,
        "weight_version": result.weight_version,
    }


def _logprobs(
    request: CompletionRequest, ids: Sequence[int], places: Sequence[Logprobs | None], tokenizer: Any
) -> dict[str, Any]:
    def name(token: int) -> str:
        return f"token_id:{token}" if request.return_tokens_as_token_ids else str(tokenizer.decode([token]))

    tokens = [name(token) for token in ids]
    offsets, offset = [], 0
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "text_offset": offsets,
        "token_logprobs": [None if place is None else max(place.logprob, _LOWEST) for place in places],
        "tokens": tokens,
        "top_logprobs": [
            None
            if place is None
            else {name(token): max(logprob, _LOWEST) for token, logprob in [(place.token, place.logprob), *place.top]}
            for place in places
        ],
    }


def _prompt_logprobs(places: Sequence[Logprobs | None], tokenizer: Any) -> list[dict[str, Any] | None]:
    def entry(token: int, logprob: float, rank: int) -> dict[str, Any]:
        return {"logprob": max(logprob, _LOWEST), "rank": rank, "decoded_token": tokenizer.decode([token])}

    return [
        None
        if place is None
        else {str(token): entry(token, logprob, rank) for rank, (token, logprob) in enumerate(place.top, 1)}
        | {str(place.token): entry(place.token, place.logprob, place.rank)}
        for place in places
    ]
