"""TRL's AsyncGRPOTrainer on an environment that adds numbers, in processes that are killed one after another.

python sums_with_trl.py ENGINE_URL FOLDER TOKENIZER BUDGET KILLS

What takes long to import is imported once; each life is a fork. A checkpoint holds, beside what is ours, every row that
its weights were trained on, as the trainer's own collator saw them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from forks import begin, end_of
from sums import Sums
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.trainer_callback import ExportableState, TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl_on_cpu import patch

from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from envs.trainers.checkpoints import STATE
from envs.trainers.trl_async import Worker
from envs.trainers.trl_grpo import given_reward
from envs.types import Task

SAVE_STEPS, ACCUMULATED = 2, 2
ENDLESS = 10_000
"""Steps of a life that is killed: how many it takes depends on how busy the machine is."""


class ManySums(Sums):
    @classmethod
    def load_tasks(cls, config: Any) -> Any:
        tasks = [Task(f"sum-{n}", f"What is {n} + {n}?") for n in range(100)]
        return tasks, tasks[:1]


class Unsent:
    """The scripted engine has no weights."""

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Any) -> None:
        for _ in iterator:
            pass


class History(TrainerCallback, ExportableState):
    """The rows that the weights were trained on, by the batches of the trainer's collator."""

    def __init__(self, checkpoint: str | None) -> None:
        self.rows: list[Any] = []
        self.packed: deque[Any] = deque()
        if checkpoint:
            state = json.loads((Path(checkpoint) / STATE).read_bytes())
            self.rows = state["stateful_callbacks"]["History"]["attributes"]["rows"]
        collate = async_grpo_trainer.DataCollatorForRollout.torch_call

        def noted(collator: Any, examples: list[Any]) -> Any:
            rows = [example["metrics"] for row in examples[0] for example in row.samples]
            self.packed.append([list(one.handed[:2]) for one in rows])
            return collate(collator, examples)

        async_grpo_trainer.DataCollatorForRollout.torch_call = noted

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        for _batch in range(args.gradient_accumulation_steps):
            self.rows += self.packed.popleft()

    def state(self) -> Any:
        return {"args": {}, "attributes": {"rows": self.rows}}


def train(engine: str, folder: Path, tokenizer: str, budget: int, steps: int) -> None:
    async def make_env() -> Any:
        told = {"group_size": 2, "tokenizer_name": tokenizer, "run_dir": folder / "run", "equal_rewards": "send"}
        return ManySums(AgentEnvConfig(**told), [EngineConfig(base_url=engine, model_name="scripted")])

    args = AsyncGRPOConfig(
        output_dir=str(folder / "out"),
        max_steps=steps,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=ACCUMULATED,
        token_budget=budget,
        max_staleness=10_000,
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
    )
    worker = Worker(make_env, args, groups=6)
    trainer = AsyncGRPOTrainer(
        model=str(folder / "model"),
        args=args,
        reward_funcs=given_reward,
        train_dataset=Dataset.from_list([{"prompt": "unused"}]),
        processing_class=AutoTokenizer.from_pretrained(tokenizer),
        callbacks=[worker, History(worker.checkpoint)],
        rollout_worker=worker,
        weight_transfer=Unsent(),
    )
    trainer.train(resume_from_checkpoint=worker.checkpoint)


def live(work: Callable[[], None], out: Path, wanted: int | None, pause: float) -> int:
    """Fork a process that does `work`, and kill it some time after it saved so many checkpoints, if that is not None.
    Return how it ended."""
    before = newest(out)
    child = begin(work)
    began = time.monotonic()
    while wanted is not None and newest(out) < before + wanted * SAVE_STEPS:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break  # it failed
        time.sleep(0.02)
    if wanted is not None:
        # As long as a checkpoint took, or less: anywhere between two of them.
        time.sleep(pause * (time.monotonic() - began) / max(1, wanted))
        os.kill(child, signal.SIGKILL)
    return end_of(child)


def newest(out: Path) -> int:
    return max((int(path.name.rpartition("-")[2]) for path in out.glob("checkpoint-*")), default=0)


def main(engine: str, place: str, tokenizer: str, budget: int, kills: int) -> int:
    patch()
    torch.set_num_threads(1)
    folder, rng = Path(place), random.Random(kills + budget)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(AutoTokenizer.from_pretrained(tokenizer)), **sizes)
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    out, work = folder / "out", partial(train, engine, folder, tokenizer, budget)
    for kill in range(kills):
        ended = live(partial(work, ENDLESS), out, rng.choice((1, 1, 2)), rng.random())
        print("life", kill, "ended with", ended, "at checkpoint", newest(out), flush=True)
    return live(partial(work, newest(out) + 2 * SAVE_STEPS), out, None, 0.0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], *map(int, sys.argv[4:6])))
