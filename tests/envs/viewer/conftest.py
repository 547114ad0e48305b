"""Fixtures of the page's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import open_runs


@pytest.fixture(scope="session")
def client(run_dir: Path, hostile_dir: Path) -> Iterator[TestClient]:
    """A browser without a script, at the page of two runs: 0 is the ordinary one, 1 the hostile one."""
    runs = open_runs([run_dir, hostile_dir])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        yield client
