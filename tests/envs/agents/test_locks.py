"""Locks beside recipes."""

import json
from dataclasses import replace

import pytest

from envs.agents import locks
from envs.agents.naming import FOREIGN
from envs.agents.recipes import Platform, Recipe

X64 = Platform("x64", "glibc", "3.11")
PYPI = Recipe(pypi=("mine==1.0",), bare=("alone==2.0",))
LOCK = """# of: mine==1.0 alone==2.0
mine==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
tomli==2.0 ; python_full_version < '3.11' \\
    --hash=sha256:cc
alone==2.0 \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize("name", ["claude-code", "codex", "kilo", "opencode"])
def test_agents_of_one_package_are_locked(name):
    agent = FOREIGN[name]
    lock = locks.find(agent.name, X64, agent.recipe)
    assert lock
    assert "resolved" not in lock and "://" not in lock


def test_another_version_has_no_lock():
    agent = FOREIGN["codex"]
    assert locks.find(agent.name, X64, agent.recipe.at("9.8.7")) == ""


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
    (pip,) = PYPI.commands(X64, PYPI.on(X64, "mine"), tmp_path, locked=True)
    assert {"--require-hashes", "--no-deps", f"--requirement={tmp_path / 'locked.txt'}"} < set(pip)
    assert "mine==1.0" not in pip


def test_npm_installs_what_its_lock_says(tmp_path):
    recipe = Recipe(npm=("mine-{cpu}@1.0",))
    lock = json.dumps({"name": "pack", "packages": {"": {"dependencies": {"mine-x64": "1.0"}}}})
    (tmp_path / "mine-x64.json").write_text(lock)
    locks.write(locks.find("mine", X64, recipe, tmp_path), recipe, X64, tmp_path)
    assert json.loads((tmp_path / "package.json").read_text())["dependencies"] == {"mine-x64": "1.0"}
    (npm,) = recipe.commands(X64, recipe.on(X64, "mine"), tmp_path, locked=True)
    assert npm[:2] == ["npm", "ci"] and "--ignore-scripts" in npm and "mine-x64@1.0" not in npm
