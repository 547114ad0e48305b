"""`python -m envs.swe tasks`: get published tasks, check, attack, make and convert tasks, open a shell in one."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from envs.checking.attack import attack_tasks, judged, with_attack
from envs.checking.attack import render as render_attacks
from envs.checking.check import check_tasks, render
from envs.checking.flakes import doubts_of
from envs.checking.manifest import NAME, CheckResult, add_results, read_manifest
from envs.cli import Program
from envs.cli import main as run_command
from envs.messages import SWE, replace_command
from envs.options import UsageError
from envs.options.reading import read_options
from envs.records.progress import Bar
from envs.records.read import read_rollouts
from envs.records.tables import Sheet, make_console
from envs.running.stopping import run_to_end
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.swe.parsers import CACHE, tasks_parser
from envs.swe.shell import shell_command
from envs.swe.source import default_limits, judge_model, with_judge
from envs.tasks.adapters import ADAPTERS, PRINTED
from envs.tasks.adapters.published import download, write_origin
from envs.tasks.adapters.sets import SETS
from envs.tasks.forge.forge import Tally, forge
from envs.tasks.harbor import load_task, load_tasks
from envs.tasks.selection import select_tagged
from envs.types import BadTask, BadTasks, Task
from sandboxes.base import SandboxError
from sandboxes.naming import lazy_import
from sandboxes.plurals import plural
from sandboxes.registry import docker_backend

_CHECKOUTS = CACHE.with_name("published")
_LEFT_OUT = "left-out.txt"
_SHOWN = 10
_WRITING = 0.05
"""The most of a check's time that goes to writing its manifest."""


_ATTACKING = Program(replace_command(SWE), SWEEnvConfig, lazy_import("envs.swe.attack_env:AttackEnv"))
"""The environment for a model's attacks."""


def main(argv: list[str]) -> int:
    """Run one of the commands. Return 0 when every task is sound, 1 when one is not, 2 when they can't be read; of a
    shell its own status."""
    options = tasks_parser().parse_args(argv)
    try:
        return _COMMANDS[options.command](options)
    except (BadTask, SandboxError, UsageError) as error:
        print(error, file=sys.stderr)
        return 2


def _check_command(options: argparse.Namespace) -> int:
    results = run_to_end(_check(options))
    make_console().print(render(results))
    return 0 if all(result.ok for result in results) else 1


async def _check(options: argparse.Namespace) -> list[CheckResult]:
    tasks, path = _select_tasks(options), _manifest(options)
    try:
        kept = _recorded_results(path)
    except BadTask:
        if not options.again:
            raise
        kept = {}  # of another version: every task is checked
    doubts = doubts_of(options.seen)
    async with docker_backend(options.hosts, base_image=options.base_image) as backend:
        with Bar("checking", len(tasks)) as bar, _record_results(bar, path, kept) as note:
            results = await check_tasks(
                backend,
                tasks,
                repeats=options.repeats,
                concurrency=options.concurrency,
                known={} if options.again else dict(kept),
                doubted=doubts,
                on_result=note,
            )
    if options.seen:
        again = [result for result in results if result.task_id in doubts]
        flaky = sum(result.flaky for result in again)
        print(f"{plural(len(again), 'task')} in doubt: flaky {flaky}, tests agreed {len(again) - flaky}")
    return results


def _select_tasks(options: argparse.Namespace) -> list[Task]:
    """Return the requested tasks. Raises BadTask."""
    try:
        folder = STARTER if options.folder == "starter" else Path(options.folder)
        tasks = load_tasks(folder, default_limits(options.default_network))
    except BadTasks as error:
        tasks = _skip_bad(error, options.skip_bad)
    try:
        tasks = with_judge(tasks, judge_model(options.judge or "", options.judge_model, options.judge_key))
    except BadTasks as error:
        tasks = _skip_bad(error, options.skip_bad)
    return select_tagged(tasks, options.only, "--only")


def _manifest(options: argparse.Namespace) -> Path | None:
    """Return the place of results; None if they are not kept."""
    path: Path | None = options.manifest
    return path or (None if options.folder == "starter" else Path(options.folder) / NAME)


def _attack_command(options: argparse.Namespace) -> int:
    model = read_options(SWEEnvConfig, options.model) if options.model else None
    with tempfile.TemporaryDirectory() as place:
        options.manifest = _manifest(options) or Path(place, NAME)
        checked = run_to_end(_check(options))
        if bad := sum(not result.ok for result in checked):
            print(f"{plural(bad, 'task')} can't be used and won't be attacked; `tasks check` says why", file=sys.stderr)
        if model is None:
            results = run_to_end(_attack(options))
        else:
            run_dir = model.env.run_dir or Path("runs", f"attack-{time.strftime('%Y%m%d-%H%M%S')}")
            given = {"tasks": options.folder, "manifest": options.manifest, "hosts": options.hosts}
            given |= {name: getattr(options, name) or "" for name in ("judge", "judge_model", "judge_key")}
            given |= {name: getattr(options, name) for name in ("base_image", "default_network")}
            given |= {"eval_tags": ",".join(options.only)}
            given |= {} if model.env.run_dir else {"run_dir": run_dir}
            arguments = [f"--env.{name}={value}" for name, value in given.items() if value]
            if status := run_command(_ATTACKING, "evaluate", [*options.model, *arguments]):
                return status
            results = _merge_attacks(options.manifest, run_dir)
    make_console().print(render_attacks(results))
    return 1 if not results or any(result.accepts for result in results) else 0


async def _attack(options: argparse.Namespace) -> list[CheckResult]:
    """Try the generic cheats on the sound tasks."""
    kept = _recorded_results(options.manifest)
    tasks = [task for task in _select_tasks(options) if task.id in kept and kept[task.id].ok]
    async with docker_backend(options.hosts, base_image=options.base_image) as backend:
        with (
            Bar("attacking", len(tasks)) as bar,
            _record_results(bar, options.manifest, kept, lambda result: f"{len(result.accepts)} rewarded") as note,
        ):
            return await attack_tasks(backend, tasks, dict(kept), concurrency=options.concurrency, on_result=note)


def _merge_attacks(manifest: Path, run_dir: Path) -> list[CheckResult]:
    """Write the results of a model's attempts into the manifest. Returns the results of the attacked tasks."""
    kept, attacked = _recorded_results(manifest), dict[str, CheckResult]()
    for saved in read_rollouts(run_dir):
        if (result := kept.get(saved.task_id)) is not None and result.ok:
            by, name = saved.result.conditions.model or "a model", f"attempt {(saved.seat.member or 0) + 1}"
            kept[saved.task_id] = attacked[saved.task_id] = with_attack(result, judged(result, by, name, saved.verdict))
    add_results(manifest, kept, attacked)
    return list(attacked.values())


def _recorded_results(path: Path | None) -> dict[str, CheckResult]:
    """Return the results of earlier checks. Raises BadTask if they can't be read."""
    return read_manifest(path) if path is not None and path.is_file() else {}


def _skip_bad(error: BadTasks, skip_bad: bool, file: Path | None = None) -> list[Task]:
    """Return the usable tasks, with the others listed on stderr. Raises BadTask if none may be left out,
    or none is left.

    file: takes a long list, of which the terminal shows the beginning."""
    message = str(error)
    lines = message.splitlines()
    if file is not None and len(lines) > _SHOWN + 1:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{message}\n", encoding="utf-8")
        message = "\n".join([*lines[: _SHOWN + 1], f"… all of them are in {file}"])
    if not (skip_bad and error.usable):
        raise BadTask(message if skip_bad else f"{message}\n--skip-bad leaves them out") from None
    print(message, file=sys.stderr)
    return error.usable


@contextmanager
def _record_results(
    bar: Bar,
    path: Path | None,
    kept: dict[str, CheckResult],
    describe: Callable[[CheckResult], str] = lambda result: "ok" if result.ok else "FAILED",
) -> Iterator[Callable[[CheckResult], None]]:
    """Give the action for each result: it is written into the manifest at `path`, beside the `kept` ones. A manifest
    that takes long to write is written less often, and at the end.

    describe: returns the remark about it. Raises BadTask if nothing can be written there."""
    folder = next((one for one in path.absolute().parents if one.exists()), None) if path is not None else None
    if folder is not None and not os.access(folder, os.W_OK):
        raise BadTask(f"{path}: this user can't write in {folder}; give another --manifest FILE")
    behind, due = False, 0.0
    new: dict[str, CheckResult] = {}

    def note(result: CheckResult) -> None:
        nonlocal behind
        behind = kept.get(result.task_id) != result or behind
        kept[result.task_id] = new[result.task_id] = result
        if behind and time.monotonic() >= due:  # so that an interrupted check goes on from there
            write()
        bar.advance(f"{result.task_id}: {describe(result)}")

    def write() -> None:
        nonlocal behind, due
        began = time.monotonic()
        if path is not None:
            add_results(path, kept, new)
        behind, due = False, time.monotonic() + (time.monotonic() - began) / _WRITING

    try:
        yield note
    finally:
        if behind:
            write()


def _convert_command(options: argparse.Namespace) -> int:
    load = ADAPTERS[options.format]
    if options.printed_results:
        if options.format not in PRINTED:
            raise BadTask(f"--printed-results is for rows of {', '.join(sorted(PRINTED))}")
        load = partial(load, printed_results=True)
    try:
        tasks = load(options.source, options.out)
    except BadTasks as error:
        tasks = _skip_bad(error, options.skip_bad, options.out / _LEFT_OUT)
    if not tasks:
        raise BadTask(f"{options.source} holds nothing to convert")
    if not options.check:
        sound = sum(kept.ok for kept in _current_results(tasks, _recorded_results(options.out / NAME)))
        known = f"{sound} sound by {NAME}; " if sound else ""
        make_console().print(
            f"{options.out} holds {plural(len(tasks), 'task')}; {known}`tasks check` tells which can be used"
        )
        return 0
    results = run_to_end(_check_converted(tasks, options.out / NAME, options.hosts))
    make_console().print(render(results))
    return 0 if all(result.ok for result in results) else 1


def _get_command(options: argparse.Namespace) -> int:
    found = SETS[options.name]
    source = options.given or download(found, _CHECKOUTS)
    write_origin(options.out, options.name, options.given)
    options.format, options.source = found.format, source
    return _convert_command(options)


def _current_results(tasks: Sequence[Task], kept: Mapping[str, CheckResult]) -> list[CheckResult]:
    """Return the results of checks of tasks that are unchanged since."""
    return [kept[task.id] for task in tasks if task.id in kept and kept[task.id].digest == task.digest]


async def _check_converted(tasks: list[Task], path: Path, hosts: str | None) -> list[CheckResult]:
    kept = _recorded_results(path)
    async with docker_backend(hosts) as backend:
        with Bar("checking", len(tasks)) as bar, _record_results(bar, path, kept) as note:
            return await check_tasks(backend, tasks, known=dict(kept), on_result=note)


def _forge_command(options: argparse.Namespace) -> int:
    tallies, results = run_to_end(_forge(options))
    table = Sheet("package", "tests", "tasks", "mutants that could not be used")
    for tally in tallies:
        rejected = ", ".join(f"{count} {what}" for what, count in tally.outcomes.most_common() if what != "kept")
        table.add(tally.project, str(tally.tests), str(tally.outcomes["kept"]), tally.problem or rejected)
    make_console().print(table)
    if not options.no_check:
        make_console().print(render(results))
    return (
        0
        if any(tally.outcomes["kept"] for tally in tallies) and (options.no_check or any(r.ok for r in results))
        else 1
    )


async def _forge(options: argparse.Namespace) -> tuple[list[Tally], list[CheckResult]]:
    total = options.per_package * len(options.sources)
    made: list[Path] = []
    async with docker_backend(options.hosts) as backend:
        with Bar("forging", min(total, options.limit or total)) as bar:

            def add(path: Path) -> None:
                made.append(path)
                bar.advance(path.name)

            tallies = await forge(
                backend,
                options.sources,
                options.out,
                cache=options.cache,
                per_package=options.per_package,
                limit=options.limit,
                seed=options.seed,
                concurrency=options.concurrency,
                on_task=add,
                on_mutant=bar.note,
            )
        if options.no_check or not made:
            return tallies, []
        path = options.out / NAME
        with Bar("checking", len(made)) as bar, _record_results(bar, path, _recorded_results(path)) as note:
            results = await check_tasks(
                backend,
                [load_task(path) for path in sorted(made)],
                concurrency=options.concurrency,
                on_result=note,
            )
    for result in results:
        if not result.ok:  # what is left can all be used
            shutil.rmtree(options.out / result.task_id)
    return tallies, results


_COMMANDS = {
    "check": _check_command,
    "attack": _attack_command,
    "forge": _forge_command,
    "convert": _convert_command,
    "get": _get_command,
    "shell": shell_command,
}
