"""The results of `doctor`: checks, and the certificate made of them."""

from __future__ import annotations

import enum
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sandboxes.log import without_control


class Status(enum.StrEnum):
    OK = "ok"
    NOTE = "note"
    """Training would be right, but not as one may expect."""
    WRONG = "wrong"
    """Training would be wrong, or can't start."""


@dataclass(frozen=True, slots=True)
class Check:
    """One examined thing. data: the same as `text` for programs."""

    name: str
    status: Status
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Certificate:
    """All checks, in order."""

    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        """Tell whether training would be right."""
        return all(check.status is not Status.WRONG for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}

    def render(self) -> str:
        """Return the certificate as lines of text, wrapped between words where the terminal ends."""
        signs = {Status.OK: "✓", Status.NOTE: "·", Status.WRONG: "✗"}
        width = max((len(check.name) for check in self.checks), default=0)
        lines = [_wrap(f"{signs[check.status]} {check.name:{width}}  ", check.text) for check in self.checks]
        wrong = sum(check.status is Status.WRONG for check in self.checks)
        evaluates = any(check.name == "training" for check in self.checks)
        right = "It can be evaluated, and not trained." if evaluates else "Rows would be right."
        work = "Evaluation" if evaluates else "Training"
        return "\n".join([*lines, "", right if self.ok else f"{work} would be wrong: {wrong} ✗"])


def _wrap(name: str, text: str) -> str:
    """Return a text after a name, wrapped between words; its lines stay lines."""
    indent, columns = " " * len(name), shutil.get_terminal_size().columns
    wrap = partial(textwrap.fill, width=columns, initial_indent=indent, subsequent_indent=indent)
    plain = without_control(text)  # it may quote a server
    lines = [wrap(line, break_long_words=False, break_on_hyphens=False) for line in plain.splitlines()]
    return name + "\n".join(lines)[len(name) :]
