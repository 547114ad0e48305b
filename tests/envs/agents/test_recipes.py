"""Which packages an agent is made of, for which image."""

from pathlib import Path

import pytest

from envs.agents.naming import FOREIGN
from envs.agents.recipes import Platform, Recipe
from envs.types import InfraError

DEBIAN = Platform("x64", "glibc", "3.11")
ALPINE = Platform("arm64", "musl", "")


def test_names_of_packages_follow_the_platform():
    recipe = Recipe(npm=("agent-linux-{cpu}{musl}@1",))
    assert recipe.packages_for(DEBIAN, "a") == ("agent-linux-x64@1",)
    assert recipe.packages_for(ALPINE, "a") == ("agent-linux-arm64-musl@1",)


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
        recipe.packages_for(platform, "someone")
    assert caught.value.kind == "task"
    assert "someone" in str(caught.value)


def test_no_script_of_a_package_is_run():
    (npm,) = Recipe(npm=("x@1",)).commands(DEBIAN, ("x@1",), Path("/to"))
    assert npm[:2] == ["npm", "install"] and "--ignore-scripts" in npm and npm[-1] == "x@1"
    assert {"--cpu=x64", "--libc=glibc", "--prefix=/to"} < set(npm)
    (pip,) = Recipe(pypi=("y==2",)).commands(DEBIAN, ("y==2",), Path("/to"))
    assert {"--only-binary=:all:", "--python-version=3.11", "--target=/to/python", "y==2"} < set(pip)
    assert "--platform=manylinux_2_28_x86_64" in pip
    assert "--platform=musllinux_1_2_aarch64" in Recipe(pypi=("y",)).commands(ALPINE, ("y",), Path("/to"))[0]


def test_what_needs_source_to_be_built_comes_without_it_in_a_folder_of_its_own():
    recipe = Recipe(pypi=("y==2",), bare=("z==3",))
    whole, bare = recipe.commands(DEBIAN, recipe.packages_for(DEBIAN, "a"), Path("/to"))
    assert "y==2" in whole and "--target=/to/python" in whole and "z==3" not in whole and "--no-deps" not in whole
    assert {"z==3", "--target=/to/bare", "--no-deps", "--only-binary=:all:"} < set(bare)


def test_what_a_package_requires_is_not_compared_with_the_python_that_installs_it():
    newer = Platform("x64", "glibc", "3.99")
    assert "--ignore-requires-python" in Recipe(pypi=("y",)).commands(newer, ("y",), Path("/to"))[0]
    older = Platform("x64", "glibc", "3.10")
    assert "--ignore-requires-python" not in Recipe(pypi=("y",)).commands(older, ("y",), Path("/to"))[0]


@pytest.mark.parametrize("agent", FOREIGN.values(), ids=FOREIGN)
def test_another_version_of_an_agent_moves_its_own_packages_alone(agent):
    moved = agent.recipe.with_version("9.8.7")
    before = [*agent.recipe.npm, *agent.recipe.pypi, *agent.recipe.bare]
    after = [*moved.npm, *moved.pypi, *moved.bare]
    assert "9.8.7" in after[0]
    own = before[0].replace("==", "@").rpartition("@")[2].split("-")[0]
    for old, new in zip(before, after, strict=True):
        assert new == old.replace(own, "9.8.7")


@pytest.mark.parametrize("version", ["", "latest", "1.0 --index-url=x", "../x", "1.0/../.."])
def test_only_a_version_is_put_into_the_name_of_a_package(version):
    with pytest.raises(ValueError, match="is no version"):
        Recipe(npm=("name@1.2.3",)).with_version(version)
