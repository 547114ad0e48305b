"""Row by row the results and gradients are those of one mask over all tokens."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from atropos_agent.cpu_engine import lora
from atropos_agent.cpu_engine.attention import ROW_BY_ROW, choose
from atropos_agent.cpu_engine.lora import learn_from
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
def test_results_and_gradients_are_those_of_the_mask(
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


def test_where_attention_is_not_torchs_own_the_mask_stays(tiny: LoadedModel, reference: Any) -> None:
    eager = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32, attn_implementation="eager")
    assert not choose(eager) and not choose(object())
    assert learnt(eager, [LONG, SHORT])[0] == pytest.approx(learnt(reference, [LONG, SHORT])[0], rel=1e-5)
    assert eager.config._attn_implementation == "eager"


def test_a_model_that_caps_its_logits_keeps_the_mask(reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.config, "attn_logit_softcapping", 30.0, raising=False)
    assert not choose(reference)
