"""What the model may do: tools, their registry, and the standard set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from sandboxes.base import Sandbox
from sandboxes.naming import resolve
from tools.base import MalformedCall, Tool, ToolCall, ToolError, ToolFunction, ToolRegistry, ToolResult
from tools.calculator import calculator
from tools.files import Files
from tools.search import Search
from tools.submit import submit
from tools.terminal import Terminal

__all__ = [
    "Files",
    "MalformedCall",
    "Search",
    "Terminal",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolFunction",
    "ToolRegistry",
    "ToolResult",
    "calculator",
    "check_names",
    "default_tools",
    "submit",
]


STANDARD = ("terminal", "view", "create", "replace", "insert", "search", "find", "calculator", "submit")
"""The names of the standard tools."""


def check_names(names: Iterable[str]) -> list[ValueError]:
    """Return what is wrong with tools that are named, before there is a sandbox: each unknown or named twice."""
    problems, seen = [], set()
    for name in names:
        if name in seen:
            problems.append(ValueError(f"--env.tools {name}: it is named twice; leave one out"))
        seen.add(name)
        try:
            resolve("--env.tools", name, dict.fromkeys(STANDARD))
        except ValueError as error:
            problems.append(error)
    return problems


def default_tools(sandbox: Sandbox, names: Iterable[str] | None = None) -> ToolRegistry:
    """Return the standard tools on a sandbox: all of them, or those named, in the order of `names`.

    A name may be a dotted path `package.module:name` to a tool of one's own: an async function, or a function or
    class that is given the sandbox and returns one. Raises ValueError for a name that is neither."""
    files, search = Files(sandbox), Search(sandbox)
    functions: tuple[ToolFunction, ...] = (
        Terminal(sandbox).terminal,
        files.view,
        files.create,
        files.replace,
        files.insert,
        search.search,
        search.find,
        calculator,
        submit,
    )
    known = {tool.name: tool for tool in map(Tool.of, functions)}
    chosen = known if names is None else names
    return ToolRegistry(_on(sandbox, resolve("--env.tools", name, known)) for name in chosen)


def _on(sandbox: Sandbox, found: Any) -> Tool:
    """Return the tool that was found, on this sandbox."""
    if isinstance(found, Tool):
        return found
    made = found if inspect.iscoroutinefunction(found) else found(sandbox)
    return made if isinstance(made, Tool) else Tool.of(made)
