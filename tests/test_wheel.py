"""The wheel: what is in it, and that it works where there is no checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import atropos_agent

ROOT = Path(__file__).parent.parent
PACKAGES = ("atropos_agent", "envs", "tools", "sandboxes")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that is installed beside the tests."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment with the wheel, which sees the packages of ours but not our sources."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    # Behind the environment's own. A .pth file in them, such as that of our editable install, is not read from here.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    return place / "bin"


def says(place: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_every_file_that_git_knows_of_the_four_packages(wheel: Path) -> None:
    known = subprocess.run(["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    if known.returncode:
        pytest.skip("not in a git checkout")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in known.stdout.split("\0") if name} <= held
    for name in (
        *(f"{package}/py.typed" for package in PACKAGES),
        "envs/lab/trainer.py",
        "envs/lab/templates/learning.html.j2",
        "envs/judging/inside/preload-arm64.so",
        "sandboxes/docker/executor/executor-amd64",
        "envs/swe/starter/create-notes/task.toml",
    ):
        assert name in held


def test_it_says_what_it_is(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in held.namelist() if name.endswith(".dist-info/METADATA")]
    lines = held.read(metadata).decode().splitlines()
    assert f"Version: {atropos_agent.__version__}" in lines
    assert "License-Expression: MIT" in lines
    assert any(line.startswith("Project-URL: ") for line in lines)
    (licence,) = [name for name in held.namelist() if name.endswith("licenses/LICENSE")]
    assert b"Permission is hereby granted" in held.read(licence)


def test_its_programs_keep_their_right_to_be_executed(installed: Path, tmp_path: Path) -> None:
    where = says(
        tmp_path, str(installed / "python"), "-c", "import sandboxes, envs; print(*sandboxes.__path__, *envs.__path__)"
    )
    assert all(str(installed.parent) in place and str(ROOT) not in place for place in where.split())
    for place, file in zip(
        where.split(), ("docker/executor/executor-amd64", "swe/starter/create-notes/tests/test.sh"), strict=True
    ):
        assert (Path(place) / file).stat().st_mode & 0o111


def test_its_command_line_works_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert "warmstart" in says(tmp_path, str(installed / "atropos-agent"), "--help")
    assert "serve" in says(tmp_path, str(installed / "python"), "-m", "envs.swe", "--help")
    assert "--preset" in says(tmp_path, str(installed / "atropos-agent"), "learn", "--help")
    shown = says(
        tmp_path,
        str(installed / "python"),
        "-c",
        "from importlib.util import find_spec as f; print(f('envs.lab.trainer'))",
    )
    assert str(installed.parent) in shown, "the trainer that `learn` starts"
