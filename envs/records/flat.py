"""Flatten saved rollouts to rows: of the rollout, of its turns, of its tokens. Values without a fixed form are JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envs.records.plain import plain
from envs.records.read import SavedRollout
from envs.types import RESOURCES


def rollout_row(saved: SavedRollout) -> dict[str, Any]:
    """Return a rollout as a row of the table `rollouts`."""
    result, verdict, sampling = saved.result, saved.verdict, saved.result.conditions.sampling
    versions = [row.policy_version for row in result.segments if row.policy_version is not None]
    return {
        "id": saved.id,
        "task": saved.task_id,
        "tags": list(saved.tags),
        "group": saved.seat.group,
        "member": saved.seat.member,
        "step": saved.seat.step,
        "evaluating": saved.seat.evaluating,
        "model": result.conditions.model or None,
        "temperature": sampling.get("temperature"),
        "top_p": sampling.get("top_p"),
        "reward": saved.reward.value,
        "verdict": verdict.reward,
        "solved": verdict.solved,
        "stop_reason": result.stop_reason and result.stop_reason.value,
        "error": result.error,
        "turns": len(result.steps),
        "tokens": sum(len(row.tokens) for row in result.segments),
        "sampled_tokens": result.sampled_tokens,
        "policy_version": min(versions, default=None),
        "tool_calls": result.counts.tool_calls,
        "malformed_calls": result.counts.malformed_calls,
        "tool_errors": result.counts.tool_errors,
        "refused_tokens": result.counts.refused_tokens,
        "seconds": saved.timings_s.get("total"),
        "engine_s": sum(step.engine_s for step in result.steps),
        "tools_s": sum(step.tools_s for step in result.steps),
        "signs": list(verdict.signs),
        "final_response": result.final_response,
        "explanation": verdict.explanation,
        "output": verdict.output,
        "patch": verdict.patch,
        "messages": _json(result.messages),
        "tests": _json({name: status.value for name, status in verdict.tests.items()}),
        "metrics": _json(verdict.metrics),
        "timings_s": _json(saved.timings_s),
        "tools": _json(result.conditions.tools),
        "sampling": _json(sampling),
        "resources": _json(result.metadata.get(RESOURCES, {})),
    }


def turn_rows(saved: SavedRollout) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table `turns` of a rollout."""
    for step in saved.result.steps:
        yield {
            "rollout": saved.id,
            "task": saved.task_id,
            "turn": step.index,
            "response": step.response,
            "thinking": step.thinking,
            "content": step.content,
            "finish_reason": step.finish_reason,
            "correction": step.correction,
            "calls": _json([{"name": call.name, "arguments": call.arguments} for call in step.calls]),
            "results": _json([{"content": item.content, "is_error": item.is_error} for item in step.results]),
            "segment": step.segment,
            "start": step.start,
            "prompt_tokens": step.prompt_tokens,
            "completion_tokens": step.completion_tokens,
            "engine_s": step.engine_s,
            "tools_s": step.tools_s,
            "policy_version": step.policy_version,
        }


def token_rows(saved: SavedRollout) -> Iterator[dict[str, Any]]:
    """Yield a rollout's rows for the table `rows`: the trained tokens, with -100 and 1.0 elsewhere."""
    for row in saved.result.segments:
        yield {
            "rollout": saved.id,
            "task": saved.task_id,
            "segment": row.segment,
            "turns": row.turns,
            "policy_version": row.policy_version,
            "reward": saved.reward.value,
            "tokens": list(row.tokens),
            "masked_tokens": list(row.masked_tokens),
            "logprobs": list(row.logprobs),
            "text": row.full_text,
        }


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False)
