"""Agents by name, dotted path and file."""

import pytest

from atropos_agent.agent import AtroposAgent
from envs.agents.codex import AGENT
from envs.agents.naming import FOREIGN, find_agent
from envs.swe.environment import SWEEnv, SWEEnvConfig

OWN = """
from envs.agents.facts import ForeignAgent, Start
from envs.agents.recipes import Recipe

RECIPE = Recipe(npm=("own@1",))
AGENT = ForeignAgent("own", "MIT", RECIPE, lambda at: Start(["own", at.task]), "chat", 1, "", "", ("sh", "c", {}))
"""


def test_a_name_a_dotted_path_and_a_file_find_one(tmp_path):
    assert find_agent("codex") is AGENT
    assert find_agent("envs.agents.codex:AGENT") is AGENT
    assert find_agent("atropos") is AtroposAgent
    (tmp_path / "my-own.py").write_text(OWN)
    assert find_agent(str(tmp_path / "my-own.py")).name == "own"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("codec", "did you mean codex"),
        ("/no/such.py", "no such file"),
        ("json:loads", "neither a ForeignAgent .* nor a subclass of AtroposAgent"),
        ("envs.agents.codex:start", "neither a ForeignAgent"),
    ],
)
def test_what_is_none_is_refused_with_the_remedy(name, what):
    with pytest.raises(ValueError, match=f"--env.agent .*{what}"):
        find_agent(name)


def test_a_file_without_an_agent_is_refused(tmp_path):
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ValueError, match="defines no AGENT"):
        find_agent(str(tmp_path / "empty.py"))


@pytest.mark.parametrize("text", ["def f(:", "import no_such_library", "1 / 0"])
def test_a_file_that_cannot_be_imported_is_refused_with_the_option(tmp_path, text):
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(ValueError, match=r"^--env.agent .*broken.py: broken can't be imported: "):
        find_agent(str(tmp_path / "broken.py"))


async def test_the_environment_refuses_a_misspelt_one_at_the_start(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(ExceptionGroup) as caught:
        await SWEEnv.preflight(SWEEnvConfig(agent="codexx"))
    assert any("did you mean codex" in str(error) for error in caught.value.exceptions)


async def test_the_environment_refuses_an_opening_that_no_row_can_hold(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(ExceptionGroup) as caught:
        await SWEEnv.preflight(SWEEnvConfig(agent="claude-code", max_token_length=20_000))
    assert any("claude-code begins with about 20000 tokens" in str(error) for error in caught.value.exceptions)


def test_each_says_what_it_is():
    for name, agent in FOREIGN.items():
        assert agent.name == name and agent.licence and agent.opening and agent.budget and agent.beside


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compaction": "summary"}, "--env.compaction: agent codex makes room in its own way, and doctor shows where"),
        ({"tools": ["terminal"]}, "--env.tools: agent codex has its own tools; leave it out"),
        ({"system_prompt": "Be brief."}, "--env.system_prompt: agent codex has its own system prompt; leave it out"),
    ],
)
async def test_the_environment_refuses_options_of_our_agent_for_another_one(monkeypatch, given, said):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    for agent, refused in (("codex", True), ("atropos", False), ("codex,atropos", False)):
        with pytest.raises(ExceptionGroup) as caught:
            await SWEEnv.preflight(SWEEnvConfig(agent=agent, **given))
        assert any(said in str(error) for error in caught.value.exceptions) == refused


def test_a_version_behind_the_name_is_another_pin():
    assert find_agent("codex@0.181.0").recipe.npm == ("@openai/codex@0.181.0-linux-{cpu}",)
    with pytest.raises(ValueError, match=r"--env.agent codex@new: 'new' is no version"):
        find_agent("codex@new")
