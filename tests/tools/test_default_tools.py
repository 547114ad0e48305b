"""The standard set, and the tool that ends a rollout."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tools import ToolCall, check_names, default_tools

if TYPE_CHECKING:
    from sandboxes.base import Limits as NotHere

NAMES = ["terminal", "view", "create", "replace", "insert", "search", "find", "calculator", "submit"]


def test_all_tools_come_in_a_fixed_order(sandbox):
    assert default_tools(sandbox).names == NAMES


def test_chosen_tools_come_in_the_order_in_which_they_are_named(sandbox):
    assert default_tools(sandbox, ["submit", "terminal"]).names == ["submit", "terminal"]
    assert len(default_tools(sandbox, [])) == 0


def test_an_unknown_name_is_refused_with_the_known_ones(sandbox):
    with pytest.raises(ValueError, match=r"--env.tools bash: .*choose terminal, view, .*submit"):
        default_tools(sandbox, ["bash"])


async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def whereabouts(sandbox):
    async def where() -> str:
        """Say where commands start."""
        return sandbox.workdir

    return where


async def test_tools_of_ones_own_are_named_by_dotted_paths(sandbox):
    tools = default_tools(sandbox, ["submit", f"{__name__}:shout", f"{__name__}:whereabouts"])
    assert tools.names == ["submit", "shout", "where"]
    assert (await tools.execute(ToolCall("shout", {"text": "a"}))).content == "A"
    assert (await tools.execute(ToolCall("where", {}))).content == sandbox.workdir


def test_the_schemas_stay_short(sandbox):
    schemas = default_tools(sandbox).schemas
    assert all(schema["function"]["description"] for schema in schemas)
    # Every prompt carries them: about 4 characters a token.
    assert len(json.dumps(schemas)) < 3_600


async def test_tools_of_one_sandbox_work_on_the_same_files(sandbox):
    tools = default_tools(sandbox)
    calls = [
        ToolCall("create", {"path": "a.txt", "content": "one\n"}),
        ToolCall("terminal", {"command": "echo two >> a.txt"}),
        ToolCall("replace", {"path": "a.txt", "old": "two", "new": "2"}),
        ToolCall("search", {"pattern": "2"}),
        ToolCall("find", {"name": "*.txt"}),
        ToolCall("view", {"path": "a.txt"}),
    ]
    *_, searched, found, viewed = [await tools.execute(call) for call in calls]
    assert (searched.content, found.content, viewed.content) == ("a.txt:2:2", "a.txt", "1\tone\n2\t2")


async def test_submit_ends_the_rollout_with_its_answer(sandbox):
    tools = default_tools(sandbox)
    result = await tools.execute(ToolCall("submit", {"answer": "42"}))
    assert (result.content, result.done, result.is_error) == ("42", True, False)
    assert (await tools.execute(ToolCall("submit", {}))).done


def scaled(sandbox, *, factor: int = 1):
    async def scale(number: int) -> str:
        """Scale a number."""
        return str(number * factor)

    return scale


async def test_settings_stand_behind_a_tools_name(sandbox):
    tools = default_tools(sandbox, ["terminal:timeout=300", f"{__name__}:scaled:factor=3"])
    assert tools.names == ["terminal", "scale"]
    assert (await tools.execute(ToolCall("scale", {"number": 2}))).content == "6"
    refused = await tools.execute(ToolCall("terminal", {"command": "true", "timeout": 301}))
    assert "timeout must be from 1 to 300 seconds" in refused.content


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("terminal:time_out=3", r"no setting time_out; did you mean timeout\?; it has output_chars, timeout"),
        ("submit:fast=true", "no setting fast; it has none"),
        (f"{__name__}:shout:loud=1", "no setting loud"),
        ("terminal:timeout=abc", r"--env.tools terminal:timeout=abc: timeout: .*valid integer.* \(got 'abc'\)"),
        ("terminal:timeout=0", r"timeout: .*greater than 0 \(got '0'\)"),
        ("view:output_chars=1.5", "output_chars: .*valid integer"),
        (f"{__name__}:scaled:factor=two", "factor: .*valid integer"),
    ],
)
def test_a_setting_that_a_tool_does_not_have_or_take_is_refused(name, expected):
    (problem,) = check_names([name])
    assert re.search(expected, str(problem))


async def untyped(x):
    """Say x."""
    return x


def with_untyped(sandbox):
    return untyped


def synchronous(sandbox):
    return lambda: "now"


def with_sandbox_at_once(sandbox):
    sandbox.workdir  # noqa: B018
    return untyped


class Browser:
    """A tool with a state."""

    def __init__(self, sandbox, home: str = "about:blank"):
        self.home = home

    async def visit(self, url: str) -> str:
        """Visit a page."""
        return f"{self.home} -> {url}"

    @staticmethod
    async def ping() -> str:
        """Answer."""
        return "pong"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("untyped", "untyped: tool 'untyped': parameter 'x' needs a type annotation"),
        ("with_untyped", "parameter 'x' needs a type annotation"),
        ("synchronous", "must be an async function"),
        ("Browser", "must be an async function.*; name its method: .*:Browser.METHOD"),
        ("Browser.open", "has no Browser.open"),
        ("NotHere", "has no NotHere"),
    ],
)
def test_a_tool_of_ones_own_without_a_schema_is_refused_before_there_is_a_sandbox(name, expected):
    (problem,) = check_names([f"{__name__}:{name}"])
    assert re.search(expected, str(problem))


def test_a_tool_that_needs_its_sandbox_at_once_is_left_to_the_first_rollout():
    assert check_names([f"{__name__}:with_sandbox_at_once"]) == []


async def test_a_method_of_a_class_on_the_sandbox_is_a_tool(sandbox):
    names = [f"{__name__}:Browser.visit:home=docs", f"{__name__}:Browser.ping"]
    assert check_names(names) == []
    tools = default_tools(sandbox, names)
    assert (await tools.execute(ToolCall("visit", {"url": "x"}))).content == "docs -> x"
    assert (await tools.execute(ToolCall("ping", {}))).content == "pong"


def noted(sandbox, label: str, *, quick: bool = False, level: NotHere = None, other=None):
    async def note() -> str:
        """Show the settings."""
        return repr((label, quick, level, other))

    return note


async def test_settings_become_what_the_annotations_say(sandbox):
    """A name that only type checkers know, and a parameter without an annotation, take anything."""
    (tool,) = default_tools(sandbox, [f"{__name__}:noted:label=7:quick=true:level=2:other=x"])
    assert (await tool.function()) == "('7', True, 2, 'x')"
