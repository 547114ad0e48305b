"""Locks beside recipes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envs.agents import locks
from envs.agents.naming import FOREIGN
from envs.agents.recipes import Platform, Recipe

X64 = Platform("x64", "glibc", "3.11")
PYPI = Recipe(pypi=("mine==1.0",), bare=("alone==2.0",))
LOCK = """# of: mine==1.0 alone==2.0
mine==1.0 --hash=sha256:aa --hash=sha256:bb
tomli==2.0 ; python_full_version < '3.11' --hash=sha256:cc
alone==2.0 --hash=sha256:dd
"""
PYLOCK = """
[[packages]]
name = "mine"
version = "1.0"
marker = "python_full_version >= '3.10'"
wheels = [
  { url = "https://host/mine-1.0%2Blocal-cp312-cp312-manylinux_2_28_x86_64.whl", hashes = { sha256 = "bb" } },
  { url = "https://host/mine-1.0-cp310-abi3-musllinux_1_2_aarch64.whl", hashes = { sha256 = "aa" } },
  { url = "https://host/mine-1.0-cp312-cp312-win_amd64.whl", hashes = { sha256 = "11" } },
  { url = "https://host/mine-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", hashes = { sha256 = "22" } },
  { url = "https://host/mine-1.0-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", hashes = { sha256 = "33" } },
  { url = "https://host/mine-1.0-cp312-cp312-macosx_11_0_x86_64.whl", hashes = { sha256 = "44" } },
]
[[packages]]
name = "windows-alone"
version = "1.0"
wheels = [{ url = "https://host/windows_alone-1.0-cp312-cp312-win_amd64.whl", hashes = { sha256 = "55" } }]
[[packages]]
name = "tomli"
version = "2.0"
marker = "python_full_version < '3.11'"
wheels = [{ url = "https://host/tomli-2.0-py3-none-any.whl", hashes = { sha256 = "cc" } }]
"""


@pytest.mark.parametrize("agent", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("cpu", ["x64", "arm64"])
def test_packages_are_locked_with_all_that_they_depend_on(agent, cpu):
    lock = locks.find(agent.name, replace(X64, cpu=cpu), agent.recipe)
    if agent.name in ("goose", "kilo") and cpu == "arm64":
        pytest.skip("npm has no package of it for this processor")
    assert lock
    assert "resolved" not in lock and "://" not in lock
    lines = lock.splitlines()[1:]
    assert agent.recipe.npm or all("==" in line and "--hash=sha256:" in line for line in lines)


def test_a_lock_has_the_hashes_of_wheels_for_linux_alone(monkeypatch):
    monkeypatch.setattr(locks, "_run", lambda command, given: "packages = []" if "--no-deps" in command else PYLOCK)
    assert locks.build(PYPI, X64).splitlines() == [
        "# of: mine==1.0 alone==2.0",
        "mine==1.0 --hash=sha256:aa --hash=sha256:bb",
        "tomli==2.0 ; python_full_version < '3.11' --hash=sha256:cc",
    ]


def test_a_lock_of_npms_has_what_its_platform_needs_alone(monkeypatch):
    """npm locks optional packages for all platforms, and names those that the registry lacks: `npm ci` misses them."""
    optional = {"pty-linux": "1.0", "pty-darwin": "1.0", "pty-lacking": "1.0", "pty-posix": "1.0"}
    packages = {
        "": {"dependencies": {"mine": "1.0"}},
        "node_modules/mine": {"version": "1.0", "resolved": "https://host/x", "optionalDependencies": optional},
        "node_modules/pty-linux": {"version": "1.0", "os": ["linux"], "cpu": "x64", "libc": ["glibc"]},
        "node_modules/pty-darwin": {"version": "1.0", "os": ["darwin"]},
        "node_modules/pty-posix": {"version": "1.0", "os": ["!win32"]},
    }

    def npm(command):
        (folder,) = (part.removeprefix("--prefix=") for part in command if part.startswith("--prefix="))
        Path(folder, "package-lock.json").write_text(json.dumps({"name": "x", "packages": packages}))

    monkeypatch.setattr(locks, "_run", npm)
    lock = json.loads(locks.build(Recipe(npm=("mine@1.0",)), X64))
    assert list(lock["packages"]) == ["", "node_modules/mine", "node_modules/pty-linux", "node_modules/pty-posix"]
    assert lock["packages"]["node_modules/mine"] == {
        "version": "1.0",
        "optionalDependencies": {"pty-linux": "1.0", "pty-posix": "1.0"},
    }


def test_another_version_has_no_lock():
    agent = FOREIGN["codex"]
    assert locks.find(agent.name, X64, agent.recipe.with_version("9.8.7")) == ""


def test_the_packages_of_a_platform_are_installed_by_their_hashes_alone(tmp_path):
    (tmp_path / "mine.txt").write_text(LOCK)
    lock = locks.find("mine", X64, PYPI, tmp_path)
    locks.write(lock, PYPI, X64, tmp_path)
    assert (tmp_path / "locked.txt").read_text().splitlines() == [
        "mine==1.0 --hash=sha256:aa --hash=sha256:bb",
        "alone==2.0 --hash=sha256:dd",
    ]
    locks.write(lock, PYPI, replace(X64, python="3.10"), tmp_path)
    assert "tomli==2.0 --hash=sha256:cc" in (tmp_path / "locked.txt").read_text()
    (pip,) = PYPI.commands(X64, PYPI.packages_for(X64, "mine"), tmp_path, locked=True)
    assert {"--require-hashes", "--no-deps", f"--requirement={tmp_path / 'locked.txt'}"} < set(pip)
    assert "mine==1.0" not in pip


def test_npm_installs_what_its_lock_says(tmp_path):
    recipe = Recipe(npm=("mine-{cpu}@1.0",))
    lock = json.dumps({"name": "pack", "packages": {"": {"dependencies": {"mine-x64": "1.0"}}}})
    (tmp_path / "mine-x64.json").write_text(lock)
    locks.write(locks.find("mine", X64, recipe, tmp_path), recipe, X64, tmp_path)
    assert json.loads((tmp_path / "package.json").read_text())["dependencies"] == {"mine-x64": "1.0"}
    (npm,) = recipe.commands(X64, recipe.packages_for(X64, "mine"), tmp_path, locked=True)
    assert npm[:2] == ["npm", "ci"] and "--ignore-scripts" in npm and "mine-x64@1.0" not in npm
