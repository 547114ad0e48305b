"""Adapters are trained on the replies alone, and the shared start of rows changes nothing but the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from atropos_agent.cpu_engine import lora
from atropos_agent.cpu_engine.lora import Recipe, learn_from, parts, predictions, save, train
from atropos_agent.cpu_engine.model import LoadedModel, is_adapter, read_weights
from atropos_agent.types import IGNORED, NO_LOGPROB, SequenceData

# peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

START = [(i * 7919) % 49000 for i in range(60)]


def row(reply: list[int], *, before: list[int], after: list[int]) -> SequenceData:
    """A row with two trained replies around some context."""
    parts = [(START + before, False), (reply, True), (after, False), (reply[::-1], True)]
    tokens = [token for part, _ in parts for token in part]
    trained = [is_trained for part, is_trained in parts for _ in part]
    masked = [token if t else IGNORED for token, t in zip(tokens, trained, strict=True)]
    return SequenceData("", tokens, masked, [-1.0 if t else NO_LOGPROB for t in trained])


ROWS = [
    row([50, 51, 52, 2], before=[9, 8], after=[7, 7, 7]),
    row([60, 61, 2], before=[9], after=[6]),
    row([50, 99, 98, 97, 96, 2], before=[], after=[5, 4]),
]


@pytest.mark.parametrize("rows", [ROWS, [*ROWS, ROWS[1], ROWS[0]]], ids=["all differ", "two come twice"])
@pytest.mark.parametrize("limit", [1, 1000], ids=["a row at a time", "at once"])
def test_the_loss_is_that_of_each_row_by_itself(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, rows: list[SequenceData], limit: int
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32)
    losses, labels = [], []
    for one in rows:
        logits = model(torch.tensor([one.tokens])).logits[0, :-1]
        wanted = torch.tensor([label if label != IGNORED else -100 for label in one.masked_tokens[1:]])
        losses.append(cross_entropy(logits, wanted, reduction="sum"))
        labels.append(int((wanted != -100).sum()))
    expected = torch.stack(losses).sum() / sum(labels)
    expected.backward()
    gradient = model.model.layers[0].self_attn.q_proj.weight.grad.clone()
    model.zero_grad()
    monkeypatch.setattr(lora, "_PART_TOKENS", limit)
    assert learn_from(model, rows) == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(model.model.layers[0].self_attn.q_proj.weight.grad, gradient, atol=1e-6)


def test_rows_are_computed_together_as_far_as_what_they_do_not_share_is_short(reference: Any) -> None:
    openings = [[(i * step) % 49000 for i in range(300)] for step in (7, 11)]
    long = [row([50 + place, 2], before=openings[place % 2], after=[7]) for place in range(6)]
    assert [len(part) for part in parts(reference, [*long, *long], 100)] == [6, 6], "two openings, and each row twice"
    assert [len(part) for part in parts(reference, ROWS, 1)] == [1, 1, 1]


def test_products_of_16_bits_change_little_and_only_where_the_cpu_has_them(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32)
    with torch.no_grad():
        exact, labels = predictions(model, ROWS)
        for has, wanted in ((True, True), (False, True), (True, False)):
            monkeypatch.setattr(lora, "_multiplies_16_bits", lambda has=has: has)
            with lora.autocast(wanted):
                assert torch.is_autocast_enabled("cpu") is (has and wanted)
                logits, _ = predictions(model, ROWS)
            assert logits.dtype == torch.float32
            assert torch.equal(logits, exact) is not (has and wanted)
            off = (cross_entropy(logits, labels) - cross_entropy(exact, labels)).abs()
            assert off < 0.01


def test_gradients_of_16_bit_products_point_the_same_way(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "_multiplies_16_bits", lambda: True)
    gradients = []
    for wanted in (False, True):
        model = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32)
        with lora.autocast(wanted):
            learn_from(model, ROWS)
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    assert gradients[1].dtype == torch.float32
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999


@pytest.mark.parametrize(("flags", "has"), [("avx512_bf16", True), ("amx_bf16", True), ("avx512f", False)])
def test_the_cpu_says_whether_it_multiplies_16_bits(monkeypatch: pytest.MonkeyPatch, flags: str, has: bool) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _, encoding: f"flags : fpu {flags} sse")
    assert lora._multiplies_16_bits.__wrapped__() is has


def test_training_lowers_the_loss_and_repeats_with_its_seed(tiny: LoadedModel) -> None:
    recipe = Recipe(rank=4, learning_rate=5e-3, batch=3, epochs=20)
    seen: list[tuple[int, float]] = []
    first = train(tiny.path, ROWS, recipe, lambda done, loss: seen.append((done, loss)))
    second = train(tiny.path, ROWS, recipe)
    assert [done for done, _ in seen] == list(range(3, 61, 3))
    assert seen[-1][1] < 0.8 * seen[0][1]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_saved_adapter_merges_to_the_model_that_was_trained(tiny: LoadedModel, tmp_path: Path) -> None:
    recipe = Recipe(rank=4, learning_rate=5e-3, batch=3, epochs=20)
    losses: list[float] = []
    factors = train(tiny.path, ROWS, recipe, lambda _, loss: losses.append(loss))
    save(factors, recipe, tmp_path / "a.safetensors")
    assert is_adapter(tmp_path / "a.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]
    merged = AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32)
    merged.load_state_dict(read_weights(tiny.path, tmp_path / "a.safetensors"), strict=False)
    with torch.inference_mode():
        assert float(cross_entropy(*predictions(merged, ROWS))) == pytest.approx(losses[-1], rel=0.2)
