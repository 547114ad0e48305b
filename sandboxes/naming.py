"""Find an object by its name or dotted path: a backend, tool format, tool, agent, reward or environment."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


def resolve(option: str, value: str, known: Mapping[str, Any], group: str = "") -> Any:
    """Return the object of this name in `known` or among installed packages, or at the path `package.module:name`.

    known: a string is such a path, too, for an object with a slow import. group: entry points of installed packages,
        such as "atropos_agent.tools"; names in `known` come first.
    Raises ValueError, with the option and the remedy, for an unknown name, and for one that several packages offer.
    """
    if not isinstance(known.get(value, value), str):
        return known[value]
    if group and value not in known:  # to read what is installed takes milliseconds
        known = {**_installed(option, value, group), **known}
    given, value = value, known.get(value, value)
    module, colon, name = value.partition(":")
    if not (module and colon and name):
        choice = f"choose {', '.join(known)}, or " if known else ""
        raise ValueError(
            f"{option} {given}: there is none of that name{did_you_mean(given, known)}; "
            f"{choice}give one of your own as package.module:name"
        )
    with import_errors(option, value, module):
        found = importlib.import_module(module)
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"{option} {value}: {module} has no {name}; see what it defines") from error
    return found


def _installed(option: str, value: str, group: str) -> dict[str, str]:
    """Return the dotted paths of the installed parts, by name. Raises ValueError if several packages offer `value`."""
    # Not the value of an entry: it may name extras after the path.
    found = [(entry.name, f"{entry.module}:{entry.attr or ''}") for entry in entry_points(group=group)]
    if len(rivals := sorted({path for name, path in found if name == value})) > 1:
        raise ValueError(f"{option} {value}: several installed packages offer it; choose {' or '.join(rivals)}")
    return dict(found)


@contextmanager
def import_errors(option: str, value: str, module: str) -> Iterator[None]:
    """Raise ValueError, with the option, the place and the remedy, for whatever a module raises as it is imported."""
    prefix = f"{option} {value}: {module} can't be imported:"
    try:
        yield
    except ImportError as error:
        remedy = "install it, or put its folder on the PYTHONPATH"
        if module.endswith(".py"):
            remedy = f"a module is named without its folder and ending: {Path(module).stem}:{value.partition(':')[2]}"
        raise ValueError(f"{prefix} {error}; {remedy}") from error
    except SyntaxError as error:
        raise ValueError(f"{prefix} {error.msg} ({error.filename}, line {error.lineno})") from error
    except (Exception, SystemExit) as error:  # a script calls sys.exit at its end
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ValueError(f"{prefix} {type(error).__name__}: {error} ({place.filename}, line {place.lineno})") from error


def lazy_import(path: str) -> Callable[[], Any]:
    """Return a function that imports the object at a dotted path of ours, `package.module:name`, and returns it.

    For objects with a slow import, or from an extra: a misspelt option, or a command without it, need not wait."""
    # Without a colon, the error of an import would become one of a missing attribute.
    return partial(resolve_name, path if ":" in path else f"{path}:")


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that were probably meant: one, two that are about as near, or none.

    Options are found without the part before their last dot, with `-` for `_` or the other way round, and in
    capitals."""
    plain = {one.replace("-", "_").lower(): one for one in known}
    wanted = name.replace("-", "_").lower()
    if wanted in plain:
        return [plain[wanted]]
    outer, _, bare = wanted.lstrip("_").rpartition(".")
    ends: dict[str, list[str]] = {}
    for one in plain:
        ends.setdefault(one.lstrip("_").rpartition(".")[2], []).append(one)
    # A mistyped name of a part's option is none of a part.
    near = [end for end, all_ in ends.items() if not outer or any("." in one for one in all_)]
    found = []
    for end in [bare] if bare in ends else _close(bare, near, 0.65 if len(bare) > 4 else 0.6):
        beside = [one for one in ends[end] if one.lstrip("_").rpartition(".")[0] == outer]
        found.append(plain[(beside or ends[end])[0]])
    return found or [plain[one] for one in _close(wanted, plain, 0.85)]


def _close(name: str, known: Iterable[str], cutoff: float) -> list[str]:
    """Return the nearest name, and the next one if it is about as near."""
    found = get_close_matches(name, known, n=2, cutoff=cutoff)
    ratios = [SequenceMatcher(None, one, name).ratio() for one in found]
    return [one for one, ratio in zip(found, ratios, strict=True) if ratio > ratios[0] - 0.1]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for a message, or nothing if no known name is near."""
    found = nearest(name, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""
