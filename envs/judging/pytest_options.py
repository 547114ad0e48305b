"""Take pytest's options in `pyproject.toml`, `setup.cfg` and `tox.ini` from the image, and the rest from the agent.

A version, a dependency or an entry point is honest work; how the tests are run is not the agent's to say. TOML is read
as TOML, and ini files as pytest reads them (iniconfig) and as other tools do (configparser). The two must agree.
"""

from __future__ import annotations

import configparser
import copy
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import iniconfig
import tomlkit

from envs.judging.tree import KEPT_WHOLE

_SECTION = re.compile(r"\s*\[\s*(?:tool:)?pytest")
_Views = tuple[Mapping[str, Mapping[str, str]], ...]


def merged(name: str, theirs: bytes, image: bytes | None) -> bytes | None:
    """Return a file of the agent's with the image's options of pytest in it; `theirs` if it has the same.

    name: of the file, one of `KEPT_WHOLE`. image: the file's content in the image; None without one.
    None when they can't be told apart in it: it is not valid, or its readers disagree.
    """
    if name not in KEPT_WHOLE:
        raise ValueError(f"{name} holds no options of pytest")
    escapes = name.endswith(".toml") and b"\\" in theirs + (image or b"")
    if not escapes and b"pytest" not in theirs + (image or b""):
        return theirs
    try:
        ours, old = theirs.decode(), (image or b"").decode()
        found = _toml(ours, old) if name.endswith(".toml") else _ini(ours, old)
    except (ValueError, RecursionError, configparser.Error, iniconfig.ParseError):
        return None
    return None if found is None else found.encode()


def _toml(theirs: str, image: str) -> str | None:
    mine, old = tomllib.loads(theirs), tomllib.loads(image)
    wanted = copy.deepcopy(mine)
    for path in (("tool",), ("project", "entry-points")):
        table, kept = _table(wanted, path), _table(old, path)
        if kept is None or table is None:
            return None
        for key in [key for key in table if key.startswith("pytest")]:
            del table[key]
        options = {key: value for key, value in kept.items() if key.startswith("pytest")}
        if options:
            _made(wanted, path).update(options)
    if wanted == mine:
        return theirs
    made = tomlkit.dumps(wanted)
    return made if tomllib.loads(made) == wanted else None


def _table(table: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a table by its path, an empty one if it is missing; None if something else is in its place."""
    for key in path:
        found = table.get(key, {})
        if not isinstance(found, dict):
            return None
        table = found
    return table


def _made(table: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        table = table.setdefault(key, {})
    return table


def _ini(theirs: str, image: str) -> str | None:
    mine, old = _views(theirs), _views(image)
    if _pytests(mine) == _pytests(old):
        return theirs
    _, rest = _split(theirs)
    options, _ = _split(image)
    made = "".join([*rest, "" if not rest or rest[-1].endswith("\n") else "\n", *options])
    views = _views(made)
    return made if _pytests(views) == _pytests(old) and _others(views) == _others(mine) else None


def _views(text: str) -> _Views:
    """Return the sections as pytest reads them, and as others do."""
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    plain = iniconfig.IniConfig("options", data=text)
    return (
        {section.name: dict(section.items()) for section in plain},
        {name: dict(parser[name]) for name in parser},
    )


def _pytests(views: _Views) -> list[dict[str, Mapping[str, str]]]:
    return [{name: view[name] for name in view if _SECTION.match(f"[{name}")} for view in views]


def _others(views: _Views) -> list[dict[str, Mapping[str, str]]]:
    return [{name: view[name] for name in view if not _SECTION.match(f"[{name}")} for view in views]


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of pytest's sections, and the others."""
    options: list[str] = []
    rest: list[str] = []
    into = rest
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            into = options if _SECTION.match(line) else rest
        into.append(line)
    return options, rest
