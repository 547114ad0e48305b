"""Find tasks in doubt: the same changes got different verdicts, so their tests may be flaky.

Rollouts only cast doubt. Code of the agent that acts at random gets different verdicts too, so a policy that could
exclude tasks by its verdicts would learn to exclude hard ones. `tasks check` decides, by trees without any code of an
agent: the reference's and the untouched one (`envs.checking.check`).
"""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.judging.changes import Changes
from envs.judging.saved_changes import NotSaved, unpack_changes
from envs.judging.tree import tree_of
from envs.records.disk import json_lines
from envs.records.provenance import digest_of
from envs.records.read import read_rollouts
from envs.types import VERIFIER_TIMED_OUT, BadTask, TestStatus, Verdict

Judged = tuple[str, Sequence[Mapping[str, Any]], Verdict]
"""A rollout's task, its work as `envs.types.Outcome` has it, and the verdict on it."""


def differing(tests: Sequence[Mapping[str, TestStatus]]) -> list[str]:
    """Return the tests that every verdict has, and not with the same status. tests: those of each verdict."""
    common = set.intersection(*map(set, tests)) if tests else set()
    return sorted(name for name in common if len({of[name] for of in tests}) > 1)


def disagreement(verdicts: Sequence[Verdict]) -> list[str] | None:
    """Return the tests in which verdicts on the same tree disagree, [] for the reward alone; None if they agree.

    A verdict without all tests, because time ran out, has no say about single tests."""
    tests = differing([verdict.tests for verdict in verdicts if not verdict.metrics.get(VERIFIER_TIMED_OUT)])
    return tests if tests or len({verdict.reward for verdict in verdicts}) > 1 else None


def in_doubt(judged: Iterable[Judged]) -> dict[str, set[str]]:
    """Return the tasks in which the same changes got different verdicts, with the tests that differed.

    The empty change is one of them. Verdicts given because time ran out, and work that was not kept, count for
    nothing."""
    first: dict[tuple[str, str], tuple[float, Mapping[str, TestStatus]]] = {}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for task, work, verdict in judged:
        if not work or verdict.metrics.get(VERIFIER_TIMED_OUT):
            continue
        try:
            key = task, _digest_of(work)
        except NotSaved:
            continue
        reward, tests = first.setdefault(key, (verdict.reward, verdict.tests))
        if (names := differing([tests, verdict.tests])) or reward != verdict.reward:
            found[task].update(names)
    return dict(found)


def doubts_of(runs: Iterable[Path]) -> dict[str, set[str]]:
    """Return the tasks in doubt by the saved rollouts of runs, and by what `rejudge` found of them. Raises BadTask
    for a run that can't be read."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        try:
            saved = in_doubt((one.task_id, one.work, one.verdict) for one in read_rollouts(run))
            for task, tests in [*saved.items(), *_rejudged(run)]:
                found[task].update(tests)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadTask(f"{run} can't be read as a run: {error}") from error
    return dict(found)


def _rejudged(run: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the tasks of rollouts with another verdict than the saved one, and the tests that differ."""
    for path in run.glob("rejudged-*.jsonl"):
        for one in json_lines(path):
            names = [name for name, pair in one["tests"].items() if None not in pair]
            if not one["problem"] and (names or one["now"] != one["before"]):
                yield one["task"], names


def _digest_of(work: Sequence[Mapping[str, Any]]) -> str:
    """Return the sha256 of changes as entries: names, modes and contents, whenever they were made. Raises NotSaved."""
    return digest_of([_contents(unpack_changes(entry)) for entry in work])


def _contents(changes: Changes) -> list[Any]:
    try:
        tree = tree_of(changes.archive, "/", git=True) if changes.archive else {}
    except (ValueError, tarfile.TarError) as error:
        raise NotSaved(f"the agent's work is damaged: {type(error).__name__}: {error}") from error
    return [
        [[path, one.kind, one.mode, one.content] for path, one in sorted(tree.items())],
        [sorted(changes.deleted), changes.problem],
        [[folder, _contents(one)] for folder, one in sorted(changes.elsewhere, key=lambda pair: pair[0])],
    ]
