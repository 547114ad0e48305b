"""Read which weights sampled a reply from what inference servers say of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LABEL = re.compile(r"(?:^|(?:^|[^a-z0-9])(?:(?:global_?)?step|checkpoint|version|v)[-_]?)(\d{1,15})/?$", re.IGNORECASE)


def version_of(label: Any) -> int | None:
    """Return the trainer's step that names some weights; None where a label names none.

    label: a number, "42", "step-000042", the folder of a checkpoint that is called so, or vLLM's list of
        `{version, start, end}`, of which the oldest counts (vllm/outputs.py, `WeightVersionSpan`).
    """
    if isinstance(label, bool):
        return None
    if isinstance(label, int):
        return label if label >= 0 else None
    if isinstance(label, list):
        found = [version_of(span.get("version")) if isinstance(span, Mapping) else None for span in label]
        known = [version for version in found if version is not None]
        return min(known) if known and len(known) == len(found) else None
    match = _LABEL.search(label) if isinstance(label, str) else None
    return int(match[1]) if match else None
