"""Tools named by a provider and run by the client: a shell, an editor, a memory.

The client sends no schema, because the provider's models know the tool. Ours are shown one.
Sources: the types of the packages `anthropic` and `openai`, and the providers' pages on these tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_DATED = re.compile(r"(bash|text_editor|memory)_\d{8}")
"""Anthropic's types; they end with a date."""
_SCREEN = re.compile(r"computer(_use)?(_preview|_\d{8})?")


def is_screen(kind: str) -> bool:
    """Tell whether a tool shows its results as pictures of a screen alone."""
    return _SCREEN.fullmatch(kind) is not None


def anthropics(kind: str) -> Mapping[str, Any] | None:
    """Return a tool of this type as a function, without its name; None for an unknown type."""
    found = _DATED.fullmatch(kind)
    return _ANTHROPICS[found[1]] if found else None


def openais(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a tool of Responses as a function; None for an unknown one, or one that runs at the provider's."""
    environment = tool.get("environment")
    elsewhere = isinstance(environment, dict) and environment.get("type", "local") != "local"
    return None if elsewhere else _OPENAIS.get(str(tool.get("type")))


def _function(description: str, required: Sequence[str], **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"description": description, "parameters": parameters}


def _string(description: str, **more: Any) -> Mapping[str, Any]:
    return {"type": "string", "description": description, **more}


def _strings(description: str) -> Mapping[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _whole(description: str) -> Mapping[str, Any]:
    return {"type": "integer", "description": description}


_FILES: Mapping[str, Mapping[str, Any]] = {
    "path": _string("The file or the directory."),
    "file_text": _string("Of create: the file's content."),
    "old_str": _string("Of str_replace: the text to replace, exactly as it stands in the file, where it is once."),
    "new_str": _string("Of str_replace: the text in its place. Of insert: the same as insert_text."),
    "insert_line": _whole("Of insert: the line after which the text is put; 0 for the beginning."),
    "insert_text": _string("Of insert: the text."),
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "Of view: the first and the last line, from 1; -1 for the end of the file.",
    },
}
_ANTHROPICS: Mapping[str, Mapping[str, Any]] = {
    "bash": _function(
        "Run a command in a shell that stays open.",
        (),
        command=_string("The command."),
        restart={"type": "boolean", "description": "Restart the shell instead."},
    ),
    "text_editor": _function(
        "View, create and edit files.",
        ("command", "path"),
        command=_string("What to do.", enum=["view", "create", "str_replace", "insert", "undo_edit"]),
        **_FILES,
    ),
    "memory": _function(
        "Keep notes as files below /memories.",
        ("command",),
        command=_string("What to do.", enum=["view", "create", "str_replace", "insert", "delete", "rename"]),
        old_path=_string("Of rename: the path until now."),
        new_path=_string("Of rename: the path from now on."),
        **_FILES,
    ),
}
_OPENAIS: Mapping[str, Mapping[str, Any]] = {
    "local_shell": _function(
        "Run a command.",
        ("command",),
        command=_strings("The program and its arguments."),
        working_directory=_string("Where it runs."),
        timeout_ms=_whole("Milliseconds that it may take."),
    ),
    "shell": _function(
        "Run commands in a shell.",
        ("commands",),
        commands=_strings("The commands."),
        timeout_ms=_whole("Milliseconds that they may take."),
        max_output_length=_whole("Characters of output that are returned."),
    ),
    "apply_patch": _function(
        "Create, update or delete a file by a patch.",
        ("type", "path"),
        type=_string("What to do.", enum=["create_file", "update_file", "delete_file"]),
        path=_string("The file."),
        diff=_string("Of create_file and update_file: a unified diff."),
    ),
}
