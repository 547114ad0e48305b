"""Where rollouts branch: `--env.branches`, as in `2@errors`, `2@every:4`, `3@entropy`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the options need not load them
    from atropos_agent.ledger import Ledger
    from tools.base import ToolResult

_FORM = re.compile(r"([1-9]\d?)@(errors|entropy|every:([1-9]\d*))")


@dataclass(frozen=True, slots=True)
class Branches:
    """How many branches a rollout may have beside itself, and the places for them, each behind the results of calls.

    where: "errors", behind a call that was refused, or a command that has failed; "every", behind every `turns`-th
        reply; "entropy", behind a reply that was less certain than those before it.
    """

    count: int
    where: Literal["errors", "every", "entropy"]
    turns: int = 1

    @classmethod
    def of(cls, text: str) -> Branches | None:
        """Read the option; None if it is empty. Raises ValueError."""
        if not text:
            return None
        if (found := _FORM.fullmatch(text)) is None:
            raise ValueError(f"{text!r} is none of N@errors, N@entropy and N@every:K, as 2@every:4")
        count, where, turns = found.groups()
        name: Literal["errors", "every", "entropy"] = "every" if turns else "errors" if where == "errors" else "entropy"
        return cls(int(count), name, int(turns or 1))

    def here(self, ledger: Ledger, results: Sequence[ToolResult]) -> bool:
        """Tell whether a rollout branches behind these results. ledger: of the replies on the way here."""
        if self.where == "errors":
            return any(result.is_error or result.metadata.get("exit_code") for result in results)
        if self.where == "every":
            return ledger.replies % self.turns == 0
        certain = ledger.mean_logprobs
        return len(certain) > 1 and certain[-1] < fmean(certain[:-1])
