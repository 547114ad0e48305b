"""The steps of a Harbor task: several instructions, one after the other, in one container, each with its own tests.

| `steps/NAME/`, `[[steps]]` | becomes |
|---|---|
| `instruction.md` | `Step.instruction`: each begins a conversation of its own, as with Harbor's agents |
| `workdir/`, with `setup.sh` | `Step.files` |
| `tests/`, over the task's own `tests/` | `Hidden.tests`, `Hidden.shared_tests` |
| `solution/solve.sh`, else the task's own | `Hidden.solution` |
| `[agent]`, `[verifier]`, `artifacts` | as of the task, whose own hold where a step says nothing |
| `min_reward` | `Step.least` |
| `healthcheck` | `Step.health` |
| `[agent] user, network_mode, allowed_hosts` | of the task, whose steps share a sandbox: refused if the steps differ |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from envs.tasks.harbor_source import Source, hidden
from envs.tasks.task_toml import Agent, Config
from envs.types import Hidden, Step


def shared_agent(config: Config, network: bool) -> Agent:
    """Return [agent] with the user and the network that it has in all steps: they share a sandbox. network: without
    any settings. Raises ValueError if the steps differ."""
    agent, steps = config.agent, config.steps or []
    baseline = agent.reach(config.environment.reach((network, ())))
    for field, found in (
        ("user", {step.agent.user or agent.user for step in steps}),
        ("network_mode", {step.agent.reach(baseline) for step in steps}),
    ):
        if len(found) > 1:
            raise ValueError(
                f"[steps.agent] {field}: the steps of a task share a sandbox here, so it must be the same for all of "
                "them; make it so, or skip this task"
            )
    first = next((step.agent for step in steps), agent)
    given: dict[str, Any] = {"user": first.user or agent.user}
    if first.network_mode is not None:
        given |= {"network_mode": first.network_mode, "allowed_hosts": first.allowed_hosts}
    return agent.model_copy(update=given)


def read_steps(source: Source) -> tuple[Step, ...]:
    """Return the steps of a task; none for a task with a single instruction. Raises BadTask."""
    config, steps = source.config, []
    for table in config.steps or []:
        place = f"steps/{table.name}"
        levels = [
            (config.verifier, source.folder("tests")),
            (table.verifier, source.folder("steps", table.name, "tests")),
        ]
        judged = hidden(source, levels, [*config.artifacts, *table.artifacts], f"{place}/")
        solution = source.solution("steps", table.name, "solution") or source.solution("solution")
        least = table.min_reward
        steps.append(
            Step(
                table.name,
                source.instruction(f"{place}/instruction.md"),
                replace(judged, solution=solution),
                files=source.folder("steps", table.name, "workdir"),
                timeout_s=table.agent.timeout_sec or config.agent.timeout_sec,
                health=table.healthcheck.settled() if table.healthcheck is not None else None,
                least=least if isinstance(least, dict) else {} if least is None else {"reward": least},
            )
        )
    return tuple(steps)


def combine_hidden(steps: Sequence[Step]) -> Hidden:
    """Return the stand-in for all steps together: the last one's tests, the time of all."""
    return replace(steps[-1].hidden, timeout_s=sum(step.hidden.timeout_s for step in steps))
