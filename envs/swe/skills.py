"""The skills in a task's sandbox, named to the agent below its instruction, as Harbor's Terminus 2 names them."""

from __future__ import annotations

import asyncio
import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import yaml

from sandboxes.base import Sandbox

_LIST = (
    'cd -- "$1" || exit 0; for file in */SKILL.md; do [ ! -f "$file" ] || '
    '{ printf "%s/%s\\0" "$PWD" "$file"; head -c 8192 "$file" | tr -d "\\0"; printf "\\0"; }; done'
)
"""Prints the path and the beginning of each skill's description, each with a NUL after it."""
_MOST_BYTES = 2**18
"""Of all: the agent of an earlier step may have written them."""
_HEAD = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


async def with_skills(instruction: str, sandbox: Sandbox, folder: str | None) -> str:
    """Return an instruction with the names, descriptions and places of the skills in a folder of the sandbox.

    Raises SandboxError."""
    if folder is None:
        return instruction
    listed = await sandbox.exec(["sh", "-c", _LIST, "sh", folder], max_output=_MOST_BYTES)
    shown = await asyncio.to_thread(_show, listed.raw.decode("utf-8", "replace"))
    return f"{instruction}\n\n{shown}" if shown else instruction


def _show(listed: str) -> str:
    """Return the skills of a list, as an agent is shown them; "" for none."""
    words = listed.split("\0")
    root = Element("available_skills")
    for path, text in zip(words[::2], words[1::2], strict=False):
        if (about := _read_head(text)) is not None:
            skill = SubElement(root, "skill")
            for name, value in (*about.items(), ("location", path)):
                SubElement(skill, name).text = value
    indent(root)
    return tostring(root, encoding="unicode") if len(root) else ""


def _read_head(text: str) -> dict[str, str] | None:
    """Return a skill's name and description; None if its file has none."""
    found = _HEAD.match(text)
    try:
        table = yaml.load(found[1], yaml.BaseLoader) if found is not None else None
    except (yaml.YAMLError, RecursionError):
        return None
    fields = (table.get("name"), table.get("description")) if isinstance(table, dict) else ()
    match fields:  # nested aliases, of another type, may be endless as text
        case str(name), str(description):
            return {"name": name, "description": description}
    return None
