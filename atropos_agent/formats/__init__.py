"""Tool formats, and the one place where a format is chosen by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping

from atropos_agent.formats.base import Reply, ToolFormat
from atropos_agent.formats.hermes import Hermes

FORMATS: Mapping[str, type[ToolFormat]] = {"hermes": Hermes}
"""The formats of this package, by name."""


def load_format(name: str) -> ToolFormat:
    """Return the format of that name, or of a dotted path such as `package.module:Class`.

    Raises ValueError, which says what to give instead.
    """
    if name in FORMATS:
        return FORMATS[name]()
    if ":" not in name:
        raise ValueError(
            f"there is no tool format {name!r}; the formats are {', '.join(FORMATS)}, "
            "and one of your own is given as package.module:Class"
        )
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"the tool format {name!r} can't be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, ToolFormat)):
        raise ValueError(f"{name!r} is not a subclass of atropos_agent.formats.ToolFormat")
    try:
        return found()
    except TypeError as error:
        # An abstract method that is missing, or an argument that it wants.
        raise ValueError(f"the tool format {name!r} can't be made: {error}") from error


__all__ = ["FORMATS", "Reply", "ToolFormat", "load_format"]
