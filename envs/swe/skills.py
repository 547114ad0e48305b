"""The skills in a task's sandbox, named to the agent below its instruction, as Harbor's Terminus 2 names them."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import yaml

from sandboxes.base import Sandbox

_LIST = (
    'cd -- "$1" || exit 0; for file in */SKILL.md; do [ ! -f "$file" ] || '
    '{ printf "%s/%s\\0" "$PWD" "$file"; head -c 65536 "$file" | tr -d "\\0"; printf "\\0"; }; done'
)
"""Prints the path and the beginning of each skill's description, each with a NUL after it."""
_MOST_BYTES = 4 * 2**20
_HEAD = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


async def with_skills(instruction: str, sandbox: Sandbox, folder: str | None) -> str:
    """Return an instruction with the names, descriptions and places of the skills in a folder of the sandbox.

    Raises SandboxError."""
    if folder is None:
        return instruction
    listed = await sandbox.exec(["sh", "-c", _LIST, "sh", folder], max_output=_MOST_BYTES)
    words = listed.raw.decode("utf-8", "replace").split("\0")
    root = Element("available_skills")
    for path, text in zip(words[::2], words[1::2], strict=False):
        if (about := _read_head(text)) is not None:
            skill = SubElement(root, "skill")
            for name, value in (*about.items(), ("location", path)):
                SubElement(skill, name).text = value
    if not len(root):
        return instruction
    indent(root)
    return f"{instruction}\n\n{tostring(root, encoding='unicode')}"


def _read_head(text: str) -> dict[str, str] | None:
    """Return a skill's name and description; None if its file has none."""
    found = _HEAD.match(text)
    try:
        table = yaml.safe_load(found[1]) if found is not None else None
    except yaml.YAMLError:
        return None
    if not isinstance(table, dict) or not {"name", "description"} <= table.keys():
        return None
    return {name: str(table[name]) for name in ("name", "description")}
