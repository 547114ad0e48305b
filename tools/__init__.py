"""What the model may do: tools, their registry, and the standard set."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxes.base import Sandbox
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
    "default_tools",
    "submit",
]


def default_tools(sandbox: Sandbox, names: Iterable[str] | None = None) -> ToolRegistry:
    """Return the standard tools on a sandbox: all of them, or those named, in the order of `names`.

    Raises ValueError for an unknown name."""
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
    chosen = list(known if names is None else names)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"unknown tools {', '.join(unknown)}; the tools are {', '.join(known)}")
    return ToolRegistry(known[name] for name in chosen)
