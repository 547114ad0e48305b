"""A dataset's rows as a file, which the adapters' tests read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
