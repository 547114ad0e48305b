"""Supervised training of a LoRA adapter on rows of tokens, on a CPU, in minutes.

Rows of one kind of task begin with the same long prompt. Each part of a batch computes this common
start once, and every row's rest attends to it and to itself: the same loss and gradients as row by
row, at about a third of the work.
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
    for part in parts(rows, _PART_TOKENS):
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


def parts(rows: Sequence[Row], limit: int) -> Iterator[list[Row]]:
    """Yield the rows in parts of at most about `limit` tokens behind their common start; repetitions don't count.

    Attention is computed between all tokens of a part, so a long one costs more than its tokens do."""
    part = list[Row]()
    for row in sorted(rows, key=lambda row: list(row.tokens)):
        shared = _shared([*part, row])
        own = sum(len(tokens) - shared for tokens in {tuple(other.tokens) for other in (*part, row)})
        if part and own > limit:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def predictions(network: Any, rows: Sequence[TrainingRow]) -> tuple[Tensor, Tensor]:
    """Return the logits that predict the trained tokens of all rows, and these tokens, in order.

    Shapes (trained tokens, vocab_size) and (trained tokens,). The common start of the rows is
    computed once, and so are rows of the same tokens; every row must have a trained token behind its first token.
    """
    shared = _shared(rows)
    tokens, positions, lengths = list(rows[0].tokens[:shared]), list(range(shared)), [shared]
    places, labels = [], []
    offsets: dict[tuple[int, ...], int] = {}
    for row in rows:
        offset = offsets.setdefault(tuple(row.tokens), len(tokens) - shared)
        if offset == len(tokens) - shared:
            tokens += row.tokens[shared:]
            positions += range(shared, len(row.tokens))
            lengths.append(len(row.tokens) - shared)
        trained = [place for place, label in enumerate(row.masked_tokens) if label != IGNORED]
        places += [place - 1 + offset for place in trained]
        labels += [row.masked_tokens[place] for place in trained]
    device = network.device
    hidden = network.model(
        input_ids=torch.tensor([tokens], device=device),
        position_ids=torch.tensor([positions], device=device),
        use_cache=False,
        **_attention(network, lengths),
    ).last_hidden_state[0]
    with torch.autocast("cpu", enabled=False):
        logits = network.lm_head(hidden[places].to(network.dtype))
    return logits, torch.tensor(labels, device=device)


def _attention(network: Any, lengths: Sequence[int]) -> dict[str, Any]:
    """Return a network's argument for the tokens that each token sees: each row the common start and itself.

    lengths: tokens of the common start, then of each row's own part."""
    if choose(network):
        # The empty mask keeps transformers from making one.
        return {"row_lengths": tuple(lengths), "attention_mask": torch.empty(0, 0, 0, 0, device=network.device)}
    places = torch.arange(-1, len(lengths) - 1)
    owners = places.repeat_interleave(torch.tensor(lengths)).to(network.device)
    visible = ((owners[:, None] == owners) | (owners == -1)).tril()
    mask = torch.zeros(visible.shape, dtype=network.dtype, device=network.device)
    return {"attention_mask": mask.masked_fill_(~visible, torch.finfo(network.dtype).min)[None, None]}


def _shared(rows: Sequence[TrainingRow]) -> int:
    """Return the length of the rows' common start, which ends before all trained tokens."""
    shared = min(common_prefix(rows[0].tokens, row.tokens) for row in rows)
    # A trained token is predicted from the place before it, which must be in the row's own part.
    return min([shared, *(_first_trained(row) - 1 for row in rows)])


def _first_trained(row: TrainingRow) -> int:
    return next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)
