"""Options of the software engineering environment."""

import pytest
from pydantic import ValidationError

from envs.swe.config import SWEEnvConfig
from tools import STANDARD, check_names


def test_without_a_tool_an_agent_can_do_nothing():
    with pytest.raises(ValidationError, match="at least 1 item"):
        SWEEnvConfig(tools=[])


def test_the_tools_by_default_are_known():
    assert check_names(SWEEnvConfig().tools) == []
    assert set(SWEEnvConfig().tools) < set(STANDARD)


async def view(path: str) -> str:
    """Look at a file."""
    return path


def weather(city: str) -> str:
    """Forecast the weather."""
    return f"{city}: rain"


def test_mistakes_of_own_tools_are_found_before_there_is_a_sandbox():
    said = [str(problem) for problem in check_names(["view", f"{__name__}:view", f"{__name__}:weather"])]
    assert said == [
        f"--env.tools {__name__}:view: view is named 'view' too; rename it or leave one out",
        f"--env.tools {__name__}:weather: it has no `async def`, so it gets the sandbox and returns the tool; "
        "it returned a str",
    ]


def test_each_unknown_tool_is_named_with_the_nearest_one():
    said = [str(problem) for problem in check_names(["termnal", "view", "view", "no_module:tool"])]
    assert "did you mean terminal?" in said[0] and "view: it is named twice" in said[1] and "no_module" in said[2]
