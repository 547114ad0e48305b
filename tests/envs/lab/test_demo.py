"""The demo: what it asks of the environment, and what it says when it can't begin."""

from __future__ import annotations

import argparse
import asyncio
import io
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from rich.console import Console

from envs.lab import demo
from envs.lab.demo import _environment_settings, _read_metrics, _start_parts
from envs.lab.parsers import demo_parser
from envs.lab.parts import Parts
from envs.lab.synthetic import TOOLS
from envs.swe.environment import SWEEnvConfig


def test_the_environment_is_told_where_api_and_inference_server_are(tmp_path: Path) -> None:
    options = argparse.Namespace(run_dir=tmp_path, tags="terminal", group_size=4, env=[("sandbox", "kubernetes")])
    settings = _environment_settings(options, "http://api", "http://server/v1")
    assert settings["env.rollout_server_url"] == "http://api"
    assert settings["openai.base_url"] == "http://server/v1"
    assert settings["env.tools"] == ",".join(TOOLS)
    assert settings["env.sandbox"] == "kubernetes", "what is given is passed on"
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


def test_a_learning_run_is_not_mixed_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(SystemExit, match="2"):
        demo.main(["--run-dir", str(tmp_path)])
    assert "holds a learning run; give another --run-dir" in capsys.readouterr().err


async def test_set_up_is_side_by_side_and_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    api_answers = asyncio.Event()

    async def no_daemon() -> None:
        await api_answers.wait()
        order.append("sandboxes")

    async def no_image() -> None:
        pass

    async def adapter(name: str, *, given: Path | None, log: Path) -> Path:
        await asyncio.to_thread(log.write_text, "warm start: 8 of 80 transcripts\n")
        await asyncio.wait_for(api_answers.wait(), 30)
        await asyncio.sleep(1.1)
        order.append("warm start")
        return tmp_path

    class FewParts(Parts):
        async def trainer_api(self) -> str:
            order.append("trainer API")
            api_answers.set()
            return "http://api"

        async def start(self, name: str, *arguments: str, env: object = None) -> None:
            order.append(name)

    async def healthy(engine: str) -> None:
        order.append("answered")

    monkeypatch.setattr(demo, "ensure_daemon", no_daemon)
    monkeypatch.setattr(demo, "ensure_base_image", no_image)
    monkeypatch.setattr(demo, "adapter", adapter)
    monkeypatch.setattr(demo, "wait_until_healthy", healthy)
    monkeypatch.setattr("envs.lab.dashboard.INTERVAL_S", 0.0)
    said = io.StringIO()
    options = demo_parser().parse_args(["--run-dir", str(tmp_path)])
    async with AsyncExitStack() as daemon, FewParts(tmp_path) as parts:
        assert await _start_parts(parts, daemon, options, Console(file=said, width=200)) == "http://api"
    assert order == ["trainer API", "sandboxes", "warm start", "engine", "environment", "answered"]
    assert "Docker daemon and sandbox image: ready | warm start: ready | trainer API: ready" in said.getvalue()
