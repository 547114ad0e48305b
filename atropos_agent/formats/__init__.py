"""Tool formats, and the one place where a format is chosen by name."""

from __future__ import annotations

from collections.abc import Mapping

from atropos_agent.formats.base import Reply, ToolFormat
from atropos_agent.formats.hermes import Hermes
from sandboxes.naming import resolve

FORMATS: Mapping[str, type[ToolFormat]] = {"hermes": Hermes}
"""The formats of this package, by name."""


def load_format(name: str) -> ToolFormat:
    """Return the format of that name, or of a dotted path such as `package.module:Class`.

    Raises ValueError, which says what to give instead.
    """
    found = resolve("--env.tool_format", name, FORMATS)
    if not (isinstance(found, type) and issubclass(found, ToolFormat)):
        raise ValueError(f"{name!r} is not a subclass of atropos_agent.formats.ToolFormat")
    try:
        return found()
    except TypeError as error:
        # An abstract method that is missing, or an argument that it wants.
        raise ValueError(f"the tool format {name!r} can't be made: {error}") from error


__all__ = ["FORMATS", "Reply", "ToolFormat", "load_format"]
