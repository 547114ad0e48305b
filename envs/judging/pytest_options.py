"""Take pytest's options in `pyproject.toml`, `setup.cfg` and `tox.ini` from the image, and the rest from the agent.

A version, a dependency or an entry point is honest work; how the tests are run is not the agent's to say. The lines of
pytest's tables are replaced, and the result is read as pytest reads it: as TOML, or by iniconfig.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import iniconfig

_SECTION = re.compile(r"\s*\[\s*(?:tool:)?pytest")
_TABLE = re.compile(r"\s*\[\s*(?:tool|project\.entry-points)\.[\"']?pytest")
_MOST_DOTS = 300
"""In a line: the time that tomllib takes grows with the square of a key's length."""
_Read = tuple[object, object]
"""pytest's options, and the others."""


def merged(name: str, theirs: bytes, image: bytes | None) -> bytes | None:
    """Return a file of the agent's with the image's options of pytest in it; `theirs` if it has the same.

    name: of the file. image: the file's content in the image; None without one.
    None when they can't be told apart in it: it is not valid, or pytest's options have no lines of their own.
    """
    is_toml = name.endswith(".toml")
    both = theirs + (image or b"")
    if b"pytest" not in both and not (is_toml and b"\\" in both):
        return theirs
    read, own = (_toml, _TABLE) if is_toml else (_ini, _SECTION)
    try:
        text, old = theirs.decode(), (image or b"").decode()
        (options, others), (wanted, _) = read(text), read(old)
        if options == wanted:
            return theirs
        rest = _lines(text, own, options=False)
        made = "".join([*rest, "" if not rest or rest[-1].endswith("\n") else "\n", *_lines(old, own, options=True)])
        return made.encode() if read(made) == (wanted, others) else None
    except (ValueError, TypeError, AttributeError, RecursionError, iniconfig.ParseError):
        return None


def _toml(text: str) -> _Read:
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):  # TOML's own lines
        raise ValueError("a key is too long")
    rest: dict[str, Any] = tomllib.loads(text)
    options = []
    for holder, key in ((rest, "tool"), (rest.get("project", {}), "entry-points")):
        table = holder.get(key, {})
        options.append({name: table.pop(name) for name in list(table) if name.startswith("pytest")})
        if not table:
            holder.pop(key, None)
    return options, rest


def _ini(text: str) -> _Read:
    sections = {section.name: dict(section.items()) for section in iniconfig.IniConfig("options", data=text)}
    options = {name: sections.pop(name) for name in list(sections) if _SECTION.match(f"[{name}")}
    return options, sections


def _lines(text: str, own: re.Pattern[str], *, options: bool) -> list[str]:
    """Return the lines of pytest's tables, or the others."""
    found: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = own.match(line) is not None
        if inside is options:
            found.append(line)
    return found
