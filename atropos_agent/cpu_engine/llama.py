"""The forward pass of Llama-type models over a ragged batch, with one growing cache per sequence.

All new tokens of a step, one from each running sequence and many from a prompt being read in,
go through the linear layers as one matrix; only attention looks at each sequence by itself. No
padding, no masks for single tokens, so a sequence's result does not depend on its neighbours
but for rounding (about 1e-6 in float32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from atropos_agent.cpu_engine.weights import Block, Weights

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type` for this forward pass."""


def has_sliding_window(config: Any) -> bool:
    """Tell whether some layers of a model attend to the last tokens alone, by its transformers config."""
    return bool(getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))


_GROWTH = 256
"""Least growth of a cache's capacity, in tokens."""


class SequenceCache:
    """Keys and values of one sequence, shape (layers, 2, kv_heads, capacity, head_dim).

    The first `length` places are filled and never change, so another sequence may copy them.
    """

    def __init__(self, model: Llama, capacity: int = 0) -> None:
        self._shape = (model.layers, 2, model.kv_heads)
        self._head_dim = model.head_dim
        self.length = 0
        self.data = torch.empty((*self._shape, max(capacity, _GROWTH), self._head_dim))

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def reserve(self, length: int) -> None:
        """Make room for `length` tokens."""
        capacity = self.data.shape[3]
        if length > capacity:
            grown = torch.empty((*self._shape, max(length, capacity + capacity // 2), self._head_dim))
            grown[:, :, :, : self.length] = self.data[:, :, :, : self.length]
            self.data = grown

    def take(self, other: SequenceCache, length: int) -> None:
        """Start as a copy of the first `length` tokens of another sequence."""
        self.reserve(length)
        self.data[:, :, :, :length] = other.data[:, :, :, :length]
        self.length = length


class Llama:
    """A Llama, Mistral, Qwen2 or Qwen3 model in float32, from a transformers config and weights.

    Raises ValueError when the config asks for something that this forward pass does not compute.
    """

    def __init__(self, config: Any, weights: Mapping[str, Tensor], max_model_len: int) -> None:
        if config.model_type not in SUPPORTED:
            raise ValueError(
                f"the embedded server computes {', '.join(SUPPORTED)} models, not {config.model_type!r}; "
                "serve this one with vLLM"
            )
        if has_sliding_window(config):
            raise ValueError("the embedded server computes full attention only; serve this model with vLLM")
        if getattr(config, "quantization_config", None):
            raise ValueError("the embedded server computes no quantized weights; serve this model with vLLM")
        if config.hidden_act != "silu":
            raise ValueError(f"the embedded server computes the silu activation only, not {config.hidden_act!r}")
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.vocab_size: int = config.vocab_size
        self.max_model_len = max_model_len
        self._tied: bool = config.tie_word_embeddings
        self._eps: float = config.rms_norm_eps
        positions = torch.arange(max_model_len)[None]
        cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
        self._cos, self._sin = cos[0], sin[0]
        self._weights = Weights.read(weights, self.layers, tied=self._tied)

    def new_cache(self, capacity: int = 0) -> SequenceCache:
        return SequenceCache(self, capacity)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Replace all weights. Names and shapes are those of the transformers checkpoint.

        Raises ValueError for a missing weight, and ValueError or PyTorch's errors for a wrong shape; the old weights
        then stay.
        """
        loaded = Weights.read(weights, self.layers, tied=self._tied)
        if loaded.shapes != self._weights.shapes:
            raise ValueError("the shapes of these weights are not those of the model")
        self._weights = loaded

    def forward(self, batch: Sequence[tuple[SequenceCache, Sequence[int]]]) -> Tensor:
        """Extend every cache by its new tokens and return the last hidden states of all of them.

        Shape (total new tokens, hidden_size), in the order of the batch.
        """
        step = self._begin(batch)
        tokens = torch.tensor([i for _, ids in batch for i in ids])
        hidden = functional.embedding(tokens, self._weights.embed)
        for layer, block in enumerate(self._weights.blocks):
            hidden = hidden + self._attend(layer, block, self._norm(hidden, block.norm_in), step)
            gate, up = block.gate_up(self._norm(hidden, block.norm_mlp)).chunk(2, dim=-1)
            hidden = hidden + block.down(functional.silu(gate) * up)
        for cache, ids in batch:
            cache.length += len(ids)
        return self._norm(hidden, self._weights.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits, shape (tokens, vocab_size)."""
        return self._weights.head(hidden)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], weight, self._eps)

    def _begin(self, batch: Sequence[tuple[SequenceCache, Sequence[int]]]) -> _Step:
        """Make room in the caches and assign the rows to their sequences."""
        spans: list[_Span] = []
        positions: list[int] = []
        for cache, ids in batch:
            start, end = cache.length, cache.length + len(ids)
            cache.reserve(end)
            mask = _causal_mask(start, len(ids), self.heads // self.kv_heads) if len(ids) > 1 else None
            spans.append(_Span(cache, slice(len(positions), len(positions) + len(ids)), mask))
            positions += range(start, end)
        places = torch.tensor(positions)
        return _Step(spans, self._cos[places][:, None], self._sin[places][:, None])

    def _attend(self, layer: int, block: Block, hidden: Tensor, step: _Step) -> Tensor:
        total, group = hidden.shape[0], self.heads // self.kv_heads
        qkv = block.qkv(hidden).view(total, -1, self.head_dim)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if block.norm_q is not None and block.norm_k is not None:
            q, k = self._norm(q, block.norm_q), self._norm(k, block.norm_k)
        q = _rotate(q, step.cos, step.sin) * self.head_dim**-0.5
        k = _rotate(k, step.cos, step.sin)
        mixed = torch.empty_like(q)
        for span in step.spans:
            cache, rows = span.cache, span.rows
            n = rows.stop - rows.start
            keys, values = cache.data[layer, :, :, : cache.length + n]
            keys[:, cache.length :] = k[rows].transpose(0, 1)
            values[:, cache.length :] = v[rows].transpose(0, 1)
            # Query heads that share a key head are stacked as rows: (kv_heads, group * n, head_dim).
            queries = q[rows].view(n, self.kv_heads, group, self.head_dim)
            stacked = queries.permute(1, 2, 0, 3).reshape(self.kv_heads, group * n, self.head_dim)
            scores = torch.bmm(stacked, keys.transpose(1, 2))
            if span.mask is not None:
                scores += span.mask
            out = torch.bmm(torch.softmax(scores, dim=-1), values)
            out = out.view(self.kv_heads, group, n, self.head_dim).permute(2, 0, 1, 3)
            mixed[rows] = out.reshape(n, self.heads, self.head_dim)
        return block.out(mixed.view(total, -1))


@dataclass(frozen=True, slots=True)
class _Span:
    """The rows of a step that belong to one sequence, and the positions that they may see."""

    cache: SequenceCache
    rows: slice
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class _Step:
    """A ragged batch: its sequences and the rotation of each row, shape (rows, 1, head_dim)."""

    spans: Sequence[_Span]
    cos: Tensor
    sin: Tensor


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary position embedding to heads, shape (tokens, heads, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _causal_mask(past: int, new: int, group: int) -> Tensor:
    """Return 0 for positions that a new token may see, -inf elsewhere; shape (group * new, past + new)."""
    mask = torch.full((new, past + new), float("-inf")).triu(past + 1)
    return mask.repeat(group, 1)
