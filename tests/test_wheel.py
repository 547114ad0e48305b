"""What is in the wheel. `.ci/wheel` runs it in an empty environment, outside of the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import atropos_agent

ROOT = Path(__file__).parent.parent
PACKAGES = ("atropos_agent", "envs", "tools", "sandboxes")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built by the backend that is installed beside the tests."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_it_holds_every_file_that_git_knows_of_the_four_packages(wheel: zipfile.ZipFile) -> None:
    known = subprocess.run(["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    if known.returncode:
        pytest.skip("not in a git checkout")
    held = set(wheel.namelist())
    assert {name for name in known.stdout.split("\0") if name} <= held
    for name in (
        *(f"{package}/py.typed" for package in PACKAGES),
        "envs/lab/trainer.py",
        "envs/lab/templates/learning.html.j2",
        "envs/judging/inside/standin.sh",
        "sandboxes/docker/executor/executor-amd64",
        "envs/swe/starter/create-notes/task.toml",
    ):
        assert name in held


def test_its_programs_keep_their_right_to_be_executed(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        if (ROOT / name).is_file() and (ROOT / name).stat().st_mode & 0o111:
            assert wheel.getinfo(name).external_attr >> 16 & 0o111, name


def test_it_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(metadata).decode().splitlines()
    assert f"Version: {atropos_agent.__version__}" in lines
    assert "License-Expression: MIT" in lines
    assert any(line.startswith("Project-URL: ") for line in lines)
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert b"Permission is hereby granted" in wheel.read(licence)
