"""Other task formats, each converted into Harbor task directories, so one verifier serves all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envs.types import Task
from sandboxes.naming import lazy_import

PRINTED = frozenset({"swebench", "swe-smith", "swe-gym", "swebench-live"})
"""Formats with `printed_results` in their adapters."""

ROWS = ".jsonl, .jsonl.gz, .json or .parquet, a dataset's folder, or its name on the Hugging Face hub (owner/name)"
"""Where rows may be, in words."""


def _reader(module: str, **options: Any) -> Callable[..., list[Task]]:
    """Return the reader in a module of this folder, imported when it is called."""
    found = lazy_import(f"{__name__}.{module}:load")
    return lambda *args, **more: found()(*args, **options, **more)


ADAPTERS: Mapping[str, Callable[..., list[Task]]] = {
    "functions": _reader("python_functions"),
    "folder": _reader("plain_folder"),
    "harbor": _reader("harbor_folders"),
    "terminal-bench": _reader("terminal_bench"),
    "swebench": _reader("swebench"),
    "swe-smith": _reader("swebench", family="smith"),
    "swe-gym": _reader("swebench", family="swegym"),
    "r2e-gym": _reader("r2e"),
    "swebench-live": _reader("swebench", family="live"),
}
"""The reader of each format: from a file or folder, into task directories below another. May raise `BadTasks`."""
