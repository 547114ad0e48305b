"""A dataset's rows as a file, which the adapters' tests read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envs.tasks.adapters.swebench import load
from envs.types import Task


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tasks_of(folder: Path, *rows: dict[str, Any], printed_results: bool = True) -> list[Task]:
    """SWE-bench rows as tasks."""
    return load(write(folder, *rows), folder / "out", printed_results=printed_results)
