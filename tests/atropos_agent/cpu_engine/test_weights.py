"""Weights are taken out of a checkpoint as the forward pass wants them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from atropos_agent.cpu_engine.model import LoadedModel, read_weights
from atropos_agent.cpu_engine.weights import Block, Linear, Weights


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_product_is_the_plain_one_for_any_number_of_rows(rows: int) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(48, 32), torch.randn(48), torch.randn(rows, 32)
    with torch.inference_mode():
        assert torch.allclose(Linear(weight, bias)(x), functional.linear(x, weight, bias), atol=1e-5)


def test_a_bias_that_is_not_computed_is_refused(tiny: LoadedModel) -> None:
    weights = {**read_weights(tiny.path), "model.layers.0.mlp.down_proj.bias": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"does not compute model\.layers\.0\.mlp\.down_proj\.bias"):
        Block.read(weights, "model.layers.0.")


def test_a_missing_weight_is_named(tiny: LoadedModel) -> None:
    weights = read_weights(tiny.path)
    del weights["model.norm.weight"]
    with pytest.raises(ValueError, match=r"lack 'model\.norm\.weight'"):
        Weights.read(weights, 1, tied=True)


def test_models_of_one_config_have_the_same_shapes(tiny: LoadedModel) -> None:
    weights = read_weights(tiny.path)
    one, two = (Weights.read(weights, layers, tied=True) for layers in (1, 2))
    assert one.shapes == Weights.read(weights, 1, tied=True).shapes
    assert one.shapes != two.shapes
