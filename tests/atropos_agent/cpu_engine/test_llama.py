"""The forward pass computes what transformers computes, for every family it accepts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from atropos_agent.cpu_engine.llama import Llama
from atropos_agent.cpu_engine.model import LoadedModel

SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


FAMILIES = {
    "llama, tied": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama, untied": LlamaConfig(**SMALL, tie_word_embeddings=False, head_dim=16),
    "llama 3": LlamaConfig(**SMALL, rope_parameters=LLAMA3_ROPE),
    "mistral": MistralConfig(**SMALL, sliding_window=None),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL, head_dim=8),
}


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_logits_are_those_of_transformers(config: Any) -> None:
    torch.manual_seed(0)
    reference = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = Llama(config, reference.state_dict(), max_model_len=256)
    ids = torch.randint(300, (2, 120))
    with torch.inference_mode():
        expected = reference(ids).logits
        caches = [model.new_cache(), model.new_cache()]
        first, second = ids.tolist()
        rows = [[], []]
        # In pieces, side by side: prompts in one batch, then one sequence token by token.
        for a, b in [((0, 50), (0, 7)), ((50, 51), (7, 90)), ((51, 120), (90, 91)), ((120, 120), (91, 120))]:
            batch = [
                (cache, part) for cache, part in zip(caches, [first[slice(*a)], second[slice(*b)]], strict=True) if part
            ]
            logits = model.logits(model.forward(batch))
            rows[0].append(logits[: a[1] - a[0]])
            rows[1].append(logits[a[1] - a[0] :])
    for got, wanted in zip(rows, expected, strict=True):
        assert (torch.cat(got) - wanted).abs().max() < 1e-3 * wanted.abs().max()


def test_a_cache_copied_from_another_continues_it(tiny: LoadedModel) -> None:
    ids = [(i * 31) % 49000 for i in range(400)]
    whole, start, copy = (tiny.model.new_cache() for _ in range(3))
    expected = tiny.model.forward([(whole, ids)])[-100:]
    tiny.model.forward([(start, ids[:350])])
    copy.take(start, 300)
    assert torch.allclose(tiny.model.forward([(copy, ids[300:])]), expected, atol=1e-4)


def test_other_architectures_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="serve this one with vLLM"):
        Llama(GPT2Config(), {}, 128)
    with pytest.raises(ValueError, match="full attention only"):
        Llama(MistralConfig(**SMALL, sliding_window=64), {}, 128)
    with pytest.raises(ValueError, match="no quantized weights"):
        Llama(Qwen3Config(**SMALL, quantization_config={"quant_method": "fp8"}), {}, 128)
