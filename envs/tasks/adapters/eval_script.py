"""The environment for the tests, as set by a row's `eval_script`."""

from __future__ import annotations

import re
from collections.abc import Iterator

_START = ">>>>> Start Test Output"
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_EXPORT = re.compile(r"\s*(export\s+[A-Za-z_]\w*=.*?)\s*;?\s*$")
_ACTIVATE = re.compile(r"\s*(?:conda|source\s+(?:\S*/)?activate|mamba)\s+(?:activate\s+)?([\w.-]+)\s*$")
_BEFORE = re.compile(r"\s*((?:[A-Za-z_]\w*=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]*)\s+)+)\S")


def exports(script: str) -> list[str]:
    """Return shell commands to export all variables exported by the script, or set for the tests' command alone."""
    found: list[str] = []
    begun = False
    for line in _plain_lines(script):
        if _START in line:
            begun = True
        elif begun and line.strip():
            given = _BEFORE.match(line)
            return [*found, f"export {given[1].strip()}"] if given else found
        elif exported := _EXPORT.match(line):
            found.append(exported[1])
    return found


def conda_environment(script: str) -> str | None:
    """Return the name of the conda environment activated last by the script; None without one."""
    names = [found[1] for line in _plain_lines(script) if (found := _ACTIVATE.match(line))]
    return next((name for name in reversed(names) if name not in ("activate", "base")), None)


def _plain_lines(script: str) -> Iterator[str]:
    """Yield the lines outside of here-documents."""
    end = None
    for line in script.splitlines():
        if end is not None:
            end = None if line.strip() == end else end
            continue
        yield line
        opened = _HEREDOC.search(line)
        end = opened[2] if opened else None
