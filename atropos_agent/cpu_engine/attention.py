"""Attention for rows after a common start in one sequence, row by row.

A mask over all tokens of the sequence gives the same result, but then each row's tokens are multiplied with those
of all others: most of the work if rows are long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from atropos_agent.cpu_engine.llama import SUPPORTED, has_sliding_window

ROW_BY_ROW = "row_by_row"
"""Its name in transformers."""


def choose(network: Any) -> bool:
    """Let a model of transformers attend row by row if it is given `row_lengths`; tell whether it will.

    Only Llama-type models whose layers all attend to all tokens, by torch's own attention, do so: windows, recurrent
    layers and scaled logits need each model's own computation. It stays chosen, as repeated computations of
    activations need the same; without `row_lengths` it is torch's own still.
    """
    config = network.config
    if config.model_type not in SUPPORTED or has_sliding_window(config):
        return False
    if config._attn_implementation == "sdpa":
        network.set_attn_implementation(ROW_BY_ROW)
    return bool(config._attn_implementation == ROW_BY_ROW)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    row_lengths: tuple[int, ...] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as `module` of transformers wants it. Returns (1, tokens, heads, head size), and None.

    query: (1, heads, tokens, head size); key and value: the same with as many heads or fewer. row_lengths: tokens of
    the common start, then of each row's own part, in order; None for one sequence, with its mask. attention_mask is
    not looked at beside them.
    """
    if row_lengths is None:
        found: tuple[Tensor, Tensor | None] = ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, **kwargs
        )
        return found
    settings = {"dropout_p": kwargs.get("dropout", 0.0), "scale": kwargs.get("scaling")}
    # Under autocast positions are turned in 32 bits.
    query, key = query.to(value.dtype), key.to(value.dtype)
    repeated = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(repeated, dim=1) for part in (key, value))
    queries, keys, values = (part.split(row_lengths, dim=2) for part in (query, key, value))
    seen = [scaled_dot_product_attention(queries[0], keys[0], values[0], is_causal=True, **settings)]
    for row in range(1, len(row_lengths)):
        own, shared = row_lengths[row], row_lengths[0]
        visible = torch.ones(own, shared + own, dtype=torch.bool, device=query.device).tril(shared)
        own_keys, own_values = (torch.cat((part[0], part[row]), dim=2) for part in (keys, values))
        seen.append(scaled_dot_product_attention(queries[row], own_keys, own_values, attn_mask=visible, **settings))
    return torch.cat(seen, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ROW_BY_ROW, attend)
AttentionMaskInterface.register(ROW_BY_ROW, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
