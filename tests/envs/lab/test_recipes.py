"""Recipes of adapters, and those in the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envs.lab.kinds import EASY
from envs.lab.recipes import RECIPES, Recipe, adapter, find
from envs.swe import STARTER
from envs.tasks.harbor import load_tasks

TINY = Recipe(examples=8, planned=1.0, decided=1.0, model="tiny")


def test_another_recipe_is_another_adapter() -> None:
    others = [replace(TINY, examples=9), replace(TINY, planned=0.5), replace(TINY, seed=1), replace(TINY, revision=2)]
    assert len({recipe.digest for recipe in (TINY, replace(TINY), *others)}) == 5


def test_adapters_keep_their_names_and_the_one_of_another_training_has_another() -> None:
    assert {name: RECIPES[name].digest for name in ("quick", "full")} == {
        "quick": "6b99013d0992",
        "full": "0000d01d17e2",
    }
    through = [replace(RECIPES["few"], agent="mini-swe-agent")]
    through += [replace(through[0], whole=1), replace(through[0], autocast=False), replace(through[0], examples=120)]
    through += [replace(through[0], whole=1, autocast=False, revision=1, examples=120)]
    assert len({recipe.digest for recipe in through}) == 5
    assert all(recipe.digest.startswith("mini-swe-agent-") for recipe in through)
    assert replace(RECIPES["full"], agent="atropos").path() == RECIPES["full"].path()


async def test_an_adapter_of_ones_own_is_taken_before_any_other(tmp_path: Path) -> None:
    own = tmp_path / "mine.safetensors"
    with pytest.raises(FileNotFoundError, match=r"mine\.safetensors: there is no such file"):
        await adapter("quick", given=own)
    own.write_bytes(b"")
    assert await adapter("quick", given=own) == own
    assert await adapter("quick", given=tmp_path) == tmp_path, "PEFT saves a folder"


def test_what_was_made_before_is_found_the_full_one_first(tmp_path: Path) -> None:
    assert find("quick", cache=tmp_path) is find("full", cache=tmp_path) is None
    quick, full = (RECIPES[name].path(tmp_path) for name in ("quick", "full"))
    quick.parent.mkdir()
    quick.write_bytes(b"")
    assert find("quick", cache=tmp_path) == quick
    assert find("full", cache=tmp_path) is None
    full.write_bytes(b"")
    assert find("quick", cache=tmp_path) == find("full", cache=tmp_path) == full


def test_the_quick_recipe_is_good_for_kinds_of_which_the_starter_pack_has_tasks() -> None:
    assert RECIPES["quick"].kinds == EASY
    tags = [tag for task in load_tasks(STARTER) for tag in task.tags]
    assert all(tag in tags for tag in EASY)
    assert sum(tag in EASY for tag in tags) >= 8
