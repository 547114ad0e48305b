"""Supervised training of a LoRA adapter on rows of tokens, on a CPU, in minutes.

Rows of one kind of task begin with the same long prompt. Each part of a batch computes this common
start once, and every row's rest attends to it and to itself: the same loss and gradients as row by
row, at about a third of the work. Models of other types than Llama's compute row by row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from atropos_agent.cpu_engine.attention import choose
from atropos_agent.cpu_engine.prefix import common_prefix
from atropos_agent.types import IGNORED, SequenceData
from sandboxes.signatures import signature_of

_PART_TOKENS = 1024
"""Tokens computed at once, beside a common start."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an adapter is trained: AdamW, the learning rate falling linearly to 0. autocast: see `autocast`."""

    rank: int = 8
    alpha: int = 16
    targets: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    learning_rate: float = 2e-3
    batch: int = 4
    epochs: int = 1
    seed: int = 0
    autocast: bool = False


def train(
    model: Path, rows: Sequence[SequenceData], recipe: Recipe, on_step: Callable[[int, float], None] | None = None
) -> dict[str, Tensor]:
    """Train an adapter for the model in a folder; returns its factors in PEFT's names.

    on_step: called with the number of rows done and the batch's loss in nats per token.
    """
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        settings = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, target_modules=list(recipe.targets))
        network = get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), settings)
    order = list(rows) * recipe.epochs
    random.Random(recipe.seed).shuffle(order)
    batches = [order[i : i + recipe.batch] for i in range(0, len(order), recipe.batch)]
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=len(batches))
    done = 0
    for batch in batches:
        with autocast(recipe.autocast):
            loss = learn_from(network.get_base_model(), batch)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        done += len(batch)
        if on_step is not None:
            on_step(done, loss)
    return dict(get_peft_model_state_dict(network))


def save(factors: Mapping[str, Tensor], recipe: Recipe, path: Path) -> None:
    """Write an adapter as one file of 16-bit numbers, with its rank and alpha."""
    halves = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in sorted(factors.items())}
    metadata = {"r": str(recipe.rank), "lora_alpha": str(recipe.alpha), "format": "pt"}
    # Two processes may make the same one in the cache at the same time.
    with TemporaryDirectory(dir=path.parent) as folder:
        partial = Path(folder) / path.name
        save_file(halves, partial, metadata=metadata)
        partial.replace(path)


def learn_from(network: Any, rows: Sequence[TrainingRow]) -> float:
    """Add the gradient of the mean negative logprob of all rows' trained tokens, and return this mean."""
    total = sum(label != IGNORED for row in rows for label in row.masked_tokens)
    mean = 0.0
    for part in parts(network, rows, _PART_TOKENS):
        loss = cross_entropy(*predictions(network, part), reduction="sum") / total
        loss.backward()
        mean += float(loss.detach())
    return mean


class TrainingRow(Protocol):
    """A row's data for its computation: ids, and per place the id to predict or -100."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def masked_tokens(self) -> Sequence[int]: ...


def autocast(wanted: bool = True) -> AbstractContextManager[object]:
    """Multiply numbers of 16 bits, if wanted and the CPU has instructions for it; else of 32 bits.

    Weights, and the logits of `predictions`, stay in 32 bits."""
    return torch.autocast("cpu", torch.bfloat16) if wanted and _multiplies_16_bits() else nullcontext()


@cache
def _multiplies_16_bits() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


Row = TypeVar("Row", bound=TrainingRow)


def parts(network: Any, rows: Sequence[Row], limit: int) -> Iterator[list[Row]]:
    """Yield the rows in parts to compute at once: of at most about `limit` tokens after their common start, where
    repetitions don't count; of one row where the network can't share a start."""
    if not choose(network):
        yield from ([row] for row in rows)
        return
    part = list[Row]()
    for row in sorted(rows, key=lambda row: list(row.tokens)):
        shared = _common_prefix_length([*part, row])
        own = sum(len(tokens) - shared for tokens in {tuple(other.tokens) for other in (*part, row)})
        if part and own > limit:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def predictions(network: Any, rows: Sequence[TrainingRow]) -> tuple[Tensor, Tensor]:
    """Return the logits that predict the trained tokens of all rows, and these tokens, in order.

    Shapes (trained tokens, vocab_size) and (trained tokens,). Where the network can, it computes the common start of
    the rows once, and so rows of the same tokens; every row must have a trained token after its first token.
    """
    trained = [[place for place, label in enumerate(row.masked_tokens) if label != IGNORED] for row in rows]
    labels = [row.masked_tokens[place] for row, places in zip(rows, trained, strict=True) for place in places]
    if choose(network):
        logits = _predict_after_prefix(network, rows, trained)
    else:
        logits = torch.cat([_predict_row(network, row, places) for row, places in zip(rows, trained, strict=True)])
    return logits, torch.tensor(labels, device=network.device)


def _predict_after_prefix(network: Any, rows: Sequence[TrainingRow], trained: Sequence[Sequence[int]]) -> Tensor:
    shared = _common_prefix_length(rows)
    tokens, positions, lengths = list(rows[0].tokens[:shared]), list(range(shared)), [shared]
    wanted: list[int] = []
    offsets: dict[tuple[int, ...], int] = {}
    for row, places in zip(rows, trained, strict=True):
        offset = offsets.setdefault(tuple(row.tokens), len(tokens) - shared)
        if offset == len(tokens) - shared:
            tokens += row.tokens[shared:]
            positions += range(shared, len(row.tokens))
            lengths.append(len(row.tokens) - shared)
        wanted += [place - 1 + offset for place in places]
    hidden = network.model(
        input_ids=torch.tensor([tokens], device=network.device),
        position_ids=torch.tensor([positions], device=network.device),
        # The empty mask keeps transformers from making one.
        attention_mask=torch.empty(0, 0, 0, 0, device=network.device),
        row_lengths=tuple(lengths),
        use_cache=False,
    ).last_hidden_state[0]
    with torch.autocast("cpu", enabled=False):
        logits: Tensor = network.lm_head(hidden[wanted].to(network.dtype))
    return logits


def _predict_row(network: Any, row: TrainingRow, places: Sequence[int]) -> Tensor:
    """Return a row's logits by the network's own computation: of the wanted places alone, if it can compute that."""
    tokens = torch.tensor([row.tokens], device=network.device)
    before = torch.tensor(places, device=network.device) - 1
    if "logits_to_keep" in signature_of(network.forward).parameters:
        logits: Tensor = network(input_ids=tokens, use_cache=False, logits_to_keep=before).logits[0]
        return logits
    logits = network(input_ids=tokens).logits[0]
    return logits[before]


def _common_prefix_length(rows: Sequence[TrainingRow]) -> int:
    """Return the length of the rows' common start, which ends before all trained tokens."""
    shared = min(common_prefix(rows[0].tokens, row.tokens) for row in rows)
    # A trained token is predicted from the place before it, which must be in the row's own part.
    return min([shared, *(_first_trained(row) - 1 for row in rows)])


def _first_trained(row: TrainingRow) -> int:
    return next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)
