"""What is known of a foreign agent."""

from pathlib import Path

import pytest

from envs.agents import facts
from envs.agents.facts import ForeignAgent, Place, Start
from envs.agents.naming import FOREIGN
from envs.agents.recipes import Recipe

PLACE = Place("Do 'it' --now;\n$HOME", "http://127.0.0.1:31281", "/app", "x64", "", 32768, 1024, 7)


def test_a_protocol_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'telepathy' is none of"):
        ForeignAgent("a", "MIT", Recipe(), lambda at: Start([]), "telepathy", 1, "", "", ("sh", "c", {}))


@pytest.mark.parametrize(("shell", "edits"), [(None, None), (("sh", "c", {}), lambda path, text: text)])
def test_an_agent_calls_a_shell_or_edits_by_text(shell, edits):
    with pytest.raises(ValueError, match="either shell or edits"):
        ForeignAgent("a", "MIT", Recipe(), lambda at: Start([]), "chat", 1, "", "", shell, edits=edits)


@pytest.mark.parametrize("agent", FOREIGN.values(), ids=list(FOREIGN))
class TestEachAgent:
    def test_is_told_the_task_as_it_is_and_the_way_to_the_gateway(self, agent):
        start = agent.start(PLACE)
        assert PLACE.task in start.argv
        assert PLACE.url in "".join([*start.argv, *start.env.values(), *start.files.values()])

    def test_runs_a_program_of_its_pack_and_writes_only_at_home(self, agent):
        start = agent.start(PLACE)
        assert any(part.startswith(facts.PACK) or f"'{facts.PACK}/" in part for part in start.argv)
        assert all(path.startswith(facts.HOME + "/") for path in start.files)

    def test_has_pinned_versions(self, agent):
        assert all("@" in name[1:] for name in agent.recipe.npm)
        assert all("==" in name for name in agent.recipe.pypi)

    def test_takes_at_most_forty_lines(self, agent):
        path = Path(facts.__file__).with_name(agent.name.replace("-", "_") + ".py")
        assert len(path.read_text().splitlines()) <= 40
