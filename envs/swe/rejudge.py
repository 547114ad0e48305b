"""The command `rejudge`: a run's work is judged again, and the table shows the rollouts with a changed verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from envs.checking.rejudge import Judge, RejudgeResult, rejudge_all
from envs.messages import describe_error
from envs.records.disk import append_line
from envs.records.progress import Bar
from envs.records.provenance import FILE_NAME, read_starts
from envs.records.read import SavedRollout, read_rollouts
from envs.records.tables import Sheet, make_console
from envs.rewards import RewardFunction, Shaping, find_reward
from envs.running.stopping import run_to_end
from envs.swe.parsers import rejudge_parser
from envs.swe.source import judge_model, load_source
from envs.tasks.selection import is_named
from envs.types import BadTask, Task
from sandboxes.base import SandboxError
from sandboxes.log import without_control
from sandboxes.plurals import plural
from sandboxes.registry import load_backend

_SHOWN_TESTS = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """The tasks and the reward for rollouts. tasks: by id. sandbox, options: of the backend."""

    tasks: Mapping[str, Task]
    rewarding: RewardFunction
    sandbox: str
    options: Mapping[str, Any]


def main(argv: Sequence[str]) -> int:
    """Rejudge a run. Returns 0 when every rollout has a verdict, 1 when one has none, 2 for a wrong use."""
    options = rejudge_parser().parse_args(argv)
    try:
        if not any(options.run_dir.glob("rollouts*.jsonl")):
            raise BadTask(f"{options.run_dir} holds no rollouts; name the directory of a run")
        if options.out is None and not os.access(options.run_dir, os.W_OK):
            raise BadTask(f"this user can't write in {options.run_dir}; give --out FILE")
        setting = read_setting(options)
        return run_to_end(_rejudge(options, setting))
    except (ValueError, SandboxError, OSError) as error:
        print(describe_error(error), file=sys.stderr)
        return 2


def read_setting(options: argparse.Namespace) -> Setting:
    """Return the setting for judging a run again: from the command line, and else from the run's last start.

    Raises BadTask, and ValueError for an unusable reward."""
    starts = read_starts(options.run_dir / FILE_NAME)
    saved: dict[str, Any] = starts[-1].get("options", {}) if starts else {}
    if "tasks" not in saved and not options.tasks:
        raise BadTask(
            f"{options.run_dir} has no {FILE_NAME} that names a folder of tasks, and nothing else has tests to run "
            "again; give --tasks"
        )
    kept = Path(saved["manifest"]) if saved.get("manifest") else None
    of_run: dict[Any, Path | None] = {saved.get("eval_tasks"): None, saved.get("tasks") or "starter": kept}
    sources = {options.tasks: None} if options.tasks else of_run
    gone = [one for one in sources if one not in (None, "", "starter") and not Path(one).expanduser().exists()]
    if gone and not options.tasks:
        raise BadTask(
            f"{options.run_dir} had its tasks in {gone[0]}, and nothing is there (a relative path is of the "
            "directory of its start); give --tasks"
        )
    judge = judge_model(*(saved.get(name, "") for name in ("judge", "judge_model", "judge_key")))
    network = saved.get("default_network", "")
    loaded = [load_source(one, manifest, "skip", network, judge) for one, manifest in sources.items() if one]
    tasks = {task.id: task for some in loaded for task in some}
    sandbox = options.sandbox or saved.get("sandbox") or "docker"
    reward = options.reward or saved.get("reward", "")
    return Setting(
        tasks,
        find_reward("--reward", reward) if reward else Shaping(**saved.get("shaping", {})),  # an option before 0.2
        sandbox,
        {
            "hosts": options.hosts or saved.get("hosts"),
            "pods": saved.get("pods") if sandbox == "kubernetes" else None,
            "e2b": saved.get("e2b") if sandbox == "e2b" else None,
            "base_image": options.base_image or saved.get("base_image"),
            "runtime": saved.get("sandbox_runtime"),
            "starter": saved.get("sandbox_starter"),
        },
    )


async def _rejudge(options: argparse.Namespace, setting: Setting) -> int:
    out: Path = options.out or options.run_dir / f"rejudged-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    counts: Counter[str] = Counter()
    changed: list[RejudgeResult] = []
    problems: list[RejudgeResult] = []
    seen: set[str] = set()
    await asyncio.to_thread(out.parent.mkdir, parents=True, exist_ok=True)
    backend = load_backend(setting.sandbox, **setting.options)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(backend)
        judge = Judge(backend, setting.tasks, setting.rewarding)
        bar = stack.enter_context(Bar("judging again"))
        results = rejudge_all(judge, _select_rollouts(options, setting.tasks), options.concurrency)
        async for one in await stack.enter_async_context(aclosing(results)):
            bar.advance(one.task)
            seen.add(one.task)
            append_line(out, orjson.dumps({**asdict(one), "changed": one.changed}))
            counts["judged"] += not one.problem
            counts["solved before"] += not one.problem and one.before >= 1
            counts["solved now"] += one.now is not None and one.now >= 1
            (changed if one.changed else problems if one.problem else []).append(one)
    if not (counts["judged"] or problems):
        of = f" of {', '.join(options.only)}" if options.only else ""
        raise BadTask(f"{options.run_dir} holds no rollout{of} that can be read")
    named = seen.union(*(setting.tasks[name].tags for name in seen & setting.tasks.keys()))
    if unknown := [name for name in options.only if name not in named]:
        print(f"--only: no rollout is of a task with the tag or the id {', '.join(unknown)}", file=sys.stderr)
    if changed:
        make_console().print(table(changed))
    for one in problems:
        print(f"{one.rollout} of {one.task} was not judged: {without_control(one.problem)}", file=sys.stderr)
    print(
        f"{plural(counts['judged'], 'rollout')} judged again, {plural(len(changed), 'verdict')} changed, "
        f"{len(problems)} not judged; "
        f"solved {counts['solved before']} before, {counts['solved now']} now"
    )
    print(f"every rollout: {out}")
    return 1 if problems else 0


def table(changed: Sequence[RejudgeResult]) -> Sheet:
    """Return a row for each rollout with a changed verdict."""
    made = Sheet("rollout", "task", "verdict", "reward", "tests that changed")
    for one in changed:
        tests = [f"{name}: {_status_cell(before)} → {_status_cell(now)}" for name, (before, now) in one.tests.items()]
        more = [f"and {len(tests) - _SHOWN_TESTS} more"] if len(tests) > _SHOWN_TESTS else []
        verdict, reward = f"{one.before:g} → {one.now:g}", f"{one.reward_before:g} → {one.reward_now:g}"
        made.add(one.rollout, one.task, verdict, reward, "\n".join([*tests[:_SHOWN_TESTS], *more]))
    return made


def _status_cell(status: str | None) -> str:
    return "not there" if status is None else str(status)


def _select_rollouts(options: argparse.Namespace, tasks: Mapping[str, Task]) -> Iterator[SavedRollout]:
    only = {*options.only, *(task.id for task in tasks.values() if is_named(task, options.only))}
    return (saved for saved in read_rollouts(options.run_dir) if not only or saved.task_id in only)
