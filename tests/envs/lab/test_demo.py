"""The demo: what it asks of the environment, and what it says when it can't begin."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from envs.lab import demo
from envs.lab.demo import _read_metrics, _settings
from envs.lab.synthetic import TOOLS
from envs.swe.environment import SWEEnvConfig


def test_the_environment_is_told_where_api_and_inference_server_are(tmp_path: Path) -> None:
    options = argparse.Namespace(run_dir=tmp_path, tags="terminal", group_size=4)
    settings = _settings(options, "http://api", "http://server/v1")
    assert settings["env.rollout_server_url"] == "http://api"
    assert settings["openai.base_url"] == "http://server/v1"
    assert settings["env.tools"] == ",".join(TOOLS)
    known = {f"env.{name}" for name in SWEEnvConfig.model_fields}
    assert set(settings) - known == {"openai.base_url"}


def test_before_the_first_group_there_are_no_figures(tmp_path: Path) -> None:
    assert _read_metrics(tmp_path / "metrics.json") is None


def test_what_is_missing_is_said_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def no_daemon() -> None:
        raise OSError("no Docker daemon here")

    monkeypatch.setattr(demo, "ensure_daemon", no_daemon)
    assert demo.main(["--run-dir", str(tmp_path)]) == 1
    assert "demo: no Docker daemon here" in capsys.readouterr().err
