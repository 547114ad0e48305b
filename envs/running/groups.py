"""`python -m envs.swe groups RUN_DIR`: show the state of each group of a run, and the reason, in one table.

It reads the journal, also during the run. The last column names the file with the evidence, in the run's directory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from envs.messages import SWE, replace_command
from envs.records.tables import Sheet, make_console
from envs.running.database import RunDirectoryError
from envs.running.group import GroupOutcome, group_outcomes
from envs.types import GroupState
from sandboxes.arguments import Parser
from sandboxes.plurals import plural


def main(argv: Sequence[str], *, prog: str = SWE) -> int:
    """Print the table. Returns 0, or 2 when the directory holds no readable run."""
    prog = replace_command(prog)
    parser = Parser(prog=f"{prog} groups", description=replace_command(__doc__, prog))
    parser.add_argument("run_dir", type=Path, help="directory of the run")
    states = [state.value for state in GroupState]
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=states,
        metavar="STATE",
        help=f"only groups in this state: {', '.join(states)}",
    )
    parser.add_argument("--task", help="only groups of the task with this id")
    options = parser.parse_args(argv)
    try:
        found = list(group_outcomes(options.run_dir, map(GroupState, options.state), options.task))
    except RunDirectoryError as error:
        print(error, file=sys.stderr)
        return 2
    make_console().print(table(found))
    return 0


def table(found: Iterable[GroupOutcome]) -> Sheet:
    """Return a row for each group, with how many there are in each state beneath."""
    counts: Counter[GroupState] = Counter()
    found = list(found)
    drawn = any(outcome.drawn for outcome in found)
    heads = ("group", "task", "state", "rewards", "reason", "evidence", *(["drawn"] if drawn else []))
    made = Sheet(*heads)
    for outcome in found:
        counts[outcome.state] += 1
        rewards = " ".join(f"{reward:g}" for reward in outcome.rewards)
        cells = (
            str(outcome.number),
            outcome.task,
            outcome.state,
            rewards,
            outcome.reason,
            outcome.evidence,
            outcome.drawn,
        )
        made.add(*cells[: len(heads)])
    listed = [f"{count} {state}" for state, count in counts.most_common()]
    made.caption = ", ".join([plural(counts.total(), "group"), *listed])
    return made
