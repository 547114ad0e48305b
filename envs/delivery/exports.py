"""Rows in the forms of other trainers. `docs/trainers.md` has a section for each.

Every form names rollout, group, task and segment of a row, its reward, its share of the rollout, the policy version of
each token with their least and greatest, and the advantage in the form for that trainer's loss. Logprobs are 0.0 for
tokens not sampled.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from atropos_agent.types import IGNORED
from envs.delivery.rows import Row, ScorableRollout, ScoredGroup
from envs.delivery.teaching import teacher_fields
from envs.delivery.worth import Loss, Turn
from envs.records.atif import opening_messages
from envs.types import Verdict


class JudgedRollout(ScorableRollout, Protocol):
    """A rollout, made now or saved, with its verdict."""

    @property
    def verdict(self) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Export:
    """A group to be written in another form: its rows, and its rollouts by their ids."""

    scored: ScoredGroup
    rollouts: Mapping[str, JudgedRollout]


def trl_samples(group: Export) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields of TRL's `RolloutSample`, for AsyncGRPOTrainer: a row once for each advantage
    of its tokens, with those tokens alone in its mask. `model_version` is the oldest; TRL drops rows by it.

    Source: trl/experimental/async_grpo/async_rollout_worker.py (1.16.0). Its loss is a mean over the batch's tokens.
    """
    for whole in group.scored.rows:
        for row in whole.apart():
            result = group.rollouts[row.rollout_id].result
            messages, start = result.to_messages(), len(opening_messages(result))
            yield {
                "prompt": messages[:start],
                "completion": messages[start:],
                "input_ids": list(row.tokens),
                "completion_mask": row.sampled,
                "old_log_probs": _logprobs(row),
                "advantage": row.advantage,
                "model_version": _oldest_version(whole),
                "group_id": row.origin.number,
                "metrics": {"reward": row.score},
                **_names(whole, group="group"),
                "share": row.share,
            }


def trl_rows(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields for a rollout function of TRL's GRPOTrainer: `prompt_ids` up to the first
    sampled token, `completion_ids` from there on, `logprobs` of the completion, `env_mask` (1 if sampled, 0 for tools'
    results), and `reward`. The trainer makes its own advantages of the rewards.

    Source: trl/trainer/grpo_trainer.py, `rollout_func` (1.16.0). Raises ValueError for a rollout of several rows, since
    the trainer takes one a prompt, and for one with turns' own advantages.
    """
    for name, count in Counter(row.rollout_id for row in rows).items():
        if count > 1:
            raise ValueError(
                f"rollout {name} has {count} rows, and GRPOTrainer's rollout_func takes one a prompt; train it with "
                "AsyncGRPOTrainer, which takes all of them (trl_samples)"
            )
    refuse_own_advantages(rows, "GRPOTrainer")
    for row in rows:
        start = row.sampled.index(1)
        yield {
            "prompt_ids": list(row.tokens[:start]),
            "completion_ids": list(row.tokens[start:]),
            "logprobs": _logprobs(row)[start:],
            "env_mask": row.sampled[start:],
            "reward": float(row.score),
            **_names(row),
        }


def refuse_own_advantages(rows: Sequence[Row], trainer: str) -> None:
    """Raise ValueError for rows whose turns or tokens have advantages of their own, for a trainer without a place for
    them."""
    for row in rows:
        if row.is_taught:
            raise ValueError(f"--env.teacher_weight gives each token its own advantage, and {trainer} takes none")
        if any(turn.advantage for turn in row.turns):
            raise ValueError(
                f"turns of rollout {row.rollout_id} have advantages of their own, and {trainer} makes one of the "
                "reward; give none in the reward function, or train with AsyncGRPOTrainer, tinker or Atropos' API: "
                "they take them"
            )


def verl_rows(rows: Sequence[Row], prompt_length: int = sys.maxsize) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields of verl's `AgentLoopOutput` and, in `extra_fields`, the other facts of a row. The
    prompt ends at the first sampled token, or after `prompt_length` tokens.
    `uid` names the group. verl makes its own advantages by it and counts a rollout of several rows several
    times; `extra_fields["advantages"]`, per token of the response, count it once.

    Source: verl/experimental/agent_loop/agent_loop.py (0.9.1). Its `token-mean` loss is a mean over the batch's
    tokens.
    """
    for row in rows:
        start = min(row.sampled.index(1), prompt_length)
        names = _names(row)
        yield {
            "uid": names["group_id"],
            "prompt_ids": list(row.tokens[:start]),
            "response_ids": list(row.tokens[start:]),
            "response_mask": row.sampled[start:],
            "response_logprobs": _logprobs(row)[start:],
            "reward_score": float(row.score),
            "num_turns": len(row.turns),
            "metrics": {"generate_sequences": 0.0, "tool_calls": 0.0},
            "extra_fields": {
                **names,
                "policy_versions": names["policy_versions"][start:],
                "advantages": row.advantages(Loss.TOKENS)[start:],
                "min_global_steps": names["min_policy_version"],
                "max_global_steps": names["max_policy_version"],
                **_verl_teacher(row),
            },
        }


def _verl_teacher(row: Row) -> dict[str, Any]:
    """Return a teacher's scores as verl has them: over the whole row, each place for the token after it, the last one
    zero; so are places of tokens not sampled. Source: verl/workers/rollout/vllm_rollout/utils.py (0.9.1)."""
    if row.teacher is None:
        return {}
    fields = teacher_fields([(row.masks, row.teacher)])
    width = len(row.teacher.ids[0]) if row.teacher.ids else 1
    ids, logprobs = ([one or [0] * width for one in [*found[0][1:], ()]] for found in fields.values())
    return {"teacher_ids": ids, "teacher_logprobs": [[float(value) for value in place] for place in logprobs]}


def tinker_rows(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield rows with the fields of tinker's `Datum`, shifted as in its own data: position n holds token n and the
    targets for token n + 1. The row's names are beside it.

    Source: tinker/types (0.38.0). Its losses, such as importance_sampling and ppo, are sums over tokens.
    """
    for row in rows:
        values: dict[str, tuple[str, Sequence[float]]] = {
            "target_tokens": ("int64", row.tokens),
            "logprobs": ("float32", _logprobs(row)),
            "advantages": ("float32", row.advantages(Loss.TOKENS)),
            "mask": ("float32", [float(value) for value in row.sampled]),
        }
        yield {
            "model_input": {"chunks": [{"type": "encoded_text", "tokens": list(row.tokens[:-1])}]},
            "loss_fn_inputs": {
                name: {"data": list(data[1:]), "dtype": dtype, "shape": [len(data) - 1]}
                for name, (dtype, data) in values.items()
            },
            **_names(row),
        }


def verifiers_episodes(group: Export) -> Iterator[dict[str, Any]]:
    """Yield an episode of one trace a rollout, as lines of verifiers' `traces.jsonl`: each row is a path of nodes from
    a root of its own to a leaf, given and sampled stretches in turn. A node's logprobs and advantages are of
    its sampled tokens alone.

    Source: verifiers/v1/graph.py, trace.py, utils/trace_store.py (0.4.0). prime-rl's loss is a mean over tokens.
    """
    for name, mine in _by_rollout(group.scored.rows).items():
        rollout = group.rollouts[name]
        task = {"type": "Task", "data": {"id": mine[0].origin.task_id, "prompt": None}}
        nodes: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for row in mine:
            _add_nodes(row, rollout, nodes, calls)
        trace = {
            "version": 1,
            "id": name,
            "task": task,
            "agent": {"config": {"model": rollout.result.conditions.model or None}},
            "nodes": nodes,
            "calls": calls,
            "rewards": {"reward": {"score": mine[0].score}},
            "metrics": {"verdict": rollout.verdict.reward, "tool_calls": rollout.result.counts.tool_calls},
            "info": {"rollout_id": name, "rows": [_names(row) for row in mine]},
            "is_completed": True,
            "ok": True,
            "stop_condition": rollout.result.stop_reason.value if rollout.result.stop_reason else "agent_completed",
        }
        yield {"id": name, "env": {"id": "atropos-agent"}, "task": task, "traces": [trace], "ok": True}


def sft_rows(group: Export) -> Iterator[dict[str, Any]]:
    """Yield the rows of solved rollouts for supervised training, already in tokens: `input_ids`, and `labels`
    (-100 for tokens not sampled). TRL's SFTTrainer takes both as they are.

    Source: trl/trainer/sft_trainer.py (1.16.0)."""
    for row in group.scored.rows:
        if group.rollouts[row.rollout_id].verdict.solved:
            yield {
                "input_ids": list(row.tokens),
                "labels": list(row.masks),
                "advantages": row.advantages(Loss.TOKENS),
                **_names(row),
            }


def preference_pairs(group: Export) -> Iterator[dict[str, Any]]:
    """Yield pairs of rollouts of one task with different rewards, as chat messages: the best with the worst, the second
    best with the second worst, each rollout once. TRL's DPOTrainer renders and encodes them itself, so these are
    not the exact tokens.

    Source: trl/trainer/dpo_trainer.py (1.16.0), conversational preferences with an explicit prompt."""
    ranked = sorted(_by_rollout(group.scored.rows).values(), key=lambda rows: -rows[0].score)
    for best, worst in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
        if best[0].score <= worst[0].score:
            return
        results = [group.rollouts[rows[0].rollout_id].result for rows in (best, worst)]
        pair, start = [result.to_messages() for result in results], len(opening_messages(results[0]))
        if pair[1][:start] != pair[0][:start]:
            continue  # they were not asked the same
        yield {
            "prompt": pair[0][:start],
            "chosen": pair[0][start:],
            "rejected": pair[1][start:],
            "group_id": best[0].origin.group_id,
            "task_id": best[0].origin.task_id,
            **_side("chosen", best),
            **_side("rejected", worst),
        }


def _by_rollout(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.rollout_id, []).append(row)
    return found


def _side(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    versions = _known_versions(version for row in rows for version in row.versions)
    return {
        f"{name}_rollout_id": rows[0].rollout_id,
        f"{name}_segments": [row.segment for row in rows],
        f"{name}_reward": rows[0].score,
        f"{name}_advantage": rows[0].advantage,
        f"{name}_min_policy_version": min(versions, default=None),
        f"{name}_max_policy_version": max(versions, default=None),
    }


def _names(row: Row, *, group: str = "group_id") -> dict[str, Any]:
    """Return the fields of a row common to every form. group: the key for the name of its group."""
    versions = row.versions
    known = _known_versions(versions)
    return {
        "rollout_id": row.rollout_id,
        group: row.origin.group_id,
        "task_id": row.origin.task_id,
        "segment": row.segment,
        "branch": row.branch,
        "score": float(row.score),
        "rollout_advantage": float(row.advantage),
        "share": row.share,
        "policy_versions": versions,
        **({"routed_experts": row.experts} if row.experts is not None else {}),
        "min_policy_version": min(known, default=None),
        "max_policy_version": max(known, default=None),
    }


def _known_versions(versions: Iterable[int | None]) -> list[int]:
    return [version for version in versions if version is not None]


def _oldest_version(row: Row) -> int:
    """Return the oldest policy version of a row; without a known one, the trainer's step at its beginning."""
    return min(_known_versions(row.versions), default=row.step or 0)


def _logprobs(row: Row) -> list[float]:
    return [0.0 if mask == IGNORED else float(value) for value, mask in zip(row.logprobs, row.masks, strict=True)]


def _add_nodes(row: Row, rollout: ScorableRollout, nodes: list[dict[str, Any]], calls: list[dict[str, Any]]) -> None:
    """Add a row as a path of nodes, and a call for each reply in it."""
    steps = {step.index: step for step in rollout.result.steps}
    advantages, logprobs, sampled = row.advantages(Loss.TOKENS), _logprobs(row), row.sampled
    theirs = iter(row.teacher.logprobs if row.teacher is not None else ())
    parent = None
    for start, end, turn in _stretches(row):
        own = bool(sampled[start])
        step = steps.get(turn.number) if turn is not None else None
        reply = step.response if step is not None else ""
        nodes.append(
            {
                "parent": parent,
                "message": {"role": "assistant", "content": reply} if own else {"role": "user", "content": ""},
                "sampled": own,
                "token_ids": list(row.tokens[start:end]),
                "mask": [own] * (end - start),
                "logprobs": logprobs[start:end] if own else [],
                "advantages": advantages[start:end] if own else None,
                "reference_logprobs": list(islice(theirs, end - start)) if own and row.teacher is not None else None,
            }
        )
        parent = len(nodes) - 1
        if own:
            finish = "length" if step is not None and step.finish_reason == "length" else "stop"
            usage = {"prompt_tokens": start, "completion_tokens": end - start}
            calls.append({"node": parent, "finish_reason": finish, "usage": usage})


def _stretches(row: Row) -> Iterator[tuple[int, int, Turn | None]]:
    """Yield the sampled and other stretches of a row, as (start, end, its reply)."""
    turns = {turn.start: turn for turn in row.turns}
    sampled, start = row.sampled, 0
    for place in range(1, len(sampled) + 1):
        if place == len(sampled) or sampled[place] != sampled[start] or (sampled[place] and place in turns):
            yield start, place, turns.get(start)
            start = place


ROWS: Mapping[str, Callable[[Export], Iterator[dict[str, Any]]]] = {
    "trl": trl_samples,
    "verl": lambda group: verl_rows(group.scored.rows),
    "verifiers": verifiers_episodes,
    "tinker": lambda group: tinker_rows(group.scored.rows),
    "sft": sft_rows,
    "preferences": preference_pairs,
}
"""The forms by name."""

MESSAGES_ALONE = ("preferences",)
"""Forms without need of token ids."""

WITHOUT_RATIOS = ("sft", *MESSAGES_ALONE)
"""Forms without importance ratios in their trainers: any way of sampling replies is fine."""
