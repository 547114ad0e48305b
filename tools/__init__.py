"""Give a model its tools: their base, their registry, and the standard set."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, cast, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from sandboxes.base import Sandbox
from sandboxes.naming import did_you_mean, resolve
from sandboxes.signatures import signature_of
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


_STANDARD: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "terminal": (Terminal, "terminal"),
        **{name: (Files, name) for name in ("view", "create", "replace", "insert")},
        **{name: (Search, name) for name in ("search", "find")},
        "calculator": (calculator, ""),
        "submit": (submit, ""),
    }
)
"""The standard tools: a function, or a class and its method."""

STANDARD = tuple(_STANDARD)
"""The names of the standard tools."""


def check_names(names: Iterable[str]) -> list[ValueError]:
    """Return the mistakes in tools' names, before there is a sandbox: unknown ones, repeated ones, wrong settings, and
    tools of your own without a schema or with another tool's name."""
    problems, seen, given_by = [], set(), dict[str, str]()
    for given in names:
        try:
            name, texts = _split_name(given)
            if name in seen:
                raise ValueError(f"--env.tools {name}: it is named twice; leave one out")
            seen.add(name)
            found, method = _resolve_tool(name)
            settings = _parse_settings(given, found, texts)
            shown = name if name in _STANDARD else _check_tool(given, found, method, settings)
            if shown is not None and (other := given_by.setdefault(shown, given)) != given:
                raise ValueError(f"--env.tools {given}: {other} is named {shown!r} too; rename it or leave one out")
        except ValueError as error:
            problems.append(error)
    return problems


def default_tools(sandbox: Sandbox, names: Iterable[str] | None = None) -> ToolRegistry:
    """Return the standard tools on a sandbox: all of them, or those named, in the order of `names`.

    A name may be an entry point, or a dotted path to your own tool: `package.module:function`, an async function or a
    function that takes the sandbox and returns one, or `package.module:Class.method` of a class that takes the sandbox.
    Settings follow a colon (`terminal:timeout=300`): keyword arguments of that function or class. Raises ValueError for
    a name without a tool."""
    return ToolRegistry(_load_tool(sandbox, name) for name in (STANDARD if names is None else names))


def _load_tool(sandbox: Sandbox, given: str) -> Tool:
    name, texts = _split_name(given)
    found, method = _resolve_tool(name)
    return _make_tool(sandbox, found, method, _parse_settings(given, found, texts))


def _make_tool(sandbox: Sandbox, found: Any, method: str, settings: Mapping[str, Any]) -> Tool:
    if isinstance(found, Tool):
        return found
    made = found if inspect.iscoroutinefunction(found) else found(sandbox, **settings)
    made = getattr(made, method) if method and made is not found else made
    if not (isinstance(made, Tool) or inspect.isclass(found) or callable(made)):
        kind = type(made).__name__
        raise TypeError(f"it has no `async def`, so it gets the sandbox and returns the tool; it returned a {kind}")
    return made if isinstance(made, Tool) else Tool.of(made)


class _NoSandbox:
    """Stands for the sandbox before there is one."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"there is no sandbox yet, and no {name}")


def _check_tool(given: str, found: Any, method: str, settings: Mapping[str, Any]) -> str | None:
    """Make a tool of the user's without a sandbox, and return its name. Raises ValueError for a mistake in it.

    Other errors may come from the missing sandbox; the first rollout meets them again, if not. Returns None then."""
    try:
        return _make_tool(cast(Sandbox, _NoSandbox()), found, method, settings).name
    except (TypeError, ValueError) as error:
        remedy = f"; name its method: {given.partition('=')[0].rstrip(':')}.METHOD" if inspect.isclass(found) else ""
        raise ValueError(f"--env.tools {given}: {error}{'' if method else remedy}") from error
    except Exception:
        return None


def _resolve_tool(name: str) -> tuple[Any, str]:
    """Return a tool's function or class, and the method of the class."""
    found = resolve("--env.tools", name, _STANDARD, "atropos_agent.tools")
    if isinstance(found, tuple):
        return found
    path, _, method = name.rpartition(".")
    owner = resolve("--env.tools", path, {}) if ":" in path else None
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, method))
    return (owner, method) if is_method else (found, "")


def _split_name(given: str) -> tuple[str, dict[str, str]]:
    """Return a tool's name and the texts of its settings."""
    parts = given.split(":")
    pairs = [part.partition("=") for part in parts if "=" in part]
    return ":".join(part for part in parts if "=" not in part), {key: text for key, _, text in pairs}


def _parse_settings(given: str, found: Any, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a tool's settings as its annotations want them. Raises ValueError for unknown and wrong ones."""
    if not texts:
        return {}
    takes = {} if isinstance(found, Tool) or inspect.iscoroutinefunction(found) else signature_of(found).parameters
    known = [name for name, parameter in list(takes.items())[1:] if parameter.kind is not parameter.VAR_KEYWORD]
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    for name in [] if free else texts.keys() - known:
        raise ValueError(
            f"--env.tools {given}: this tool has no setting {name}{did_you_mean(name, known)}; "
            f"it has {', '.join(known) or 'none'}"
        )
    values = {}
    for name, text in texts.items():
        adapter = _adapter(takes[name].annotation if name in known else Any, sys.modules.get(found.__module__))
        try:
            values[name] = _parse_value(text, adapter)
        except ValidationError as error:
            message = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"--env.tools {given}: {name}: {message} (got {text!r})") from None
    return values


def _adapter(annotation: Any, module: ModuleType | None) -> TypeAdapter[Any]:
    """Return what validates a parameter of this annotation: anything, if pydantic can't."""
    alone = SimpleNamespace(__annotations__={"it": Any if annotation is inspect.Parameter.empty else annotation})
    try:
        return TypeAdapter(get_type_hints(alone, vars(module) if module else {}, include_extras=True)["it"])
    except (NameError, PydanticUserError):  # a name for type checkers alone; a class that pydantic doesn't know
        return TypeAdapter(Any)


def _parse_value(text: str, adapter: TypeAdapter[Any]) -> Any:
    """Return a number, true, false or null where the adapter takes it, or else the text."""
    with suppress(ValueError):
        return adapter.validate_python(json.loads(text))
    return adapter.validate_python(text)
