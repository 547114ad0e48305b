"""Locate the model's paths, for commands that work on them."""

from __future__ import annotations

import posixpath

from sandboxes.base import Sandbox, SandboxError
from tools.base import ToolError


def locate(sandbox: Sandbox, path: str) -> tuple[str, str]:
    """Return the absolute directory to run a command in, and the path's name there.

    The name is "." or starts with "./", so no program takes it for an option. Relative paths
    start at the sandbox's workdir. Raises ToolError."""
    check_path(path)
    absolute = posixpath.join(sandbox.workdir, path).rstrip("/")
    parent, name = posixpath.split(absolute)
    return (absolute or "/", ".") if name in ("", ".", "..") else (parent, "./" + name)


def check_path(path: str) -> None:
    """Raise ToolError for an impossible path."""
    if not path or "\0" in path:
        raise ToolError("the path is empty" if not path else "a path cannot contain null characters")


def path_error(path: str, error: OSError) -> ToolError:
    """Return the error for the model when the sandbox refuses a path. Infrastructure failures are raised instead."""
    if isinstance(error, SandboxError):
        raise error
    return ToolError(f"{path}: {error.strerror or error}")
