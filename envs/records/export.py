"""Groups as rows of other trainers' formats, from `groups.jsonl` or a trainer's batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.types import IGNORED


def trl_rows(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields that TRL's GRPOTrainer takes of a rollout function: `prompt_ids` up to the
    first sampled token, `completion_ids` from there on, `logprobs` of the completion, `env_mask` (1
    where sampled, 0 for what tools answered), and `reward`.

    Source: trl/trainer/grpo_trainer.py, `rollout_func`. `logprobs` are 0.0 where nothing was sampled.
    """
    for tokens, mask, logprobs, score in _rows(group):
        start = _first_sampled(mask)
        sampled = [int(label != IGNORED) for label in mask[start:]]
        yield {
            "prompt_ids": list(tokens[:start]),
            "completion_ids": list(tokens[start:]),
            "logprobs": [value if own else 0.0 for value, own in zip(logprobs[start:], sampled, strict=True)],
            "env_mask": sampled,
            "reward": float(score),
        }


def verl_rows(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields of verl's AgentLoopOutput: `prompt_ids`, `response_ids`, `response_mask`
    (1 where sampled), `response_logprobs`, `reward_score`, `num_turns`, and `uid`, which its group
    advantages go by.

    Source: verl/experimental/agent_loop/agent_loop.py. Logprobs are 0.0 where nothing was sampled.
    """
    params = group["generation_params"]
    for row, (_, mask, _, _) in zip(trl_rows(group), _rows(group), strict=True):
        turns = sum(label != IGNORED and (i == 0 or mask[i - 1] == IGNORED) for i, label in enumerate(mask))
        yield {
            "uid": str(params["group_id"]),
            "prompt_ids": row["prompt_ids"],
            "response_ids": row["completion_ids"],
            "response_mask": row["env_mask"],
            "response_logprobs": row["logprobs"],
            "reward_score": row["reward"],
            "num_turns": turns,
        }


def _rows(group: Mapping[str, Any]) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[float], float]]:
    return zip(group["tokens"], group["masks"], group["inference_logprobs"], group["scores"], strict=True)


def _first_sampled(mask: Sequence[int]) -> int:
    return next(place for place, label in enumerate(mask) if label != IGNORED)
