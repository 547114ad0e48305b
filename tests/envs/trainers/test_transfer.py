"""Weights of a trainer in this process at the inference server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_httpserver import HTTPServer
from safetensors.torch import load_file
from waiting import in_time
from werkzeug import Request, Response

from envs.trainers import transfer
from envs.trainers import weights as trained_weights
from envs.trainers.transfer import LoadedWeights
from envs.trainers.weights import WeightsRefusedError


class Engine:
    """The embedded server, as far as weights go. loaded: versions and values; has: what it has now."""

    def __init__(self, server: HTTPServer) -> None:
        self.loaded: list[tuple[int, float]] = []
        self.has: dict[str, Any] = {"version": 0, "path": None}
        server.expect_request("/load_weights", method="POST").respond_with_handler(self._load)
        server.expect_request("/weight_version").respond_with_handler(lambda _: Response(json.dumps(self.has)))

    def _load(self, request: Request) -> Response:
        self.has = json.loads(request.get_data())
        folder = Path(self.has["path"])
        assert (folder / "config.json").exists()
        self.loaded.append((self.has["version"], float(load_file(folder / "model.safetensors")["w"])))
        return Response("{}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_weights_are_loaded_under_their_version_and_the_last_two_are_kept(
    httpserver: HTTPServer, model: Path, tmp_path: Path
) -> None:
    loaded = Engine(httpserver).loaded
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


def test_a_server_that_comes_back_gets_the_weights_again(
    httpserver: HTTPServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "RETRY_S", 0.05)
    engine = Engine(httpserver)
    weights = LoadedWeights(httpserver.url_for("/v1"), tmp_path / "weights", model)
    weights.init_weight_transfer()
    for version in range(2):
        weights.send_weights(iter([("w", torch.tensor(float(version)))]))
    engine.has = {"version": 0, "path": None}
    in_time(lambda: len(engine.loaded) >= 3)
    weights.destroy()
    assert engine.loaded == [(0, 0.0), (1, 1.0), (1, 1.0)]


def test_a_model_that_is_no_folder_is_named_with_the_remedy(httpserver: HTTPServer, tmp_path: Path) -> None:
    weights = LoadedWeights(httpserver.url_for("/v1"), tmp_path / "weights", Path("company/model"))
    with pytest.raises(ValueError, match=r"company/model/config\.json is not there; give the folder"):
        weights.send_weights(iter([("w", torch.tensor(1.0))]))


def test_after_an_older_checkpoint_the_weights_in_use_are_kept_and_those_that_were_lost_are_not(
    httpserver: HTTPServer, model: Path, tmp_path: Path
) -> None:
    Engine(httpserver)
    for version in (9, 3):
        weights = LoadedWeights(httpserver.url_for("/"), tmp_path / "weights", model, version)
        for _ in range(2):
            weights.send_weights(iter([("w", torch.tensor(1.0))]))
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["step-000003", "step-000004"]


def test_weights_that_do_not_fit_are_refused_in_the_words_of_the_server_and_the_old_ones_stay(
    httpserver: HTTPServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_weights, "RETRY_S", 0.0)
    httpserver.expect_request("/load_weights").respond_with_data("the vocabulary has 7 tokens more", status=400)
    weights = LoadedWeights(httpserver.url_for("/"), tmp_path / "weights", model, 3)
    with pytest.raises(WeightsRefusedError, match="answered 400: the vocabulary has 7 tokens more"):
        weights.send_weights(iter([("w", torch.tensor(1.0))]))


def test_weights_that_break_off_half_way_are_never_shown_to_the_server(
    httpserver: HTTPServer, model: Path, tmp_path: Path
) -> None:
    engine = Engine(httpserver)
    weights = LoadedWeights(httpserver.url_for("/"), tmp_path / "weights", model)

    def broken() -> Any:
        yield "w", torch.tensor(1.0)
        raise RuntimeError("the device is lost")

    with pytest.raises(RuntimeError, match="the device is lost"):
        weights.send_weights(broken())
    weights.send_weights(iter([("w", torch.tensor(2.0))]))
    assert engine.loaded == [(0, 2.0)]
