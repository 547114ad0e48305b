"""`agents update`."""

from dataclasses import replace
from functools import partial

import pytest
import small_agent

from envs.agents import locks, updates
from envs.agents.facts import ForeignAgent
from envs.agents.naming import FOREIGN
from envs.agents.recipes import Recipe
from envs.options import tokenizer

SOURCE = """
def start(at):
    return None


PINS = ("mine==1.0", "mine-tools==1.0", "other==1.0.5")
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """An agent in a file of its own, with a lock."""
    (tmp_path / "mine_agent.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    import mine_agent

    monkeypatch.setattr(updates.locks, "path_of", lambda agent, platform, recipe: tmp_path / f"{agent}.txt")
    monkeypatch.setattr(updates.locks, "build", lambda recipe, platform: f"# of: {recipe.pypi[0]}\n")
    (tmp_path / "mine.txt").write_text("# of: mine==1.0\n")
    recipe = Recipe(pypi=("mine==1.0",))
    yield ForeignAgent("mine", "MIT", recipe, mine_agent.start, "chat", 1, "", "", ("sh", "c", {})), tmp_path
    import sys

    del sys.modules["mine_agent"]


async def test_a_pin_and_its_lock_move_when_the_agent_passes(mine, monkeypatch):
    agent, folder = mine
    seen = []

    async def passes(tried, fitted, image):
        seen.append((tried.recipe.pin, (folder / "mine_agent.py").read_text()))
        return True

    monkeypatch.setattr(updates, "agent_works", passes)
    assert await updates.update_agent(agent, "2.0", None)
    assert seen == [("2.0", SOURCE)], "the pin is changed after the check"
    assert 'PINS = ("mine==2.0", "mine-tools==2.0", "other==1.0.5")' in (folder / "mine_agent.py").read_text()
    assert (folder / "mine.txt").read_text() == "# of: mine==2.0\n"


async def test_nothing_changes_when_the_agent_does_not_pass(mine, monkeypatch):
    agent, folder = mine

    async def fails(*_):
        return False

    monkeypatch.setattr(updates, "agent_works", fails)
    assert not await updates.update_agent(agent, "2.0", None)
    assert (folder / "mine_agent.py").read_text() == SOURCE
    assert (folder / "mine.txt").read_text() == "# of: mine==1.0\n"


async def test_nothing_changes_without_a_lock(mine, monkeypatch):
    agent, folder = mine

    def fails(*_):
        raise locks.LockError("there is no uv here")

    monkeypatch.setattr(updates.locks, "build", fails)
    assert not await updates.update_agent(agent, "2.0", None)
    assert (folder / "mine.txt").read_text() == "# of: mine==1.0\n"


def test_versions_of_the_registry_are_shown_beside_the_pins(monkeypatch, capsys):
    monkeypatch.setattr(updates, "newest_of", lambda recipe: "99.0" if "codex" in str(recipe.npm) else recipe.pin)
    assert updates.main(["codex", "pi"]) == 0
    codex, pi = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("codex", "pi "))]
    assert "99.0" in codex and "behind" in codex
    assert "behind" not in pi


@pytest.mark.docker
async def test_an_agent_is_seen_at_work_in_the_base_image_before_its_pin_moves(base_image, hermes, capsys):
    assert await updates.agent_works(small_agent.AGENT, hermes)
    silent = replace(small_agent.AGENT, start=partial(small_agent.start, script="print('I have nothing to ask')"))
    assert not await updates.agent_works(silent, hermes)
    assert "agent's rows: ok: 1 row of linear work" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["nobody"], "there is no agent nobody"),
        (["codex", "--write"], "--tokenizer"),
        (["codex", "--write", "--tokenizer", "/nowhere"], "update: --tokenizer '/nowhere' can't be loaded"),
        (["--to", "1.0"], "one agent"),
    ],
)
def test_wrong_options_are_told(argv, why, capsys):
    assert updates.main(argv) == 2
    assert why in capsys.readouterr().err


def test_a_tokenizer_that_is_a_program_runs_on_request_alone(monkeypatch, capsys):
    def program(name, *, trust_remote_code, **_):
        raise ValueError("it runs" if trust_remote_code else "give trust_remote_code=True")

    monkeypatch.setattr(tokenizer, "_load", program)
    monkeypatch.setattr(tokenizer, "unavailable_reason", lambda: None)
    for more, said in ([], "set --trust-remote-code to run it"), (["--trust-remote-code"], "it runs"):
        assert updates.main(["codex", "--write", "--tokenizer", "kimi", *more]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("agent", FOREIGN.values(), ids=FOREIGN)
def test_the_registry_is_asked_for_the_agents_own_package(agent, monkeypatch):
    asked = []
    monkeypatch.setattr(updates, "_read_first_line", lambda command: asked.append(command) or "")
    updates.newest_of(agent.recipe)
    assert not any(agent.recipe.pin in part for part in asked[0])
