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


def test_each_unknown_tool_is_named_with_the_nearest_one():
    said = [str(problem) for problem in check_names(["termnal", "view", "view", "no_module:tool"])]
    assert "did you mean terminal?" in said[0] and "view: it is named twice" in said[1] and "no_module" in said[2]
