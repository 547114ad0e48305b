"""Sizes of learning run: minutes, half an hour on a laptop, minutes or a day on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envs.agents.naming import find_foreign_agent
from envs.lab.kinds import EASY
from envs.lab.synthetic import TOOLS
from envs.running.mix import OURS


@dataclass(frozen=True, slots=True)
class Preset:
    """The parts of a run.

    model: of the embedded inference server; "smoke" and "windows" are made on first use. None if the user starts a
        server.
    tasks: "smoke" and "windows", made up in the modules of that name, some held out; "practice", made up in
        `envs.lab.synthetic`, the built-in pack held out; "starter", the built-in pack itself.
    rows: of a rollout, about; a step has so many for each.
    evaluations: in all, the first before and the last after training.
    held_out: number of unseen made-up tasks, of the kinds known to every warm start, to hold out in place of the
        pack; 0 for the pack.
    environment, trainer: options of these commands, by their names there.
    agents: fields instead, if `--agent` names one that isn't ours; environment and trainer are added to those here.
    """

    model: str | None
    adapter: bool
    tasks: str
    steps: int
    group_size: int
    groups: int
    rows: int = 1
    evaluations: int = 3
    eval_samples: int = 2
    held_out: int = 0
    max_lag: int = 4
    environment: Mapping[str, object] = field(default_factory=dict)
    trainer: Mapping[str, object] = field(default_factory=dict)
    agents: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """Return the number of rows of a step."""
        return self.group_size * self.groups * self.rows

    @property
    def milestones(self) -> list[int]:
        """Return the steps with an evaluation after them, 0 first."""
        last = self.evaluations - 1
        return sorted({round(self.steps * part / last) for part in range(last + 1)})

    def for_agent(self, agent: str | None) -> Preset:
        """Return the preset for this agent: itself for our own, by its name or None.

        agent: as `--env.agent`. Raises ValueError for an unknown name.
        """
        if not agent or agent in OURS:
            return self
        fields = dict(self.agents) if (theirs := find_foreign_agent(agent) is not None) else {}
        name = str(Path(agent).resolve()) if agent.endswith(".py") else agent
        environment = {**self.environment, **fields.pop("environment", {}), "env.agent": name}
        if theirs:
            environment.pop("env.tools", None)
        trainer = {**self.trainer, **fields.pop("trainer", {})}
        return replace(self, **fields, environment=environment, trainer=trainer)


_SMALL = {
    "env.tools": ",".join(TOOLS),
    "env.max_steps": 4,
    "env.max_reply_tokens": 128,
    "env.max_token_length": 2048,
    "env.max_num_workers": 4,
    "env.max_batches_offpolicy": 1,
    # All groups are sent, so that the curve shows every rollout; the trainer skips those without signal.
    "env.ensure_scores_are_not_same": "false",
    "env.estimator": "group-mean",
}

WINDOWS_TOOLS = ("terminal",)
WINDOW = 692
"""Tokens of a whole dialogue's first two parts in `envs.lab.windows`, with room for a summary."""
FOREIGN_WINDOW = 568
"""Tokens of pi's second part there without the last page, with room for a reply (`benchmarks/small_pi.py`)."""

PRESETS = {
    "smoke": Preset(
        model="smoke",
        adapter=False,
        tasks="smoke",
        steps=7,
        group_size=8,
        groups=4,
        evaluations=2,
        eval_samples=4,
        # Rows that are two steps old make it fall apart at so large a learning rate.
        max_lag=1,
        environment={**_SMALL, "env.max_steps": 2, "env.max_reply_tokens": 48, "env.max_concurrent_rollouts": 32},
        # Steps of about the same length: the rare large gradient is noise, and would undo what was learnt.
        trainer={"sgd": "", "learning-rate": 0.5, "max-grad-norm": 0.1},
        # A program of theirs takes seconds of a processor, and a quarter of a gigabyte.
        agents={"environment": {"env.max_concurrent_rollouts": 16}},
    ),
    "windows": Preset(
        model="windows",
        adapter=False,
        tasks="windows",
        steps=6,
        group_size=8,
        groups=2,
        # One for each window.
        rows=3,
        evaluations=2,
        eval_samples=4,
        max_lag=1,
        environment={
            **_SMALL,
            "env.tools": ",".join(WINDOWS_TOOLS),
            "env.max_steps": 12,
            "env.max_reply_tokens": 48,
            "env.max_token_length": WINDOW,
            "env.max_concurrent_rollouts": 32,
            "env.compaction": "summary",
        },
        # A summary is a small part of a rollout's tokens, and its gradient a small one.
        trainer={"sgd": "", "learning-rate": 6.0, "max-grad-norm": 0.015},
        # Their summaries are rows of their own.
        agents={
            "rows": 5,
            "environment": {
                "env.max_concurrent_rollouts": 16,
                "env.compaction": "none",
                "env.max_token_length": FOREIGN_WINDOW,
                "env.max_steps": 16,
            },
        },
    ),
    "laptop": Preset(
        model="smollm2",
        adapter=True,
        tasks="practice",
        steps=24,
        group_size=8,
        groups=4,
        eval_samples=4,
        environment={**_SMALL, "env.max_concurrent_rollouts": 32, "env.eval_tags": "terminal"},
        # The gradient of 32 rollouts is mostly noise: AdamW takes that as far as the rest, larger steps lose in a few
        # what was known.
        trainer={"sgd": "", "learning-rate": 6.0, "max-grad-norm": 0.04},
        # Their openings are long (docs/agents.md), and the warm start knows few kinds of tasks: the pack has ten of
        # these. As many rollouts of forty tasks say more than four of each of the ten.
        agents={
            "steps": 10,
            "evaluations": 2,
            "eval_samples": 1,
            "held_out": 40,
            "environment": {
                "env.max_token_length": 4096,
                "env.max_steps": 8,
                "env.max_concurrent_rollouts": 16,
                "env.tags": ",".join(EASY),
            },
            "trainer": {"autocast": ""},
        },
    ),
    "gpu": Preset(
        model=None,
        adapter=True,
        tasks="starter",
        steps=200,
        group_size=8,
        groups=8,
        evaluations=5,
        eval_samples=4,
        environment={
            "env.tags": "bugfix",
            "env.eval_tags": "bugfix",
            "env.max_token_length": 16384,
            "env.max_concurrent_rollouts": 32,
            "env.max_batches_offpolicy": 1,
        },
        trainer={
            "learning-rate": 2e-5,
            "device": "cuda",
            "dtype": "bfloat16",
            "gradient-checkpointing": "",
            "part-tokens": 16384,
            "max-token-length": 16384,
        },
    ),
}
_LAPTOP = PRESETS["laptop"]
PRESETS["gpu-small"] = replace(
    _LAPTOP,
    model=None,
    # The warm start of a minute and a half knows these kinds alone.
    environment={**_LAPTOP.environment, "env.tags": ",".join(EASY)},
    held_out=40,
    steps=12,
    evaluations=2,
    trainer={**_LAPTOP.trainer, "device": "cuda"},
    agents={},
)
"""For `./run gpu`."""
