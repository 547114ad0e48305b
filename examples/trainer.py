"""A trainer of one's own on transformers' Trainer: a step on each group, and it goes on from its newest checkpoint.

model=$(python -m envs.lab.models smoke)
python -m atropos_agent.cpu_engine --model $model --max-model-len 2048 --port 9001 &
python examples/trainer.py $model http://localhost:9001 100
"""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from environment import Products
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import IterableDataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from envs.cli.starting import open_env
from envs.config import AgentEnvConfig
from envs.delivery.worth import Loss
from envs.options import EngineConfig, Options
from envs.running.feed import Feed
from envs.trainers.checkpoints import CheckpointedFeed

TASKS, _ = Products.load_tasks(AgentEnvConfig())
PARTS = ("tokens", "sampled", "logprobs", "advantages")


@dataclass
class Arguments(TrainingArguments):  # type: ignore[misc]
    temperature: float = 1.0  # of logprobs, as in sampling


class Groups(CheckpointedFeed, IterableDataset[Any]):  # type: ignore[misc]
    """Groups, each a batch. The trainer looks one ahead: that one is of the weights before the last step."""

    def __init__(self, args: Arguments, engine: str, model: str) -> None:
        async def make_env() -> Any:
            config = AgentEnvConfig(run_dir=Path(args.output_dir, "run"))
            return await open_env(Products, "feed", Options(env=config, openai=[EngineConfig(base_url=f"{engine}/v1")]))

        super().__init__(make_env, args, lambda config: None)
        self.transfer, self.given = self.weights(engine, model), deque[str]()

    def __iter__(self) -> Iterator[Any]:
        for number in count():
            name, task = f"group-{number}", TASKS[number % len(TASKS)]
            if name in self.ledger.trained:
                continue
            group = self.thread.call(partial(Feed.ask, task=task, members=8, name=name, version=self.version))
            if rows := group.scored.rows:
                self.given.append(name)
                yield [(row.tokens, row.sampled, row.logprobs, row.advantages(Loss.TOKENS)) for row in rows]

    def step(self, batches: int) -> None:
        self.ledger.trained.update(self.given.popleft() for _ in range(batches))

    def on_train_begin(self, *event: Any, **more: Any) -> None:
        super().on_train_begin(*event, **more)
        self.transfer.load(self.version, self.model.save_pretrained)

    def on_step_end(self, *event: Any, **more: Any) -> None:
        super().on_step_end(*event, **more)
        self.version += 1
        self.transfer.load(self.version, self.model.save_pretrained)


class PolicyGradient(Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *_: Any, **__: Any) -> torch.Tensor:
        tokens, sampled, old, advantages = (inputs[part] for part in PARTS)
        logits = model(tokens).logits[:, :-1] / self.args.temperature
        ratio = (logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0] - old[:, 1:]).exp()
        gain = torch.minimum(ratio * advantages[:, 1:], ratio.clamp(0.8, 1.2) * advantages[:, 1:])
        return -gain[sampled[:, 1:] == 1].mean()


def padded(batches: Sequence[Any]) -> dict[str, torch.Tensor]:
    parts = zip(PARTS, zip(*batches[0], strict=True), strict=True)
    return {name: pad_sequence([torch.tensor(one) for one in rows], batch_first=True) for name, rows in parts}


def main(model: str, engine: str, steps: str = "100", output_dir: str = "runs/trainer") -> None:
    settings = {"per_device_train_batch_size": 1, "save_steps": 1, "save_total_limit": 2, "ignore_data_skip": True}
    args = Arguments(output_dir, max_steps=int(steps), learning_rate=1e-5, report_to="none", **settings)
    groups = Groups(args, engine, model)
    trained = AutoModelForCausalLM.from_pretrained(model)
    trainer = PolicyGradient(trained, args, padded, groups, callbacks=[groups])
    with groups.thread:
        groups.transfer.init_weight_transfer()
        trainer.train(resume_from_checkpoint=groups.checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
