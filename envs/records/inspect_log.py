"""Write an evaluation as a log for Inspect's viewer (`inspect view`), in the JSON form of its `EvalLog`, version 2.

Source: inspect_ai/log/_log.py. Messages are shown as they stood, with calls as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from atropos_agent.types import StopReason
from envs.records.plain import plain, plain_text
from envs.records.read import SavedRollout
from envs.records.stats import EvalSummary

_SCORER = "verifier"
_ROLES = ("system", "user", "assistant", "tool")
_LIMITS = {StopReason.TIME: "time", StopReason.MAX_TOKENS: "token"}


def inspect_log(
    summary: EvalSummary, samples: Mapping[tuple[str, int], str], rollouts: Iterable[SavedRollout]
) -> dict[str, Any]:
    """Return the log. samples: the rollouts' ids by task and number; others of the same directory are left out."""
    about = summary.about
    model = ", ".join(about.get("models") or ["unknown"])
    places = {rollout: place for place, rollout in samples.items()}
    found = [_sample(rollout, *places[rollout.id], model) for rollout in rollouts if rollout.id in places]
    found.sort(key=lambda sample: (sample["id"], sample["epoch"]))
    now = datetime.now(UTC).isoformat()
    counts = about.get("samples") or {}
    metrics = {name.removeprefix("eval/"): value for name, value in summary.metrics().items()}
    scored = {
        "name": _SCORER,
        "scorer": _SCORER,
        "params": {},
        "metrics": {name: {"name": name, "value": value} for name, value in metrics.items()},
    }
    names = [task.task_id for task in summary.tasks]
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "created": now,
            "run_id": uuid4().hex,
            "task": str(about.get("environment", "agent")),
            "dataset": {"name": str(about.get("environment")), "samples": len(names), "sample_ids": names},
            "model": model,
            "model_args": {},
            "config": {"epochs": counts.get("samples_each", 1) * max(1, len(summary.agents))},
            "task_args": plain(about.get("options") or {}),
            "metadata": plain(about.get("sampling") or {}),
        },
        # The viewer asks for it, also where there is no plan.
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": summary.wanted or len(names),
            "completed_samples": len(found),
            "scores": [scored],
        },
        "stats": {"started_at": now, "completed_at": now, "model_usage": {}},
        "samples": found,
    }


def log_name(log: Mapping[str, Any]) -> str:
    """Return the name of a log's file in the viewer's form: time, task, id."""
    about = log["eval"]
    when = datetime.fromisoformat(about["created"]).strftime("%Y-%m-%dT%H-%M-%S+00-00")
    task = re.sub(r"[^A-Za-z0-9-]", "-", about["task"])
    return f"{when}_{task}_{about['run_id']}.json"


def _sample(rollout: SavedRollout, task: str, number: int, model: str) -> dict[str, Any]:
    result, verdict = rollout.result, rollout.verdict
    messages = [_message(message) for message in result.messages]
    last = next((one for one in reversed(messages) if one["role"] == "assistant"), None)
    stop = "max_tokens" if result.stop_reason is StopReason.MAX_TOKENS else "stop"
    sample: dict[str, Any] = {
        "id": task,
        "epoch": number + 1,
        "input": next((one["content"] for one in messages if one["role"] == "user"), ""),
        "target": "",
        "messages": messages,
        "output": {
            "model": model,
            "choices": [{"message": last or {"role": "assistant", "content": ""}, "stop_reason": stop}],
        },
        "scores": {
            _SCORER: {
                "value": verdict.reward,
                "answer": plain_text(result.final_response),
                "explanation": plain_text(verdict.explanation),
                "metadata": plain({"tests": dict(verdict.tests), **verdict.metrics}),
            }
        },
        "metadata": {
            **{"rollout": rollout.id, "stop_reason": result.stop_reason, "tokens": result.sampled_tokens},
            **({"agent": rollout.seat.agent} if rollout.seat.agent else {}),
        },
        "total_time": rollout.timings_s.get("total"),
    }
    if result.stop_reason in _LIMITS:
        sample["limit"] = {"type": _LIMITS[result.stop_reason], "limit": 0}
    return sample


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    content = message.get("content")
    return {
        "role": role if role in _ROLES else "user",
        "content": plain_text(content if isinstance(content, str) else str(content or "")),
    }
