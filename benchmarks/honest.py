"""How often right solutions lose their reward: references of packages' whole suites, judged again and again.

python benchmarks/honest.py DIR PACKAGE... [--judgements 10000] [--minutes 60] [--at-once 2]

Of each package (from PyPI) a bug is planted, and its fix judged by the package's whole suite: with the tests listed,
and without a list, each with what `tasks check` recorded and without. Every verdict is appended to
DIR/judgements.jsonl, and a later call goes on from there. It ends with the number of judgements and the lost ones by
task and cause.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from judging import reference

from envs.checking.check import check_tasks
from envs.checking.manifest import NAME, read_manifest, with_record, write_manifest
from envs.judging.changes import Changes
from envs.judging.verifier import judge
from envs.tasks.forge.forge import forge
from envs.tasks.harbor import load_tasks
from envs.types import InfraError, Task
from sandboxes.base import Backend
from sandboxes.docker import DockerBackend


@dataclass(frozen=True)
class Case:
    """A way in which a package's suite is judged, and its reference's work."""

    name: str
    task: Task
    image: str
    changes: Changes


async def make_tasks(backend: Backend, packages: list[str], root: Path, at_once: int) -> None:
    """Forge a task of each package that has none yet, and write it once more without a list."""
    done = root / "packages"
    known = set(done.read_text().split()) if done.is_file() else set()
    for package in [one for one in packages if one not in known]:
        made: list[Path] = []
        tallies = await forge(
            backend, [package], root / "listed", cache=root / "cache", per_package=1, on_task=made.append, concurrency=1
        )
        for tally in tallies:
            print(f"{package}: {tally.tests} tests, {len(made)} task, {tally.problem or ''}", flush=True)
        for path in made:
            other = root / "unlisted" / path.name
            shutil.copytree(path, other, dirs_exist_ok=True)
            (other / "tests/tests.json").unlink()
        with done.open("a") as file:
            file.write(package + "\n")


async def cases(backend: Backend, root: Path, at_once: int) -> list[Case]:
    """Return the ways of judging that are sound; the others are named."""
    found = []
    for kind in ("listed", "unlisted"):
        if not (root / kind).is_dir():
            continue
        tasks, manifest = load_tasks(root / kind), root / kind / NAME
        known = read_manifest(manifest) if manifest.is_file() else {}
        results = await check_tasks(backend, tasks, known=known, concurrency=at_once)
        write_manifest(manifest, results)
        for task, result in zip(tasks, results, strict=True):
            if not result.ok:
                print(f"{kind} {task.id} is no task: {(result.problem or '')[:600]}", flush=True)
                continue
            changes = await reference(backend, task, result.image)
            found.append(Case(f"{kind} {task.id}", task, result.image, changes))
            found.append(Case(f"{kind} {task.id}, recorded", with_record(task, result.record), result.image, changes))
    return found


async def run(options: argparse.Namespace) -> None:
    options.folder.mkdir(parents=True, exist_ok=True)
    log = options.folder / "judgements.jsonl"
    before = len(log.read_text().splitlines()) if log.is_file() else 0
    async with DockerBackend() as backend:
        await make_tasks(backend, options.packages, options.folder, options.at_once)
        ways = await cases(backend, options.folder, options.at_once)
        print(f"{len(ways)} ways of judging, {before} judgements before", flush=True)
        ends = time.monotonic() + options.minutes * 60
        left: Iterator[Case] = itertools.islice(itertools.cycle(ways), max(0, options.judgements - before))

        async def work() -> None:
            for case in left:
                if time.monotonic() > ends:
                    return
                try:
                    verdict = await judge(backend, case.task, case.image, case.changes)
                    entry = {"case": case.name, "reward": verdict.reward, "signs": verdict.signs}
                    if verdict.reward != 1:
                        entry["why"] = verdict.explanation
                except InfraError as error:
                    entry = {"case": case.name, "reward": None, "why": str(error)}
                with log.open("a") as file:
                    file.write(json.dumps(entry) + "\n")

        if ways:
            await asyncio.gather(*(work() for _ in range(options.at_once)))
    summary(log)


def summary(log: Path) -> None:
    """Print what the log says in all."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    lost = [row for row in rows if row["reward"] == 0]
    failed = [row for row in rows if row["reward"] is None]
    print(
        f"{len(rows)} judgements of {len({row['case'] for row in rows})} ways: {len(lost)} lost, {len(failed)} not made"
    )
    counted = collections.Counter((row["case"], row["why"].splitlines()[0][:160]) for row in [*lost, *failed])
    for (case, why), count in counted.most_common(40):
        print(f"{count:5} {case}: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--judgements", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--at-once", type=int, default=2)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
