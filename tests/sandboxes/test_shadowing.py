"""A package of the user's that hides one of ours is named, with the remedy."""

import os
import subprocess
import sys

import pytest

from sandboxes.shadowing import ROOT


def python(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def package(folder, name):
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    return str(folder / name)


@pytest.mark.parametrize("name", ["tools", "atropos_agent", "sandboxes"])
def test_a_package_named_like_ours_is_named_by_the_command_line(tmp_path, name):
    hiding = package(tmp_path, name)
    done = python(tmp_path, "-m", "envs.swe", "--help")
    assert done.returncode != 0
    assert "hides" in done.stderr and (hiding in done.stderr or name == "sandboxes")
    assert "Traceback" not in done.stderr


def test_a_module_beside_an_environment_of_ones_own_is_named(tmp_path):
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "my_env.py").write_text("from envs.base import AgentEnv")
    done = python(tmp_path, "my_env.py")
    assert f"{tmp_path / 'tools.py'} hides the package 'tools' of atropos-agent" in done.stderr.splitlines()[-1]


def test_a_package_named_envs_is_named_too(tmp_path):
    hiding = package(tmp_path, "envs")
    done = python(tmp_path, "-m", "atropos_agent", "serve")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{hiding}/__init__.py hides the package 'envs'")
    assert python(ROOT, "-m", "atropos_agent", "--help").returncode == 0
