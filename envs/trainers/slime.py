"""Be slime's generate function: its router samples, its samples name our tasks, a rollout's rows are samples again.

    --custom-generate-function-path envs.trainers.slime.generate
    --custom-reward-post-process-path envs.trainers.slime.group_rewards
    --custom-config-path atropos.yaml

That file has `atropos_environment: envs.swe.environment:SWEEnv` and `atropos_options: [--env.tasks=tasks]`; a sample's
`metadata` has the task's id as `task`. Made for slime 0.3.1 at 624b824a.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from atropos_agent.engines.protocols import server_for
from envs.delivery.exports import verl_rows
from envs.options import EngineConfig
from envs.trainers.clients import Clients, Made
from envs.trainers.named import task_of
from envs.types import InfraError

logger = logging.getLogger(__name__)

_CLIENTS = Clients("slime", lambda _: server_for)
_OURS = {"skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens"}
"""Sampling settings that change nothing about token ids."""


async def generate(args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False) -> list[Any]:
    """Return a rollout's rows, always as a list: slime does not flatten groups of both. A rollout that an
    infrastructure failure has ended is a sample without training (`remove_sample`). Raises ValueError for settings of
    slime's that lists of samples, or rollouts in sandboxes, can't follow."""
    refuse(args, sampling_params)
    task = task_of(sample.metadata.get("task"), 'metadata["task"]')
    names = {"max_new_tokens": "max_tokens"}
    sampling = {names.get(name, name): value for name, value in sampling_params.items() if name not in _OURS}
    address = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    try:
        made = await _CLIENTS.rollout(
            args,
            args.atropos_environment,
            args.atropos_options,
            task,
            sampling,
            training=not evaluation,
            max_tokens=getattr(args, "rollout_max_context_len", None),
            tokenizer=args.hf_checkpoint,
            engine=EngineConfig(base_url=address, server_type="sglang", model_name="slime"),
        )
    except InfraError as error:
        logger.error("task %s: %s; the rollout is not trained on", task, error)
        made = (), False
    return make_samples(sample, made)


def refuse(args: Any, sampling_params: Mapping[str, Any]) -> None:
    """Raise ValueError naming a setting that would end slime with an error of its own, at the end of a step."""
    filtered = getattr(args, "dynamic_sampling_filter_path", None) or ""
    if filtered.startswith("slime."):
        raise ValueError(
            f"--dynamic-sampling-filter-path {filtered}: slime's filters take one sample a rollout, and a rollout here "
            "is a list of them; give a filter of yours, or leave it out"
        )
    if getattr(args, "partial_rollout", False):
        raise ValueError("leave out --partial-rollout: a rollout that slime has aborted can't go on in its sandbox")
    if "custom_params" in sampling_params:
        raise ValueError("leave out --rollout-top-p: slime would train with the tokens it kept, which no row here has")


def make_samples(sample: Any, made: Made) -> list[Any]:
    """Return a rollout's rows as samples of one `rollout_id`, by which slime's loss counts the rollout once."""
    rows, cut = made
    found = []
    for row in verl_rows(rows):
        one = copy.deepcopy(sample)
        one.tokens = row["prompt_ids"] + row["response_ids"]
        one.response_length, one.loss_mask = len(row["response_ids"]), row["response_mask"]
        one.rollout_log_probs, one.reward = row["response_logprobs"], row["reward_score"]
        versions = row["extra_fields"]["policy_versions"]
        one.weight_versions = [str(version) for version in dict.fromkeys(versions) if version is not None]
        one.status = type(sample).Status.TRUNCATED if cut else type(sample).Status.COMPLETED
        found.append(one)
    if not found:  # slime wants a token of each sample
        one = copy.deepcopy(sample)
        one.tokens, one.response_length, one.loss_mask, one.rollout_log_probs = [0, 0], 1, [0], [0.0]
        one.reward, one.remove_sample, one.status = 0.0, True, type(sample).Status.COMPLETED
        found.append(one)
    for one in found:
        one.rollout_id = sample.index if sample.rollout_id is None else sample.rollout_id
    return found


def group_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the rewards, and those less the mean of their group over rollouts, by the group's standard deviation if
    slime is to do so: slime's own takes each sample for a rollout, and the whole batch for a group if some have
    several. Rollouts without training are no part of it."""
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    groups: dict[Any, dict[Any, float]] = {}
    for sample, value in zip(samples, raw, strict=True):
        if not sample.remove_sample:
            groups.setdefault(sample.group_index, {})[sample.rollout_id] = value
    by_std = args.advantage_estimator in {"grpo", "gspo", "cispo"} and args.grpo_std_normalization
    worth = []
    for sample, value in zip(samples, raw, strict=True):
        others = [] if sample.remove_sample else list(groups[sample.group_index].values())
        centered = value - fmean(others) if others else 0.0
        worth.append(centered / (stdev(others) + 1e-6) if by_std and len(others) > 1 else centered)
    return raw, worth
