"""Objects that a user chooses by name or by dotted path: backends, tool formats, tools, agents, rewards."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


def resolve(option: str, value: str, known: Mapping[str, Any]) -> Any:
    """Return what `known` holds under this name, or what stands at the dotted path `package.module:name`.

    Raises ValueError, which names the option and the remedy, when there is no such thing.
    """
    if value in known:
        return known[value]
    module, colon, name = value.partition(":")
    if not (module and colon and name):
        near = get_close_matches(value, known, n=1)
        meant = f" did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"{option} {value}: there is none of that name;{meant} choose {', '.join(known) or 'a dotted path'}, "
            "or give one of your own as package.module:name"
        )
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ValueError(
            f"{option} {value}: {module} can't be imported: {error}; install it, or put its folder on the PYTHONPATH"
        ) from error
    except AttributeError as error:
        raise ValueError(f"{option} {value}: {module} has no {name}; see what it defines") from error
    return found
