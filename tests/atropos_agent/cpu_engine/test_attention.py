"""Behind a common start the results and gradients are those of each row by itself, and every model computes its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from atropos_agent.cpu_engine import lora
from atropos_agent.cpu_engine.attention import ROW_BY_ROW, choose
from atropos_agent.cpu_engine.lora import learn_from, parts, predictions
from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.types import IGNORED, NO_LOGPROB, SequenceData

START = [(i * 7919) % 49000 for i in range(40)]


def row(tokens: list[int], trained: int = 5) -> SequenceData:
    masked = [IGNORED] * (len(tokens) - trained) + tokens[-trained:]
    return SequenceData("", tokens, masked, [NO_LOGPROB if label == IGNORED else -1.0 for label in masked])


LONG, SHORT, ALONE = row([*START, *range(100, 160)]), row([*START, *range(7, 14)]), row(list(range(300, 330)))


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lora, "_PART_TOKENS", 10_000)
    yield


def learnt(network: Any, rows: list[SequenceData]) -> tuple[float, dict[str, Tensor]]:
    network.zero_grad()
    loss = learn_from(network, rows)
    return loss, {name: weight.grad.clone() for name, weight in network.named_parameters()}


@pytest.mark.parametrize(
    "rows",
    [[LONG, SHORT], [LONG, SHORT, LONG, SHORT], [ALONE, LONG], [LONG], [row(START, len(START) - 1)]],
    ids=["two", "each twice", "no common start", "one row", "one row, all of it trained"],
)
@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "computed again"])
def test_results_and_gradients_are_those_of_each_row_by_itself(
    reference: Any, rows: list[SequenceData], checkpointed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reference.config.num_key_value_heads < reference.config.num_attention_heads
    with monkeypatch.context() as patch:
        patch.setattr(lora, "choose", lambda _: False)
        loss, gradients = learnt(reference, rows)
    assert reference.config._attn_implementation == "sdpa"
    if checkpointed:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # later versions warn of the name
            reference.gradient_checkpointing_enable({"use_reentrant": False})
        reference.train()
    found, others = learnt(reference, rows)
    assert reference.config._attn_implementation == ROW_BY_ROW
    assert found == pytest.approx(loss, rel=1e-5)
    assert all(torch.allclose(others[name], gradients[name], atol=1e-5) for name in gradients)
    assert max(float(gradient.abs().max()) for gradient in gradients.values()) > 1e-2


def test_a_model_that_attends_row_by_row_takes_padded_sequences_as_before(reference: Any) -> None:
    tokens, seen = torch.tensor([START, START]), torch.ones(2, len(START), dtype=torch.long)
    seen[0, :7] = 0
    before = reference(tokens, attention_mask=seen).logits[:, 7:]
    assert choose(reference) and choose(reference)
    assert torch.allclose(reference(tokens, attention_mask=seen).logits[:, 7:], before, atol=1e-5)


def test_where_attention_is_not_torchs_own_each_row_is_computed_by_itself(tiny: LoadedModel, reference: Any) -> None:
    eager = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32, attn_implementation="eager")
    assert not choose(eager)
    assert learnt(eager, [LONG, SHORT])[0] == pytest.approx(learnt(reference, [LONG, SHORT])[0], rel=1e-5)
    assert eager.config._attn_implementation == "eager"


SIZES = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "head_dim": 8}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
RECURRENT = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_value_heads": 4}
TYPES = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8},
    "gpt_oss": {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_5_text": {**RECURRENT, "linear_num_key_heads": 2},
    "granite": {"logits_scaling": 4.0},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_of_any_type_predicts_what_its_own_forward_pass_does(kind: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **TYPES[kind])).float().eval()
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    opening = [token % 290 + 3 for token in START]
    rows = [row([*opening, *range(100, 120)]), row([*opening, *range(7, 14)])]
    with torch.no_grad():
        logits, labels = predictions(network, rows)
        alone = torch.cat([network(torch.tensor([one.tokens])).logits[0, -6:-1] for one in rows])
    assert torch.allclose(logits, alone, atol=1e-4)
    assert labels.tolist() == [*rows[0].tokens[-5:], *rows[1].tokens[-5:]]
    assert [len(part) for part in parts(network, rows, 1000)] == ([2] if kind == "llama" else [1, 1])
