"""Weights of a trainer in this process at the inference server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_httpserver import HTTPServer
from safetensors.torch import load_file
from werkzeug import Request, Response

from envs.trainers.transfer import LoadedWeights


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_weights_are_loaded_under_their_version_and_the_last_two_are_kept(
    httpserver: HTTPServer, model: Path, tmp_path: Path
) -> None:
    loaded: list[tuple[int, float]] = []

    def load(request: Request) -> Response:
        told: Any = json.loads(request.get_data())
        folder = Path(told["path"])
        assert (folder / "config.json").exists()
        loaded.append((told["version"], float(load_file(folder / "model.safetensors")["w"])))
        return Response("{}")

    httpserver.expect_request("/load_weights", method="POST").respond_with_handler(load)
    weights = LoadedWeights(httpserver.url_for("/v1"), tmp_path / "weights", model, version=5)
    for value in (1.0, 2.0, 3.0):
        weights.pause()
        weights.send_weights(iter([("w", torch.tensor(value, requires_grad=True))]))
        weights.resume()
    assert loaded == [(5, 1.0), (6, 2.0), (7, 3.0)]
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["step-000006", "step-000007"]
    after = LoadedWeights(httpserver.url_for("/"), tmp_path / "weights", model, version=7)
    after.send_weights(iter([("w", torch.tensor(4.0))]))
    assert loaded[-1] == (7, 4.0), "a step that was lost with its process had the same number"
