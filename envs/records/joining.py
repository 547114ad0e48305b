"""`python -m envs.swe join OUT RUN_DIR RUN_DIR…`: join the parts of an evaluation that several processes made.

In each directory `evaluate` ran with another `--env.shard` and the same options. OUT is a file like `eval-0.json` of
each part, for `--against` and every other reader of evaluations.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from envs.messages import SWE, replace_command
from envs.records.comparison import UNREADABLE, NoEvaluation, differences, table_of, why_unreadable
from envs.records.disk import replace_file
from envs.records.stats import EvalSummary, TaskResult, summary_of
from envs.records.tables import make_console
from sandboxes.arguments import WRONG_USE, Parser, output_file

_COUNTS = ("tasks", "made", "missing")


def main(argv: Sequence[str]) -> int:
    """Write the file and print the table. Returns 0, or 2 when the parts are not those of one evaluation."""
    parser = Parser(prog=replace_command(f"{SWE} join"), description=replace_command(__doc__))
    parser.add_argument("out", type=output_file, metavar="OUT", help="the file to write, such as eval-0.json")
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR", help="directories of the parts")
    options = parser.parse_args(argv)
    try:
        summary = join([Part.read(path / "eval-0.json") for path in options.run_dirs])
    except NoEvaluation as error:
        print(replace_command(f"{SWE} join: {error}"), file=sys.stderr)
        return WRONG_USE
    options.out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(options.out, orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2))
    make_console().print(table_of(summary))
    return 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The outcome of some tasks. ks: of their pass@k."""

    tasks: Sequence[TaskResult]
    unsampled: Sequence[str]
    ks: Sequence[int]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Figures:
        """Read them. Raises KeyError, TypeError and ValueError."""
        tasks = [TaskResult(**task) for task in found["tasks"]]
        return cls(tasks, found["unsampled"], [int(k) for k in found["pass_at"]])


@dataclass(frozen=True, slots=True)
class Part:
    """One process's part. same: the common values of all parts. samples: made and wanted ones. agents: of several."""

    shard: str
    figures: Figures
    agents: Mapping[str, Figures]
    same: Mapping[str, Any]
    samples: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> Part:
        """Read a part from its file. Raises NoEvaluation."""
        try:
            found = orjson.loads(path.read_bytes())
            about = found["about"]
            return cls(
                str(about["options"]["shard"]),
                Figures.of(found),
                {agent: Figures.of(of) for agent, of in (found.get("agents") or {}).items()},
                {**about, "options": {**about["options"], "shard": "1/1"}, "samples": None},
                {**about["samples"], **{name: int(about["samples"][name]) for name in _COUNTS}},
            )
        except UNREADABLE as error:
            why = why_unreadable(error)
            raise NoEvaluation(
                f"{path} is no evaluation of a part of the tasks ({why}); --env.shard 1/2 makes one"
            ) from error


def join(parts: Sequence[Part]) -> EvalSummary:
    """Make one evaluation of all parts. Raises NoEvaluation unless they are all parts of one, each once."""
    shards = Counter(part.shard for part in parts)
    if shards != Counter(f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)):
        raise NoEvaluation(
            f"these are the parts {', '.join(sorted(shards.elements()))}; give each of 1/{len(parts)} to "
            f"{len(parts)}/{len(parts)} once"
        )
    first = parts[0]
    for part in parts[1:]:
        if part.same != first.same:
            differing = (place for place, *_ in differences(first.same, part.same))
            raise NoEvaluation(f"parts {first.shard} and {part.shard} differ in {', '.join(differing)}")
    all_ = [part.figures for part in parts]
    names = Counter(name for of in all_ for name in (*(task.task_id for task in of.tasks), *of.unsampled))
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise NoEvaluation(f"tasks are in several parts, such as {twice[0]}: they were not made of the same tasks")
    counts = {name: sum(part.samples[name] for part in parts) for name in _COUNTS}
    whole = _merge(all_, {**first.same, "samples": {**first.samples, **counts}})
    agents = dict.fromkeys(agent for part in parts for agent in part.agents)
    of = {agent: _merge([part.agents[agent] for part in parts if agent in part.agents]) for agent in agents}
    return replace(whole, agents=of)


def _merge(parts: Sequence[Figures], about: Mapping[str, Any] | None = None) -> EvalSummary:
    sampled = [part for part in parts if part.tasks]
    ks = set.intersection(*(set(part.ks) for part in sampled)) if sampled else set()
    tasks = [task for part in parts for task in part.tasks]
    return summary_of(tasks, sorted(ks), [name for part in parts for name in part.unsampled], about=about)
