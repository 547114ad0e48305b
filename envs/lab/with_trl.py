"""Train by TRL's AsyncGRPOTrainer, in the place of `envs.lab.trainer` and of its environment.

python -m envs.lab.with_trl --model FOLDER --engine http://localhost:9004 --env.tasks=… --openai.base_url=…

The environment runs in a thread of this process (`envs.trainers.trl_async`). After each step a checkpoint is saved in
--out; started again with the same --out and --env.run_dir, no group is lost or trained on twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import set_peft_model_state_dict
from transformers import AutoTokenizer
from transformers.trainer_callback import TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from envs.base import AgentEnv
from envs.cli.starting import open_env
from envs.lab.networks import lora
from envs.options.command import Options
from envs.options.reading import read_options
from envs.records.disk import append_line
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.trainers.transfer import LoadedWeights
from envs.trainers.trl_async import Worker
from envs.trainers.trl_grpo import given_reward
from sandboxes.arguments import Parser, existing_path, nonnegative_int, output_folder, positive_float, positive_int, url
from sandboxes.log import TIMED, set_up_log

logger = logging.getLogger("trainer")

FIGURES = {
    "ratio": "ratio",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "clip_fraction": "clip_ratio/region_mean",
    "lag": "sample/staleness_mean",
    "dropped_stale": "sample/dropped_stale_total",
}
"""TRL's logged figures, by our names."""


class Report(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Writes a line a step to `steps.jsonl`, as `envs.lab.trainer` does."""

    def __init__(self, worker: Worker, path: Path) -> None:
        self._worker, self._path = worker, path
        self._began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write the step just taken; the summary at the end is none."""
        if not logs or "ratio" not in logs:
            return
        groups: dict[str, dict[str, float]] = {}
        for row in self._worker.last_step:
            groups.setdefault(row.group, {})[row.rollout] = row.reward
        rewards = [reward for group in groups.values() for reward in group.values()]
        line = {
            "step": state.global_step,
            "time": time.time(),
            "rollout_ids": [rollout for group in groups.values() for rollout in group],
            "reward": statistics.fmean(rewards),
            "group_rewards": [statistics.fmean(group.values()) for group in groups.values()],
            "groups_with_signal": sum(len(set(group.values())) > 1 for group in groups.values()),
            **{name: logs[theirs] for name, theirs in FIGURES.items() if logs.get(theirs) is not None},
            "seconds": {"step": time.monotonic() - self._began},
        }
        self._began = time.monotonic()
        append_line(self._path, json.dumps(line).encode())
        logger.info("step %d: reward %.3f, ratio %s", line["step"], line["reward"], line.get("ratio"))


def make_args(options: argparse.Namespace, temperature: float) -> AsyncGRPOConfig:
    """Return the settings of TRL's trainer."""
    return AsyncGRPOConfig(
        output_dir=str(options.out),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        token_budget=0,
        learning_rate=options.learning_rate,
        optim="sgd" if options.sgd else "adamw_torch",
        weight_decay=0.0,
        max_grad_norm=options.max_grad_norm,
        epsilon=0.2,
        epsilon_high=0.28,
        max_staleness=options.max_lag,
        temperature=temperature,
        use_cpu=options.device == "cpu",
        bf16=options.autocast,
        dataloader_pin_memory=options.device != "cpu",
        save_steps=1,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        seed=options.seed,
    )


def make_trainer(options: argparse.Namespace, args: AsyncGRPOConfig, worker: Worker) -> AsyncGRPOTrainer:
    """Return TRL's trainer with its worker. It merges an adapter into the weights that it sends."""
    settings, factors = lora(options.adapter, options.rank) if options.lora else (None, {})
    trainer = AsyncGRPOTrainer(
        model=str(options.model),
        args=args,
        reward_funcs=given_reward,
        train_dataset=Dataset.from_list([{"prompt": "the worker draws the tasks"}]),
        processing_class=AutoTokenizer.from_pretrained(options.model),
        peft_config=settings,
        callbacks=[worker, Report(worker, options.out / "steps.jsonl")],
        rollout_worker=worker,
        weight_transfer=LoadedWeights(options.engine, options.out, options.model, worker.version),
    )
    if factors:
        set_peft_model_state_dict(trainer.model, factors)
    return trainer


def check_device(options: argparse.Namespace) -> None:
    """Raise SystemExit with the remedy if TRL can't start."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "TRL's AsyncGRPOTrainer needs a GPU, and PyTorch finds none here; in a clone, "
            "`python tests/envs/trainers/trl_on_cpu.py learn` runs it on this CPU"
        )


def train(options: argparse.Namespace, env_options: Options, env_cls: type[AgentEnv[Any]] = SWEEnv) -> None:
    """Take `--steps` steps, those of the last checkpoint included."""

    async def make_env() -> AgentEnv[Any]:
        return await open_env(env_cls, "serve", env_options)

    args = make_args(options, env_options.env.temperature)
    groups = max(1, options.max_lag) * -(-options.batch_size // env_options.env.group_size)
    worker = Worker(make_env, args, groups=groups)
    if worker.version >= options.steps:  # transformers would take one more
        logger.info("the checkpoint has %d steps already", worker.version)
        return
    make_trainer(options, args, worker).train(resume_from_checkpoint=worker.checkpoint)


def parse(argv: Sequence[str] | None = None, config_cls: type[SWEEnvConfig] = SWEEnvConfig) -> tuple[Any, Options]:
    """Return the trainer's options, and those of the environment and its inference servers."""
    parser = Parser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--model", type=existing_path, required=True, help="folder of the model that the inference server started with")
    add("--lora", action="store_true", help="train an adapter, not all weights")
    add("--adapter", type=existing_path, help="adapter to begin with (PEFT's folder or one file)")
    add("--rank", type=positive_int, default=16, help="of a new adapter")
    add("--engine", type=url, default="http://localhost:9004", help="where the embedded inference server answers")
    add("--out", type=output_folder, default=Path("checkpoints"), help="checkpoints and steps.jsonl")
    add("--steps", type=nonnegative_int, default=20, help="in all, those of earlier starts included")
    add("--batch-size", type=positive_int, default=32, help="rows of a batch")
    add("--max-lag", type=nonnegative_int, default=4, help="steps by which a row may be older")
    add("--sgd", action="store_true", help="plain SGD instead of AdamW")
    add("--learning-rate", type=positive_float, default=3e-4, help="constant")
    add("--max-grad-norm", type=positive_float, default=1.0, help=" ")
    add("--device", choices=["cuda", "cpu"], default="cuda", help="on cpu TRL 1.16 starts only if it is patched")
    add("--autocast", action="store_true", help="multiply 16-bit numbers")
    add("--gradient-checkpointing", action="store_true", help="in any case: a step's rows are computed at once")
    add("--seed", type=int, default=0)
    options, rest = parser.parse_known_args(argv)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return options, read_options(config_cls, rest)


def main(argv: Sequence[str] | None = None) -> None:
    set_up_log(form=TIMED)
    options, env_options = parse(argv)
    check_device(options)
    train(options, env_options)


if __name__ == "__main__":
    main()
