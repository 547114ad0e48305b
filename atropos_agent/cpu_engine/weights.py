"""The weights of a Llama-type model, as the forward pass wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_LAYOUT_ROWS = 8
"""Rows of a `Linear`'s layout; any number can be computed."""


class Linear:
    """A matrix product with fixed weights, laid out once for the processor at hand.

    oneDNN's own layout makes steps of few rows, the steps of decoding, up to twice as fast as
    `functional.linear`. PyTorch offers it to its compiler alone, hence the private names; a build
    without oneDNN takes the plain product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.shape = tuple(weight.shape)
        self._bias = bias
        self._packed: bool = torch.backends.mkldnn.is_available()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _LAYOUT_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return functional.linear(x, self._weight, self._bias)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. Weights for the same input are joined; `norm_q` and `norm_k` are Qwen3's."""

    norm_in: Tensor
    qkv: Linear
    out: Linear
    norm_mlp: Tensor
    gate_up: Linear
    down: Linear
    norm_q: Tensor | None = None
    norm_k: Tensor | None = None

    @classmethod
    def read(cls, weights: Mapping[str, Tensor], prefix: str) -> Block:
        """Take a layer out of a transformers checkpoint."""

        def joined(names: Sequence[str], kind: str = "weight") -> Tensor:
            return torch.cat([weights[f"{prefix}{name}.{kind}"].float() for name in names])

        qkv = [f"self_attn.{name}_proj" for name in "qkv"]
        biased, normed = f"{prefix}{qkv[0]}.bias" in weights, f"{prefix}self_attn.q_norm.weight" in weights
        known = {f"{prefix}{name}.bias" for name in qkv}
        unknown = [name for name in weights if name.startswith(prefix) and name.endswith(".bias") and name not in known]
        if unknown:
            raise ValueError(f"the embedded server does not compute {', '.join(unknown)}; serve this model with vLLM")
        return cls(
            norm_in=joined(["input_layernorm"]),
            qkv=Linear(joined(qkv), joined(qkv, "bias") if biased else None),
            out=Linear(joined(["self_attn.o_proj"])),
            norm_mlp=joined(["post_attention_layernorm"]),
            gate_up=Linear(joined(["mlp.gate_proj", "mlp.up_proj"])),
            down=Linear(joined(["mlp.down_proj"])),
            norm_q=joined(["self_attn.q_norm"]) if normed else None,
            norm_k=joined(["self_attn.k_norm"]) if normed else None,
        )


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights in float32. `head` is laid out apart from `embed`, also if both are tied."""

    embed: Tensor
    blocks: Sequence[Block]
    norm: Tensor
    head: Linear

    @classmethod
    def read(cls, weights: Mapping[str, Tensor], layers: int, *, tied: bool) -> Weights:
        """Take a transformers checkpoint apart. Raises ValueError for a missing weight."""
        try:
            embed = weights["model.embed_tokens.weight"].float()
            return cls(
                embed=embed,
                blocks=[Block.read(weights, f"model.layers.{i}.") for i in range(layers)],
                norm=weights["model.norm.weight"].float(),
                head=Linear(embed if tied else weights["lm_head.weight"].float()),
            )
        except KeyError as error:
            raise ValueError(f"the weights lack {error}") from None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes that all models of the same config must share."""
        parts = [(b.qkv.shape, b.out.shape, b.gate_up.shape, b.down.shape) for b in self.blocks]
        return [tuple(self.embed.shape), self.head.shape, *(shape for part in parts for shape in part)]
