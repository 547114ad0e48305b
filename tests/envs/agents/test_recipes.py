"""Which packages an agent is made of, for which image."""

from pathlib import Path

import pytest

from envs.agents.recipes import Platform, Recipe
from envs.types import InfraError

DEBIAN = Platform("x64", "glibc", "3.11")
ALPINE = Platform("arm64", "musl", "")


def test_names_of_packages_follow_the_platform():
    recipe = Recipe(npm=("agent-linux-{cpu}{musl}@1",))
    assert recipe.on(DEBIAN, "a") == ("agent-linux-x64@1",)
    assert recipe.on(ALPINE, "a") == ("agent-linux-arm64-musl@1",)


@pytest.mark.parametrize(
    ("recipe", "platform", "what"),
    [
        (Recipe(npm=("x",), libc="glibc"), ALPINE, "built for glibc and the task's image has musl"),
        (Recipe(pypi=("x",)), ALPINE, "no python3"),
        (Recipe(pypi=("x",), least_python="3.12"), DEBIAN, "needs Python 3.12 and the task's image has 3.11"),
    ],
)
def test_an_image_that_cannot_run_an_agent_is_told_apart(recipe, platform, what):
    with pytest.raises(InfraError, match=what) as caught:
        recipe.on(platform, "someone")
    assert caught.value.kind == "task"
    assert "someone" in str(caught.value)


def test_no_script_of_a_package_is_run():
    npm = Recipe(npm=("x@1",)).command(DEBIAN, ("x@1",), Path("/to"))
    assert npm[:2] == ["npm", "install"] and "--ignore-scripts" in npm and npm[-1] == "x@1"
    assert {"--cpu=x64", "--libc=glibc", "--prefix=/to"} < set(npm)
    pip = Recipe(pypi=("y==2",)).command(DEBIAN, ("y==2",), Path("/to"))
    assert {"--only-binary=:all:", "--python-version=3.11", "--target=/to/python", "y==2"} < set(pip)
    assert "--platform=manylinux_2_28_x86_64" in pip
    assert "--platform=musllinux_1_2_aarch64" in Recipe(pypi=("y",)).command(ALPINE, ("y",), Path("/to"))
