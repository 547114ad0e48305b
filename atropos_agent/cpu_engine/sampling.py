"""The choice of a token from logits, and its reported logprob."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class LogprobsMode(enum.StrEnum):
    """The distribution of reported logprobs; the names are vLLM's."""

    RAW = "raw_logprobs"
    """The model's own, before temperature and the cuts by top_k, top_p and min_p: vLLM's default."""
    PROCESSED = "processed_logprobs"
    """The sampled one, after temperature and these cuts: a policy gradient needs it."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters of a request. Names and defaults are those of vLLM's `/v1/completions`.

    temperature: 0 takes the likeliest token.
    logprobs: how many of the likeliest tokens to report beside the sampled one; None reports none.
    prompt_logprobs: the same for every token of the prompt but the first.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Logprobs at one place: of the token there and of the likeliest, best first.

    rank: of the token, 1 for the likeliest.
    """

    token: int
    logprob: float
    rank: int
    top: Sequence[tuple[int, float]] = ()


def sample(
    logits: Tensor, params: Sequence[SamplingParams], generators: Sequence[torch.Generator], mode: LogprobsMode
) -> list[Logprobs]:
    """Sample one token for each row of `logits`, shape (rows, vocab_size).

    A row's choice depends on its own logits, parameters and generator alone.
    """
    temperatures = torch.tensor([p.temperature or 1.0 for p in params])
    scaled = logits / temperatures[:, None]
    for row, p in enumerate(params):
        if p.temperature and (p.top_p < 1.0 or p.top_k > 0 or p.min_p > 0):
            scaled[row] = _truncate(scaled[row], p)
    processed = torch.log_softmax(scaled, dim=-1)
    reported = processed if mode is LogprobsMode.PROCESSED else torch.log_softmax(logits, dim=-1)
    tokens = [
        _draw(processed[row], generator) if p.temperature else int(logits[row].argmax())
        for row, (p, generator) in enumerate(zip(params, generators, strict=True))
    ]
    return [
        describe(reported[row], token, p.logprobs) for row, (token, p) in enumerate(zip(tokens, params, strict=True))
    ]


def describe(logprobs: Tensor, token: int, top: int | None) -> Logprobs:
    """Return the logprob of a token and the `top` likeliest ones, from a row of shape (vocab_size,)."""
    likeliest: list[tuple[int, float]] = []
    if top:
        values, ids = logprobs.topk(min(top, logprobs.shape[-1]))
        likeliest = list(zip(ids.tolist(), values.tolist(), strict=True))
    rank = 1 + int((logprobs > logprobs[token]).sum())
    # Rounding can lift the logprob of a certain token above 0 by 1e-7.
    return Logprobs(token, min(float(logprobs[token]), 0.0), rank, likeliest)


def _draw(logprobs: Tensor, generator: torch.Generator) -> int:
    cumulative = logprobs.double().exp().cumsum(0)
    place = torch.rand((), dtype=torch.float64, generator=generator) * cumulative[-1]
    found = int(torch.searchsorted(cumulative, place, right=True))
    return min(found, len(logprobs) - 1)


def _truncate(logits: Tensor, params: SamplingParams) -> Tensor:
    """Return the logits of the smallest set of likeliest tokens that holds `top_p` of the mass, has at most `top_k`
    members, and none less than `min_p` times as likely as the likeliest; -inf elsewhere."""
    values, ids = logits.sort(descending=True)
    mass = torch.softmax(values, dim=-1)
    mass_before = mass.cumsum(0).roll(1)
    mass_before[0] = 0.0
    keep = (mass_before < params.top_p) & (mass >= params.min_p * mass[0])
    if params.top_k > 0:
        keep &= torch.arange(len(values)) < params.top_k
    return torch.full_like(logits, float("-inf")).scatter(0, ids[keep], values[keep])
