"""Evaluations: every held-out task attempted several times by each agent, and the number of solved ones.

Each sample is on disk when it is made, so an interrupted evaluation continues from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from envs.config import AgentEnvConfig
from envs.records.comparison import differences
from envs.records.disk import append_line, json_lines, replace_file, retry_until_space
from envs.records.stats import EvalSummary, summarise
from envs.resources import Resource, versions_of
from envs.running.environment import Environment
from envs.running.mix import Mix
from envs.running.rollouts import Rollouts
from envs.running.run import cancel
from envs.types import InfraError, Seat, Task
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

_SAMPLING = (
    *("eval_temperature", "top_p", "top_k", "min_p", "eval_top_p", "eval_top_k", "eval_min_p"),
    *("max_steps", "max_token_length", "max_reply_tokens", "rollout_timeout_s"),
    *("system_prompt", "chat_template_kwargs", "tool_format", "tool_role", "fold_system", "agent"),
)
"""Options of every environment that decide how its model is sampled in an evaluation."""
_REASONS = 3
"""How many reasons of missing samples a message gives."""
_USED_UP = "the tokens of --env.eval_tokens are used up; a later start in the same directory goes on"


class _UsedUpError(Exception):
    """The evaluation has used its tokens up."""


class EvaluationMismatchError(ValueError):
    """The directory holds the beginning of another evaluation; the message names the differences."""


def evaluation_conditions(env: Environment) -> dict[str, Any]:
    """Return the conditions of an evaluation: environment, models, sampling, and the environment's own options."""
    options = env.config.model_dump(mode="json")
    own = {name: value for name, value in options.items() if name not in AgentEnvConfig.model_fields}
    about = {
        "environment": env.name,
        "models": sorted({str(server.config.model_name) for server in env.servers}),
        "sampling": {name: options[name] for name in _SAMPLING},
        "options": own,
    }
    kept: dict[str, Any] = env.redactor.value(about)
    return kept


async def evaluate(
    rollouts: Rollouts,
    tasks: Sequence[Task],
    config: AgentEnvConfig,
    run_dir: Path,
    *,
    step: int = 0,
    anew: bool = False,
    about: Mapping[str, Any] | None = None,
    resources: Mapping[str, Resource] | None = None,
    on_sample: Callable[..., None] = lambda done, note, total: None,
    usage: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
) -> EvalSummary:
    """Attempt every task `eval_samples` times, with each agent, and write the summary to `eval-<step>.json`.

    The run's directory must be locked (`lock_directory`). Samples of an earlier start are taken over. Rollouts with an
    infrastructure failure are left out and counted. When those of this start have used `eval_tokens` up, the others are
    left out, too. step: the trainer's. anew: samples that are there are of other weights, and not taken over. about:
    the conditions, see `evaluation_conditions`. resources: for all samples; None for those of the environment's start.
    on_sample: gets the number of samples so far, the last one's task, and their `total`. usage: of hosted models, until
    now. Raises EvaluationMismatchError, and NothingWorks when no rollout can succeed.
    """
    about = {**(about or {}), "step": step}
    if resources:
        about["resources"] = versions_of(resources)
    path = run_dir / f"eval-{step}.samples.jsonl"
    if anew and path.exists():
        logger.warning("%s: the trainer comes to this step again, so its samples are made again", path)
        await retry_until_space(path, partial(path.unlink, missing_ok=True), home=run_dir)
    samples = await Samples.open(path, about)
    planned = _plan_samples(tasks, config)
    if changed := samples.drop_changed(planned):
        logger.warning("%s changed since the earlier start: their samples are made again", plural(changed, "task"))
    on_sample(len(samples.rewards), "", total=len(planned))
    left = [one for one in planned if (one.task.id, one.number) not in samples.rewards]
    if len(left) < len(planned):
        done = len(planned) - len(left)
        logger.info("%d of %d samples are there from an earlier start; %d to make", done, len(planned), len(left))

    lost: Counter[str] = Counter()
    used = 0

    async def make(one: _PlannedSample) -> None:
        nonlocal used
        try:
            seat = Seat(member=one.number, step=step, evaluating=True, agent=one.agent, resources=resources)
            rollout, _ = await rollouts.make(one.task, seat)
        except InfraError as error:  # counted where it failed; the next start tries again
            lost[str(error)] += 1
            return
        await samples.add(one, rollout.verdict.reward, rollout.id)
        on_sample(len(samples.rewards), one.task.id, total=len(planned))
        used += sum(step.prompt_tokens + step.completion_tokens for step in rollout.result.steps)
        if 0 < config.eval_tokens <= used:
            raise _UsedUpError

    making = {asyncio.create_task(make(one)) for one in left}
    try:
        if making:
            await asyncio.wait(making, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await cancel(making)
    for ended in making:
        if not ended.cancelled():
            with suppress(_UsedUpError):
                ended.result()
    if 0 < config.eval_tokens <= used:
        lost += Counter({_USED_UP: sum(one.cancelled() for one in making)})  # a count of 0 is left out
    summary = replace(_summary(samples, planned, config, about), lost=lost, usage=usage())
    path = run_dir / f"eval-{step}.json"
    data = orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2)
    await retry_until_space(path, lambda: replace_file(path, data), home=run_dir)
    return summary


def describe_losses(summary: EvalSummary, most: float) -> str | None:
    """Return why an evaluation must not be believed, in the words of its failures; None if it may.

    most: share of its samples that infrastructure failures may cost."""
    planned, missing = summary.wanted, int(summary.about["samples"]["missing"])
    if not planned:
        return "there is no task to evaluate on, so no sample was made"
    made = planned - missing
    refused = missing > most * planned
    if made and not refused and _USED_UP not in summary.lost:
        return None
    reasons = "; ".join(
        f"{reason} ({count} times)" if count > 1 else reason
        for reason, count in sorted(summary.lost.items(), key=lambda item: -item[1])[:_REASONS]
    )
    shortfall = "no sample was made" if not made else f"missing: {missing} of {plural(planned, 'sample')}"
    allowed = f", more than the share of {most:g} that --env.eval_lost allows" if made and refused else ""
    return f"{shortfall}{allowed}: {reasons or 'they were cancelled'}"


@dataclass(frozen=True, slots=True)
class _PlannedSample:
    """A sample to make. number: among its task's. agent: its name in a run of several; "" in others."""

    task: Task
    number: int
    agent: str


def _plan_samples(tasks: Sequence[Task], config: AgentEnvConfig) -> list[_PlannedSample]:
    """Return the samples to make. More of them change no sample's number."""
    mix = Mix.of(config.agent)
    return [
        _PlannedSample(task, number * len(mix.names) + place, agent)
        for number in range(config.eval_samples)
        for task in tasks
        for place, agent in enumerate(mix.of_task(task))
    ]


def _summary(
    samples: Samples, planned: Sequence[_PlannedSample], config: AgentEnvConfig, about: Mapping[str, Any]
) -> EvalSummary:
    """Return the outcome of an evaluation, in the order of its tasks and samples."""
    rewards: dict[str, dict[str, list[float]]] = {"": {}}  # by agent, those of all by ""
    for one in planned:
        for agent in {"", one.agent}:
            of_task = rewards.setdefault(agent, {}).setdefault(one.task.id, [])
            if (one.task.id, one.number) in samples.rewards:
                of_task.append(samples.rewards[one.task.id, one.number])
    made = sum(map(len, rewards[""].values()))
    counts = {"tasks": len(rewards[""]), "samples_each": config.eval_samples, "made": made}
    conditions = {**about, "samples": {**counts, "missing": len(planned) - made}}
    names = [name for name in Mix.of(config.agent).names if name in rewards]
    digests = {one.task.id: one.task.digest for one in planned}
    agents = {name: summarise(rewards[name], config.eval_ks, digests=digests) for name in names}
    return replace(summarise(rewards[""], config.eval_ks, about=conditions, digests=digests), agents=agents)


@dataclass(slots=True)
class Samples:
    """The samples of an evaluation, each written when it is made. rewards: by task and number; rollouts: their ids;
    digests: of the tasks, if known."""

    path: Path
    rewards: dict[tuple[str, int], float] = field(default_factory=dict)
    rollouts: dict[tuple[str, int], str] = field(default_factory=dict)
    digests: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    async def open(cls, path: Path, about: Mapping[str, Any]) -> Samples:
        """Read the samples on disk. A torn line costs itself alone. Raises EvaluationMismatchError."""
        samples = cls(path)
        lines = await asyncio.to_thread(json_lines, path)
        first = next((place for place, line in enumerate(lines) if "about" in line), None)
        if first is None:
            header = orjson.dumps({"about": about})
            if lines:  # they can't be told from another evaluation's
                logger.warning(
                    "%s has lost its first line, which names the conditions of its %s: these are made again",
                    path,
                    plural(len(lines), "sample"),
                )
            await retry_until_space(path, lambda: append_line(path, header), home=path.parent)
            return samples
        differing = differences(lines[first]["about"], orjson.loads(orjson.dumps(about)))
        if named := "; ".join(f"{place}: {there!r} there, {here!r} here" for place, there, here in differing):
            raise EvaluationMismatchError(
                f"{path} holds another evaluation ({named}); give another --env.run_dir, or the options of that one"
            )
        for line in lines[first:]:
            if "reward" in line:
                samples._take(line)
        return samples

    async def add(self, one: _PlannedSample, reward: float, rollout: str) -> None:
        """Write one down."""
        line = {"task": one.task.id, "sample": one.number, "reward": reward, "rollout": rollout}
        line |= {"agent": one.agent} if one.agent else {}
        line |= {"digest": one.task.digest} if one.task.digest else {}
        data = orjson.dumps(line)
        await retry_until_space(self.path, lambda: append_line(self.path, data), home=self.path.parent)
        self._take(line)

    def drop_changed(self, planned: Sequence[_PlannedSample]) -> int:
        """Drop the samples of tasks that are no longer the same. Returns the number of these tasks."""
        changed = set()
        for one in planned:
            key = one.task.id, one.number
            if self.digests.get(key, "") not in ("", one.task.digest):
                changed.add(one.task.id)
                del self.rewards[key], self.rollouts[key], self.digests[key]
        return len(changed)

    def _take(self, line: Mapping[str, Any]) -> None:
        key = line["task"], line["sample"]
        self.rewards[key] = float(line["reward"])
        self.rollouts[key] = str(line["rollout"])
        self.digests[key] = str(line.get("digest", ""))
