"""`python -m envs.swe agents RUN_DIR RUN_DIR…`: compare agents by evaluations of the same tasks and model.

`agents update` shows newer versions of agents.

Each row is a directory of `evaluate`, with the share of solved rollouts and the mean cost of a rollout.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envs.messages import SWE, describe_error, replace_command
from envs.records.comparison import difference, read_rates
from envs.records.read import SavedRollout, read_rollouts
from envs.records.stats import pass_at_k, percent, share_interval
from envs.records.tables import Sheet, make_console
from envs.running.mix import Mix
from sandboxes.arguments import Parser, positive_int

_MEANS = ("rollouts", "turns", "sampled", "longest row", "rows", "seconds", "began in")


@dataclass(frozen=True, slots=True)
class Row:
    """An agent's rollouts, by task. agent: its name and version. about: the evaluation, the same for all."""

    agent: str
    about: object
    rollouts: Sequence[SavedRollout]

    def solved(self) -> dict[str, list[bool]]:
        """Return for each task whether each rollout solved it."""
        found: dict[str, list[bool]] = {}
        for one in self.rollouts:
            found.setdefault(one.task_id, []).append(one.verdict.solved)
        return found

    def rates(self) -> dict[str, float]:
        """Return each task's solve rate."""
        return {task: statistics.fmean(all_) for task, all_ in self.solved().items()}

    def passes(self, k: int) -> str:
        """Return pass@k over the tasks with as many rollouts, with its 95% interval."""
        rates = [pass_at_k(len(all_), sum(all_), k) for all_ in self.solved().values() if len(all_) >= k]
        if not rates:
            return "—"
        spread = share_interval(rates)
        return percent(statistics.fmean(rates)) + ("" if spread is None else f" {spread}")


def main(argv: Sequence[str], *, prog: str = SWE) -> int:
    """Print the table. Returns 0, or 2 when a directory holds no evaluation or one of other tasks or another model."""
    prog = replace_command(prog)
    parser = Parser(prog=f"{prog} agents", description=replace_command(__doc__, prog))
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR", help="directories of evaluations")
    parser.add_argument("-k", type=positive_int, default=1, help="the k of pass@k (default: 1)")
    options = parser.parse_args(argv)
    try:
        found = [(path, row) for path in options.run_dirs for row in read_rows(path)]
    except (OSError, ValueError, LookupError) as error:
        print(f"{prog} agents: {describe_error(error)}", file=sys.stderr)
        return 2
    of = Counter(row.agent for _, row in found)
    rows = [replace(row, agent=f"{row.agent} of {path}") if of[row.agent] > 1 else row for path, row in found]
    make_console().print(table(rows, options.k))
    return 0


def read_rows(run_dir: Path) -> list[Row]:
    """Read the rollouts of an evaluation, those of each agent for themselves, in the order of `--env.agent`. Raises
    OSError, and ValueError without any."""
    about = read_rates(run_dir / "eval-0.json").about
    # A sample that a killed process had saved and not noted was made again: the last one counts.
    made = (one for one in read_rollouts(run_dir) if one.seat.evaluating)
    rollouts = list({(one.task_id, one.id if (at := one.seat.member) is None else at): one for one in made}.values())
    if not rollouts:
        raise ValueError(f"{run_dir} holds no rollouts of an evaluation")
    name = str((about.get("sampling") or {}).get("agent", "atropos"))
    of: dict[str, list[SavedRollout]] = {}
    for one in rollouts:
        of.setdefault(one.seat.agent or name, []).append(one)
    model, named = about.get("models"), Mix.of(name).names
    agents = sorted(of, key=lambda one: named.index(one) if one in named else len(named))
    return [Row(one, {"models": model, "tasks": sorted({r.task_id for r in of[one]})}, of[one]) for one in agents]


def table(rows: Sequence[Row], k: int) -> Sheet:
    """Return a row for each agent; the caption names the obstacles to a comparison."""
    made = Sheet("agent", f"pass@{k}", f"pass@1 − {rows[0].agent}", *_MEANS)
    for place, row in enumerate(rows):
        results = [one.result for one in row.rollouts]
        starts = [one.metadata["agent"]["start_s"] for one in results if "agent" in one.metadata]
        cells = (
            row.agent,
            row.passes(k),
            difference(rows[0].rates(), row.rates()) if place else "",
            str(len(results)),
            _mean([len(one.steps) for one in results]),
            _mean([one.sampled_tokens for one in results]),
            _mean([max((len(part.tokens) for part in one.segments), default=0) for one in results]),
            _mean([len(one.segments) for one in results]),
            _mean([one.timings_s.get("agent", 0.0) for one in row.rollouts]),
            _mean(starts) + " s" if starts else "—",
        )
        made.add(*cells)
    if any(row.about != rows[0].about for row in rows):
        made.caption = "not of the same tasks and model: these figures are not to be compared"
    return made


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.1f}" if values else "—"
