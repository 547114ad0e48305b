"""Other task formats, each converted into Harbor task directories, so one verifier serves all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from envs.tasks.adapters import harbor_folders, plain_folder, python_functions, r2e, swebench, terminal_bench
from envs.types import Task

PRINTED = frozenset({"swebench", "swe-smith", "swe-gym", "swebench-live"})
"""Formats with `printed_results` in their adapters."""
ADAPTERS: Mapping[str, Callable[..., list[Task]]] = {
    "functions": python_functions.load,
    "folder": plain_folder.load,
    "harbor": harbor_folders.load,
    "terminal-bench": terminal_bench.load,
    "swebench": swebench.load,
    "swe-smith": partial(swebench.load, family="smith"),
    "swe-gym": partial(swebench.load, family="swegym"),
    "r2e-gym": r2e.load,
    "swebench-live": partial(swebench.load, family="live"),
}
"""The reader of each format: from a file or folder, into task directories below another. May raise `BadTasks`."""
