"""Tasks of several steps: each is given and judged by itself, in the sandbox as the step before left it.

As in Harbor: a step's files are put into the working directory and its `setup.sh` is run; the agent begins a new
conversation; the step's tests judge the present state, in a fresh sandbox. A step with a reward below the next
one's minimum is the last. The reward is the mean of the begun steps, or the last one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from atropos_agent.harvest import metadata_of
from atropos_agent.types import AgentResult, Counts
from envs.judging.archives import pack_directory
from envs.judging.begin import examine
from envs.types import SIGN, VERIFIER_TIMED_OUT, Step, Task, Verdict
from sandboxes.base import Sandbox

_SETUP_S = 600.0
_SHOWN = 2000


def parts(task: Task) -> list[Task]:
    """Return the task of each step; the task itself if it has none."""
    return [
        replace(task, instruction=step.instruction, hidden=step.hidden, timeout_s=step.timeout_s, steps=())
        for step in task.steps
    ] or [task]


def combined(task: Task, verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a task from those on its begun steps. Raises ValueError when there is none."""
    if not verdicts:
        raise ValueError(f"no step of task {task.id} was begun")
    if not task.steps:
        return verdicts[0]
    named = [(step.name, verdict) for step, verdict in zip(task.steps, verdicts, strict=False)]
    rewards = [verdict.reward for verdict in verdicts]
    metrics = {f"reward/{name}": verdict.reward for name, verdict in named}
    for verdict in verdicts:
        for metric, value in verdict.metrics.items():
            if metric.startswith((SIGN, VERIFIER_TIMED_OUT)):
                metrics[metric] = 1.0
            elif metric == "verifier_s":
                metrics[metric] = metrics.get(metric, 0.0) + value
            elif not metric.startswith("reward/"):
                metrics[metric] = max(value, metrics.get(metric, value))
    return Verdict(
        rewards[-1] if task.last_counts else sum(rewards) / len(rewards),
        "\n".join(f"Step {name}: {verdict.explanation}" for name, verdict in named),
        {f"{name}/{test}": status for name, verdict in named for test, status in verdict.tests.items()},
        metrics,
        evidence=[{"step": name, **call} for name, verdict in named for call in verdict.evidence],
        seen={sign: f"step {name}: {what}" for name, verdict in named for sign, what in verdict.seen.items()},
        output="\n".join(f"# Step {name}\n{verdict.output}" for name, verdict in named if verdict.output),
        patch="\n".join(f"# Step {name}\n{verdict.patch}" for name, verdict in named if verdict.patch),
    )


def joined(results: Sequence[AgentResult]) -> AgentResult:
    """Return the results of the steps as one: their conversations one after the other, each in rows of its own.

    Raises ValueError when there is none."""
    if not results:
        raise ValueError("there is no result to join")
    if len(results) == 1:
        return results[0]
    turns, rows, steps, segments, counts = 0, 0, [], [], Counts()
    for result in results:
        steps += [replace(one, index=one.index + turns, segment=one.segment + rows) for one in result.steps]
        segments += [replace(one, segment=one.segment + rows) for one in result.segments]
        turns = len(steps)
        rows = 1 + max([rows, *(one.segment for one in steps), *(one.segment for one in segments)])
        counts += result.counts
    last = results[-1]
    return replace(
        last,
        steps=tuple(steps),
        segments=tuple(segments),
        messages=tuple(message for result in results for message in result.messages),
        record=tuple(exchange for result in results for exchange in result.record),
        metadata=metadata_of(results, steps),
        counts=counts,
        drift=next((result.drift for result in results if result.drift), None),
    )


async def set_up(sandbox: Sandbox, step: Step) -> str | None:
    """Make the start of a step. Returns why it can't begin, None normally. Raises SandboxError."""
    problem = None
    if step.files is not None:
        await sandbox.upload(await asyncio.to_thread(pack_directory, step.files), sandbox.workdir)
        if (step.files / "setup.sh").is_file():
            ran = await sandbox.exec(["bash", f"{sandbox.workdir.rstrip('/')}/setup.sh"], timeout=_SETUP_S)
            problem = None if ran.ok else f"its setup.sh ended with {ran.exit_code}: {ran.output[-_SHOWN:]}"
    if problem is None and step.health is not None:
        problem = await examine(sandbox, step.health)
    return None if problem is None else f"Step {step.name} could not begin: {problem}"


def good_enough(step: Step, verdict: Verdict) -> bool:
    """Tell whether the next step may begin after this one."""
    for name, least in step.least.items():
        reward = verdict.reward if name == "reward" else verdict.metrics.get(f"reward/{name}", float("-inf"))
        if reward < least:
            return False
    return True
