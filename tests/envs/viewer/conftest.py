"""Fixtures of the page's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from samples import HOSTILE, rollout, task
from shown_runs import evaluated, indexed, make_run
from starlette.testclient import TestClient

from envs.types import Seat
from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import open_runs

ANSI = "\x1b[31mred\x1b[0m \x00 \x07 \u202egnihtemos\u202c"


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four groups and two rollouts of an evaluation, indexed."""
    also = [evaluated("e-0", True), evaluated("e-1", False)]
    directory = asyncio.run(make_run(tmp_path_factory.mktemp("shown") / "run", also=also))
    indexed(directory)
    return directory


@pytest.fixture(scope="session")
def hostile_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rollouts are full of markup, control characters and a line of 10 MB."""
    text = "\n".join([*HOSTILE, ANSI])
    names = [*HOSTILE, ANSI]
    also = [
        rollout(name, of=task(name, tags=(name,), band=name), reply=text, command=text, output=text, explanation=text)
        for name in names
    ]
    long = rollout("long", output="x" * 10_000_000, seat=Seat(step=1))
    also.append(replace(long, result=replace(long.result, segments=())))
    directory = asyncio.run(make_run(tmp_path_factory.mktemp("hostile") / "run", groups=(), also=also))
    indexed(directory)
    return directory


@pytest.fixture(scope="session")
def client(run_dir: Path, hostile_dir: Path) -> Iterator[TestClient]:
    """A browser without a script, at the page of two runs: 0 is the ordinary one, 1 the hostile one."""
    runs = open_runs([run_dir, hostile_dir])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        yield client
