"""A small trainer for Atropos environments: GRPO with a clipped importance ratio, on CPU or one GPU.

python -m envs.lab.trainer --model MODEL_FOLDER --api http://localhost:8000 --engine http://localhost:9004

It registers with the trainer API, pulls batches, computes group-relative advantages, takes one optimizer step a batch
on the trained tokens, and hands the inference server the new weights. The number of steps taken is the policy version.
After each step everything is saved in --out; started again with the same --out it goes on from there.

The objective is GRPO's (Shao et al. 2024), the ratio r taken to the *inference server's* logprobs: mean over rollouts
of the mean over a rollout's tokens, whatever its rows, of min(r A, clip(r, 1 - e, 1 + E) A). No KL, no critic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import signal
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

import torch
from torch import Tensor

from atropos_agent.cpu_engine.lora import autocast, parts, predictions
from atropos_agent.engines.http import client_of
from atropos_agent.types import IGNORED
from envs.delivery.row_check import check_group
from envs.lab.consumer import Consumer
from envs.lab.networks import load_network, with_adapter
from envs.records.disk import append_line, flush, replace_file
from envs.trainers.weights import hand_over, keep_current, policy_server
from sandboxes.arguments import (
    Parser,
    existing_path,
    nonempty_text,
    nonnegative_float,
    nonnegative_int,
    output_folder,
    positive_float,
    positive_int,
    url,
)
from sandboxes.log import TIMED, set_up_log

logger = logging.getLogger("trainer")

Group = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A row to train on: per trained token, in order, the inference server's logprob, and A times its weight in the
    loss. lag: trainer steps since the oldest token was sampled."""

    tokens: Sequence[int]
    masked_tokens: Sequence[int]
    logprobs: Sequence[float]
    advantages: Sequence[float]
    temperature: float
    lag: int


def rows_of(
    groups: Sequence[Group], step: int, max_lag: int, *, scaled: bool = True, negative: float = 1.0
) -> tuple[list[Row], Counter[str]]:
    """Return the rows of a batch with something to learn from, and the number of others by reason: "invalid",
    "stale", "no signal". Advantages are a group's own, else reward - mean over its rollouts, when `scaled`
    by their std; in both cases those below zero times `negative`."""
    left_out: Counter[str] = Counter()
    chosen: list[tuple[Group, int, list[float]]] = []
    for group in groups:
        if problems := check_group(group):
            logger.warning("a group is left out: %s", "; ".join(problems[:3]))
            left_out["invalid"] += len(group.get("tokens") or ())
            continue
        for place, advantages in enumerate(_advantages(group, scaled, negative)):
            stale = _lag(group, place, step) > max_lag
            if stale or not any(advantages):
                left_out["stale" if stale else "no signal"] += 1
            else:
                chosen.append((group, place, advantages))
    rollouts = {name for group in groups for name in (group.get("generation_params") or {}).get("rollout_ids") or ()}
    lengths: Counter[str] = Counter()
    for group, place, _ in chosen:
        trained = sum(label != IGNORED for label in group["masks"][place])
        lengths[group["generation_params"]["rollout_ids"][place]] += trained
    rows = []
    for group, place, advantages in chosen:
        params = group["generation_params"]
        places = [i for i, label in enumerate(group["masks"][place]) if label != IGNORED]
        # Given advantages are already spread over the rows of a rollout: each is a mean by itself.
        size = len(rollouts) * (len(places) if group.get("advantages") else lengths[params["rollout_ids"][place]])
        rows.append(
            Row(
                tokens=group["tokens"][place],
                masked_tokens=group["masks"][place],
                logprobs=[group["inference_logprobs"][place][i] for i in places],
                advantages=[advantages[i] / size for i in places],
                temperature=float(params.get("temperature") or 1.0),
                lag=_lag(group, place, step),
            )
        )
    return rows, left_out


def _advantages(group: Group, scaled: bool, negative: float) -> list[list[float]]:
    """Return, per row, the advantages of its tokens."""
    given = group.get("advantages")
    if not given:
        rewards = dict(zip(group["generation_params"]["rollout_ids"], group["scores"], strict=True))
        mean, std = statistics.fmean(rewards.values()), statistics.pstdev(rewards.values()) if scaled else 1.0
        own = [(score - mean) / std if std > 0 else 0.0 for score in group["scores"]]
        given = [[value] * len(tokens) for value, tokens in zip(own, group["tokens"], strict=True)]
    return [[value * negative if value < 0 else value for value in values] for values in given]


def _lag(group: Group, place: int, step: int) -> int:
    """Return the steps since the row's oldest token, or since its group's step if no version is known."""
    params = group["generation_params"]
    version = params["policy_versions"][place] if params.get("policy_versions") else params.get("step")
    return step if version is None else step - int(version)


class Policy:
    """The network in training: all its weights, or a LoRA adapter on top of them."""

    def __init__(self, options: argparse.Namespace, checkpoint: Path | None) -> None:
        self.options = options
        base = checkpoint if checkpoint and not options.lora else options.model
        network = load_network(base, getattr(torch, options.dtype)).to(options.device)
        if options.gradient_checkpointing:
            # transformers of early version 5 know it by this name alone, later ones warn of it.
            with warnings.catch_warnings(action="ignore", category=FutureWarning):
                network.gradient_checkpointing_enable({"use_reentrant": False})
            network.enable_input_require_grads()
        self.network: Any = network
        self._plain = network  # which an adapter is put into
        if options.lora:
            self.network = with_adapter(network, checkpoint or options.adapter, options.rank)
        self.network.train()
        self.parameters = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD if options.sgd else torch.optim.AdamW
        self.optimizer = optimizer(self.parameters, lr=options.learning_rate, weight_decay=0.0)
        if checkpoint is not None:
            self.optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", map_location=options.device))

    def update(self, rows: Sequence[Row]) -> dict[str, float]:
        """Take `--epochs` optimizer steps on the rows. Return figures of the first, before anything moved."""
        figures: dict[str, float] = {}
        for epoch in range(self.options.epochs):
            self.optimizer.zero_grad()
            seen = [self._backward(part) for part in parts(self._plain, rows, self.options.part_tokens)]
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_grad_norm)
            self.optimizer.step()
            if epoch == 0:
                tokens = {name: torch.cat([part[name] for part in seen]) for name in seen[0]}
                figures = _summarize_tokens(tokens) | {"grad_norm": float(norm)}
        return figures

    def _backward(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Add the rows' part to the gradient. Returns figures per trained token."""

        def per_token(values: Iterator[float]) -> Tensor:
            return torch.tensor(list(values), device=self.network.device)

        with autocast(self.options.autocast):
            logits, labels = predictions(self._plain, rows)
        heat = per_token(row.temperature for row in rows for _ in row.logprobs)
        distribution = torch.log_softmax(logits.float() / heat[:, None], dim=-1)
        logprobs = distribution.gather(1, labels[:, None])[:, 0]
        sampled = per_token(value for row in rows for value in row.logprobs)
        advantages = per_token(value for row in rows for value in row.advantages)
        ratio = torch.exp(logprobs - sampled)
        clipped = ratio.clamp(1.0 - self.options.clip_low, 1.0 + self.options.clip_high)
        (-torch.minimum(ratio * advantages, clipped * advantages).sum()).backward()
        with torch.no_grad():
            figures = {
                "logprob": logprobs,
                "engine_logprob": sampled,
                "entropy": -(distribution.exp() * distribution).sum(-1),
                "ratio": ratio,
                "clip_fraction": (clipped * advantages < ratio * advantages).float(),
                "lag": per_token(float(row.lag) for row in rows for _ in row.logprobs),
            }
        return {name: values.detach().cpu() for name, values in figures.items()}

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint: weights as the inference server reads them, the optimizer and `state`, all or nothing."""
        shutil.rmtree(partial := folder.with_name(f".{folder.name}"), ignore_errors=True)
        self.network.save_pretrained(partial)
        torch.save(self.optimizer.state_dict(), partial / "optimizer.pt")
        (partial / "state.json").write_text(json.dumps(state), encoding="utf-8")
        flush(partial)
        partial.rename(folder)


def _summarize_tokens(tokens: Mapping[str, Tensor]) -> dict[str, float]:
    """Return means over the trained tokens. mismatch: |logprob - the server's|, of all tokens and, under
    mismatch_fresh, of those sampled from the present weights, with rounding as its only cause."""
    difference = (tokens["logprob"] - tokens["engine_logprob"]).abs()
    fresh = difference[tokens["lag"] == 0]
    return {
        **{name: float(values.mean()) for name, values in tokens.items()},
        "mismatch": float(difference.mean()),
        "trained_tokens": len(difference),
        "fresh_tokens": len(fresh),
        **({"mismatch_fresh": float(fresh.mean()), "mismatch_fresh_max": float(fresh.max())} if len(fresh) else {}),
    }


async def train(options: argparse.Namespace) -> None:
    """Take `--steps` steps, from the last checkpoint if there is one."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    checkpoint = max(options.out.glob("step-*"), default=None)
    state: Any = (
        json.loads((checkpoint / "state.json").read_text(encoding="utf-8")) if checkpoint else {"step": 0, "seen": []}
    )
    step, seen = int(state["step"]), dict.fromkeys(state["seen"])
    policy = Policy(options, checkpoint)
    pending = options.out / "batch.json"
    if checkpoint is None:
        checkpoint = options.out / f"step-{0:06}"
        policy.save(checkpoint, state)
    settings = {"batch_size": options.batch_size, "max_token_len": options.max_token_length, "name": "trainer"}
    url = options.engine.rstrip("/").removesuffix("/v1")
    async with (
        client_of(url, timeout=300.0) as http,
        Consumer(options.api, **settings) as consumer,
    ):
        server = await policy_server(http)
        await hand_over(server, checkpoint, step)
        batches = consumer.batches()
        while step < options.steps:
            consumer.starting_step = step
            began = time.monotonic()
            async with keep_current(server, checkpoint, step):
                # A batch that was pulled is kept until it is trained on: the API has forgotten it.
                groups = json.loads(pending.read_bytes()) if pending.is_file() else list((await anext(batches)).groups)
                replace_file(pending, json.dumps(groups).encode())
                pulled = time.monotonic()
                figures = await asyncio.to_thread(_train_on_batch, policy, groups, step, seen)
            step += 1
            checkpoint = options.out / f"step-{step:06}"
            seconds = {"wait": pulled - began, "train": time.monotonic() - pulled}
            policy.save(checkpoint, {"step": step, "seen": list(seen)[-20_000:]})
            _report(options.out / "steps.jsonl", {"step": step, "time": time.time(), **figures, "seconds": seconds})
            pending.unlink()
            await hand_over(server, checkpoint, step)
            for old in sorted(options.out.glob("step-*"))[:-2]:
                shutil.rmtree(old)


def _train_on_batch(policy: Policy, groups: Sequence[Group], step: int, seen: dict[str, None]) -> dict[str, Any]:
    """Update the policy on the new groups of a batch. Return the batch's figures."""
    options = policy.options
    fresh = [group for group in groups if not _is_duplicate(group, seen)]
    rows, left_out = rows_of(fresh, step, options.max_lag, scaled=not options.no_std, negative=options.negative_weight)
    left_out["duplicate groups"] = len(groups) - len(fresh)
    return {**_batch_figures(fresh, left_out), **(policy.update(rows) if rows else {})}


def _is_duplicate(group: Group, seen: dict[str, None]) -> bool:
    """Tell whether a group came before, as when its sender missed the API's answer; it is seen now."""
    names = (group.get("generation_params") or {}).get("rollout_ids") or ()
    keys = [f"{name}:{len(tokens)}" for name, tokens in zip(names, group.get("tokens") or (), strict=False)]
    known = bool(keys) and all(key in seen for key in keys)
    seen.update(dict.fromkeys(keys))
    return known


def _batch_figures(groups: Sequence[Group], left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return a batch's figures. Rewards are of all its rollouts, trained on or not."""
    rewards: dict[str, float] = {}
    for group in groups:
        names = (group.get("generation_params") or {}).get("rollout_ids") or ()
        rewards.update(zip(names, group.get("scores") or (), strict=False))
    return {
        "rollout_ids": list(rewards),
        "reward": statistics.fmean(rewards.values()) if rewards else None,
        "group_rewards": [statistics.fmean(group["scores"]) for group in groups if group.get("scores")],
        "groups_with_signal": sum(len(set(group.get("scores") or ())) > 1 for group in groups),
        "tokens": sum(len(row) for group in groups for row in group["tokens"]),
        "left_out": {reason: count for reason, count in left_out.items() if count},
    }


def _report(path: Path, line: Mapping[str, Any]) -> None:
    append_line(path, json.dumps(line).encode())
    logger.info("step %d: reward %s, mismatch %s", line["step"], line["reward"], line.get("mismatch_fresh"))
    if (line.get("mismatch_fresh") or 0.0) > 0.05:  # nats; it should be rounding alone
        logger.error(
            "rows, weights or the inference server's --logprobs-mode are wrong: the same weights differ in logprobs"
        )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; each has a default for a small model."""
    parser = Parser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add(
        "--model",
        type=nonempty_text,
        required=True,
        help="folder or hub name of the model that the inference server started with",
    )
    add("--lora", action="store_true", help="train an adapter, not all weights")
    add(
        "--adapter",
        type=existing_path,
        help="adapter to begin with (PEFT's folder or one file); the server must have it too",
    )
    add("--rank", type=positive_int, default=16, help="of a new adapter")
    add("--api", type=url, default="http://localhost:8000", help="trainer API")
    add("--engine", type=url, default="http://localhost:9004", help="where the inference server answers, ours or vLLM")
    add("--out", type=output_folder, default=Path("checkpoints"), help="checkpoints and steps.jsonl")
    add("--steps", type=nonnegative_int, default=20, help="in all, those of earlier starts included")
    add("--batch-size", type=positive_int, default=32, help="rows of a batch")
    add("--max-token-length", type=positive_int, default=8192, help="of a row")
    add("--max-lag", type=nonnegative_int, default=4, help="steps by which a row may be older")
    add("--sgd", action="store_true", help="plain SGD instead of AdamW")
    add("--learning-rate", type=positive_float, default=3e-4, help="constant")
    add("--no-std", action="store_true", help="no division by the std of rewards, where a group has no advantages")
    add(
        "--negative-weight",
        type=nonnegative_float,
        default=1.0,
        help="of advantages below zero; 0: learn from successes alone",
    )
    add("--epochs", type=positive_int, default=1, help="optimizer steps on each batch")
    add("--clip-low", type=nonnegative_float, default=0.2, help="ratios below 1 - this are clipped")
    add("--clip-high", type=nonnegative_float, default=0.28, help="ratios above 1 + this are clipped")
    add("--max-grad-norm", type=positive_float, default=1.0, help=" ")
    add("--part-tokens", type=positive_int, default=1024, help="tokens computed at once")
    add("--device", default="cpu", help=" ")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the weights")
    add(
        "--autocast",
        action="store_true",
        help="multiply 16-bit numbers where the CPU has instructions for it: less time and memory; elsewhere no change",
    )
    add("--gradient-checkpointing", action="store_true", help="less memory, more time")
    add("--threads", type=positive_int, default=1, help="of one operation on CPU")
    add("--seed", type=int, default=0)
    options: argparse.Namespace = parser.parse_args(argv)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main(argv: Sequence[str] | None = None) -> None:
    set_up_log(form=TIMED)
    asyncio.run(train(parse(argv)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        main()
        sys.exit()
    sys.exit(130)
