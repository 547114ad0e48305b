"""The forward pass computes what transformers computes, for every family it accepts."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_client import complete, sampled_logprobs, serve
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from atropos_agent.cpu_engine.llama import Llama
from atropos_agent.cpu_engine.model import LoadedModel, ModelNotFound, load, locate, read_weights

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


def test_a_longer_context_than_the_models_is_refused(tiny: LoadedModel) -> None:
    with pytest.raises(ValueError, match="context window of 8192 tokens"):
        load(str(tiny.path), max_model_len=10_000)


def test_the_tiny_model_is_always_the_same(tiny: LoadedModel, tmp_path: Path) -> None:
    again = read_weights(locate("tiny", tmp_path))
    for name, weight in read_weights(tiny.path).items():
        assert torch.equal(weight, again[name])


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        locate(str(tmp_path))


@pytest.mark.parametrize("form", ["folder", "file"])
def test_an_adapter_is_added_to_the_weights(tiny: LoadedModel, tmp_path: Path, form: str) -> None:
    name = "model.layers.1.self_attn.q_proj"
    a, b = torch.randn(4, 32), torch.randn(32, 4)
    factors = {f"base_model.model.{name}.lora_{x}.weight": f for x, f in (("A", a), ("B", b))}
    settings = {"r": 4, "lora_alpha": 8}
    if form == "folder":
        save_file(factors, tmp_path / "adapter_model.safetensors")
        (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
        adapter = tmp_path
    else:
        adapter = tmp_path / "adapter.safetensors"
        save_file(factors, adapter, metadata={key: str(value) for key, value in settings.items()})
    plain, merged = read_weights(tiny.path), read_weights(tiny.path, adapter)
    assert torch.allclose(merged[f"{name}.weight"], plain[f"{name}.weight"] + 2 * b @ a)
    changed = [key for key in plain if not torch.equal(plain[key], merged[key])]
    assert changed == [f"{name}.weight"]


def test_an_adapter_of_another_model_is_refused(tiny: LoadedModel, tmp_path: Path) -> None:
    factors = {f"base_model.model.model.layers.9.mlp.up_proj.lora_{x}.weight": torch.zeros(1, 1) for x in "AB"}
    save_file(factors, tmp_path / "a.safetensors", metadata={"r": "1", "lora_alpha": "1"})
    with pytest.raises(ValueError, match="which the model does not have"):
        read_weights(tiny.path, tmp_path / "a.safetensors")


async def start(*options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "atropos_agent.cpu_engine", "--model", "tiny", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_says_when_it_is_ready_and_ends_by_a_signal(
    tiny: LoadedModel, number: signal.Signals
) -> None:
    process = await start("--port", "0", "--cache", str(tiny.path.parent.parent))
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    assert line.startswith("Ready: tiny at http://127.0.0.1:")
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert process.stderr is not None
    assert await process.stderr.read() == b""


async def test_a_busy_port_is_reported_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process = await start("--port", str(other.getsockname()[1]))
        _, message = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"choose another --port" in message


@pytest.mark.long
@pytest.mark.engine
async def test_smollm2_keeps_its_logprobs_over_a_conversation() -> None:
    """Logprobs of four turns with reuse agree with one fresh forward pass of transformers."""
    loaded = load("smollm2")
    reference = AutoModelForCausalLM.from_pretrained(loaded.path, dtype=torch.float32).eval()
    tokenizer = loaded.tokenizer
    messages = [{"role": "user", "content": "Name three colours and say why you like them."}]
    ids = tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    follow_up = tokenizer.encode("\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n")
    errors = []
    async with serve(loaded) as client:
        for _ in range(4):
            choice = await complete(client, ids, max_tokens=24, seed=1)
            expected = sampled_logprobs(reference, choice)
            errors += [abs(a - b) for a, b in zip(choice["logprobs"]["token_logprobs"], expected, strict=True)]
            ids = [*ids, *choice["token_ids"], *follow_up]
    assert sum(errors) / len(errors) < 1e-4
    assert max(errors) < 1e-3
