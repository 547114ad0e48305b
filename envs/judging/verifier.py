"""Judging: the agent's changes in a sandbox where the agent never was, then the hidden tests.

`open_judge` opens and prepares the judge's sandbox beside the agent's work, so that it costs no time::

    async with open_judge(backend, task, image) as judge:
        ...                                   # the agent works in its own sandbox
        verdict = await judge(await collect_changes(sandbox, start, task.hidden.territory))

The tests are uploaded to /tests (root's, readable by root alone), the changes applied, and
`bash /tests/test.sh` run in the working directory. Every Python, pytest and other program that it calls is
replaced by a stand-in that runs it as nobody and watches it (the folder `inside`, see docs/reward.md), so that test.sh
alone can write a reward, whatever the judged code does. Then /logs/verifier is read (where there are no
stand-ins, by the engine from outside after every process was killed): `reward.json` (a number, or a flat table
of numbers, of which `reward` counts, or else the mean) before `reward.txt` (one number). The stand-ins' own
report fills `Verdict.tests`; without one `ctrf.json`, a JUnit file or pytest's `-rA` lines do, which explain a
reward and never change it.

Who failed decides what becomes of it. The judged code can make `test.sh` hang, crash or end before it
writes a reward, and can make it write nonsense; each of these is a reward of 0 with its explanation, as is a
sandbox that died twice under the same changes. Harbor calls a missing reward an error of the grader;
here a task's reference was seen to be rewarded (`tasks check`), so the code is at fault. What the
judged code can't cause (the engine, the sandbox before the tests run) raises `InfraError`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from envs.judging.changes import Changes, Tree, collect_changes, pack_directories, read_tree, regular_files
from envs.judging.cheating import PREFIX
from envs.types import InfraError, Task, TestStatus, Verdict
from sandboxes.base import Backend, ExecResult, Sandbox, SandboxDied, SandboxError, SandboxSpec, SandboxTimeout

__all__ = ["StartTrees", "collect_changes", "judge", "judge_in", "judge_spec", "open_judge", "solver_spec"]

logger = logging.getLogger(__name__)

LOGS = "/logs/verifier"
NOBODY = 65534
_STAND_INS = Path(__file__).parent / "inside"
MAX_REPORT_BYTES = 4 * 2**20
MAX_LOGS_BYTES = 64 * 2**20
_SHOWN = 2000
_CTRF = {"passed": TestStatus.PASSED, "failed": TestStatus.FAILED}
_PYTEST_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", re.MULTILINE)

Judge = Callable[[Changes], Awaitable[Verdict]]


def solver_spec(task: Task, image: str) -> SandboxSpec:
    """The sandbox in which the agent, or the reference solution, works."""
    return SandboxSpec(image, workdir=task.workdir, env=task.env, user=task.user, limits=task.limits)


def judge_spec(task: Task, image: str) -> SandboxSpec:
    """The sandbox in which it is judged: same image and the image's own user, the judge's own network.

    Its root may become other users, so that a test.sh can run the judged code as nobody.
    """
    limits, hidden = task.limits, task.hidden
    if hidden.network is not None:
        limits = replace(limits, network=hidden.network, allowed_hosts=hidden.allowed_hosts)
    return SandboxSpec(image, workdir=task.workdir, env=task.env, limits=limits, switch_users=True)


class StartTrees:
    """The source tree of each clean image, read once and shared by concurrent callers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._trees: dict[tuple[str, str | None], asyncio.Task[Tree]] = {}

    async def get(self, task: Task, image: str) -> Tree:
        """Raises InfraError when the image can't be opened or read; the next call tries again."""
        key = (image, task.workdir)
        reading = self._trees.get(key)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = self._trees[key] = asyncio.create_task(self._read(task, image))
        return await asyncio.shield(reading)

    async def _read(self, task: Task, image: str) -> Tree:
        try:
            async with self._backend.open(solver_spec(task, image)) as sandbox:
                return await read_tree(sandbox)
        except SandboxError as error:
            raise InfraError("sandbox", f"could not open {image} to read its source tree: {error}") from error


async def judge(backend: Backend, task: Task, image: str, changes: Changes) -> Verdict:
    """Judge changes in a fresh sandbox. Raises InfraError when we fail."""
    async with open_judge(backend, task, image) as judging:
        return await judging(changes)


@asynccontextmanager
async def open_judge(backend: Backend, task: Task, image: str) -> AsyncIterator[Judge]:
    """Start the judge's sandbox now, and yield the function that judges changes in it, once.

    A sandbox that can't be opened raises InfraError from that function, not before.
    """
    ready: asyncio.Future[_Bench] = asyncio.get_running_loop().create_future()
    finished = asyncio.Event()

    async def hold() -> None:
        try:
            async with _opened(backend, task, image) as bench:
                ready.set_result(bench)
                await finished.wait()
        except Exception as error:
            if ready.done():
                logger.warning("The judge's sandbox of task %s did not close cleanly: %s", task.id, error)
            else:
                ready.set_exception(error)

    async def judging(changes: Changes) -> Verdict:
        if changes.problem is not None:
            return _unjudged(changes.problem)
        try:
            return await _judge_on(await asyncio.shield(ready), task, changes)
        except InfraError as error:
            logger.info("Task %s is judged once more in another sandbox, because %s", task.id, error)
            first = error
        try:
            async with _opened(backend, task, image) as bench:
                return await _judge_on(bench, task, changes)
        except _DiedInTests as error:
            if isinstance(first, _DiedInTests):
                return Verdict(0.0, f"The tests brought down their sandbox, twice ({error}).")
            raise

    holder = asyncio.create_task(hold())
    try:
        yield judging
    finally:
        finished.set()
        if not ready.done():
            holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
        if ready.done() and not ready.cancelled():
            ready.exception()  # marks it as seen: nobody may have asked for a verdict


async def judge_in(sandbox: Sandbox, task: Task, changes: Changes) -> Verdict:
    """Judge changes in a fresh sandbox that the caller opened with `judge_spec`; it is stopped afterwards.

    Raises InfraError; the sandbox must not be used again.
    """
    if changes.problem is not None:
        return _unjudged(changes.problem)
    return await _judge_on(await _prepare(sandbox, task), task, changes)


@dataclass(frozen=True, slots=True)
class _Bench:
    """A sandbox that is ready to judge. user: who runs test.sh; judged: the user id of the code under test."""

    sandbox: Sandbox
    user: str | None
    judged: int
    stand_ins: bool


@asynccontextmanager
async def _opened(backend: Backend, task: Task, image: str) -> AsyncIterator[_Bench]:
    """A sandbox ready to judge. Raises InfraError when there is none."""
    try:
        async with backend.open(judge_spec(task, image)) as sandbox:
            yield await _prepare(sandbox, task)
    except SandboxError as error:
        raise InfraError("judge", f"could not open the judge's sandbox: {error}") from error


async def _prepare(sandbox: Sandbox, task: Task) -> _Bench:
    """Put tests and stand-ins in place, and a directory for the reward. Raises InfraError."""
    tests = task.hidden.tests
    if tests is None:
        raise InfraError("task", f"task {task.id} has no tests; give it Hidden.tests, or judge it in its environment")
    try:
        asked = await sandbox.exec(["id", "-u"], user=task.hidden.user)
        user = int(asked.output) if asked.ok and asked.output.strip().isdigit() else 0
        # Asked for by the task, a user other than root writes the reward, and then the judged code can too.
        stand_ins = task.hidden.user is None or user == 0
        directories = {"tests": tests, **({"judge": _STAND_INS} if stand_ins else {})}
        archive = await asyncio.to_thread(pack_directories, directories)
        make = _MAKE if stand_ins else _MAKE_FOR_USER
        # By the image's own tar, where it has one: the engine starts a process for each archive.
        made = await sandbox.exec(f"{make} && tar -xf - -C /", user="root", stdin=archive)
        if not made.ok:
            made = await sandbox.exec(make, user="root")
            if not made.ok:
                raise InfraError("judge", f"could not make /tests and {LOGS}: {made.output[-_SHOWN:]}")
            await sandbox.upload(archive, "/")
        if stand_ins:
            made = await sandbox.exec(["sh", "/judge/setup.sh", sandbox.workdir], user="root")
            if not made.ok:
                raise InfraError("judge", f"could not prepare the judge: {made.output[-_SHOWN:]}")
    except (SandboxError, OSError) as error:
        raise InfraError("judge", f"could not prepare the judge's sandbox: {error}") from error
    return _Bench(sandbox, "root" if stand_ins else task.hidden.user, user or NOBODY, stand_ins)


_REPORT = "judge.json"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Anyone may leave a report in the directory; the sticky bit keeps root's files root's.
_MAKE = (
    f"rm -rf /tests /judge {LOGS} && mkdir -p /tests /judge {LOGS} && chmod 1777 {LOGS} && cd {LOGS} "
    f"&& touch reward.json reward.txt memory {_REPORT} && chmod 600 {_REPORT}"
)
_MAKE_FOR_USER = f"rm -rf /tests {LOGS} && mkdir -p /tests {LOGS} && chmod 777 {LOGS}"


async def _judge_on(bench: _Bench, task: Task, changes: Changes) -> Verdict:
    """Apply, run, stop, read. Raises InfraError."""
    sandbox = bench.sandbox
    try:
        problem = await _apply(sandbox, task, changes)
    except (SandboxError, OSError) as error:
        raise InfraError("judge", f"could not apply the changes in the judge's sandbox: {error}") from error
    if problem is not None:
        return Verdict(0.0, problem)
    command = ["/bin/sh", "/judge/run.sh", sandbox.workdir] if bench.stand_ins else ["bash", "/tests/test.sh"]
    try:
        ran = await sandbox.exec(
            command,
            timeout=task.hidden.timeout_s,
            cwd=sandbox.workdir,
            env={**task.hidden.test_env, "JUDGED_UID": str(bench.judged)},
            user=bench.user,
            max_output=MAX_REPORT_BYTES,
        )
    except (SandboxDied, SandboxTimeout) as error:
        raise _DiedInTests("judge", f"the sandbox did not survive the tests: {error}") from error
    except SandboxError as error:
        raise InfraError("judge", f"the tests could not be run: {error}") from error
    try:
        logs = await _logs(bench)
        files = {name: data for name, data in regular_files(logs, MAX_REPORT_BYTES) if data}
    except (SandboxError, tarfile.TarError) as error:
        raise InfraError("judge", f"could not read the judge's logs: {error}") from error
    except (OSError, ValueError) as error:
        return _verdict(ran, {}, f"the judge's logs could not be read: {error}")
    return _verdict(ran, files)


async def _logs(bench: _Bench) -> bytes:
    """The directory of the reward as a tar archive. Raises SandboxError, or OSError and ValueError as `download`."""
    if bench.stand_ins:
        # What nobody's processes may still do changes no file of root's, so there is nothing to stop first.
        # Its `tar` is not one that they put into a folder of the image's PATH.
        packed = await bench.sandbox.exec(
            ["tar", "-C", LOGS, "-cf", "-", "."], user="root", env={"PATH": _PATH}, max_output=MAX_REPORT_BYTES
        )
        if packed.ok and packed.raw and not packed.truncated:
            return packed.raw
    await bench.sandbox.stop()
    return await bench.sandbox.download(LOGS, max_bytes=MAX_LOGS_BYTES)


class _DiedInTests(InfraError):
    """The sandbox died or went silent under `test.sh`: the judged code's doing or the machine's."""


def _unjudged(problem: str) -> Verdict:
    return Verdict(0.0, f"Nothing could be judged: {problem}.")


async def _apply(sandbox: Sandbox, task: Task, changes: Changes) -> str | None:
    """Make the agent's changes in a clean tree. Returns why they can't be made, None normally.

    Changed paths are removed first: nothing is written through a link or into a file of another kind."""
    doomed = "".join(f"./{path}\0" for path in (*changes.deleted, *changes.changed))
    if doomed:
        removed = await sandbox.exec(
            ["xargs", "-0", "rm", "-rf", "--"],
            cwd=sandbox.workdir,
            stdin=doomed.encode("utf-8", "surrogateescape"),
            timeout=300.0,
            user=task.user,  # who could remove them in the agent's sandbox
        )
        if not removed.ok:
            return f"The agent's deletions could not be made: {removed.output[-_SHOWN:]}"
    if changes.added or changes.changed:
        await sandbox.upload(changes.archive, sandbox.workdir)
    return None


def _verdict(ran: ExecResult, logs: Mapping[str, bytes], problem: str | None = None) -> Verdict:
    output = ran.output[-_SHOWN:]
    tests = _tests(logs, ran.output)
    metrics = {"judge_s": ran.duration_s, "judge_exit_code": float(ran.exit_code)}
    metrics |= {PREFIX + run["cheat"]: 1.0 for run in _watched(logs) if run["cheat"]}
    if logs.get("memory", b"").strip().isdigit():
        metrics["judge_memory_mb"] = int(logs["memory"]) / 2**20
    if ran.timed_out:
        explanation = f"The tests did not end within {ran.duration_s:.0f} s.\n{output}"
        return Verdict(0.0, explanation, tests, {**metrics, "judge_timed_out": 1.0})
    try:
        if problem is not None:
            raise ValueError(problem)
        rewards = _rewards(logs)
    except ValueError as error:
        return Verdict(0.0, f"No reward: {error} (test.sh ended with {ran.exit_code}).\n{output}", tests, metrics)
    reward = rewards.get("reward", sum(rewards.values()) / len(rewards))
    failed = [name for name, status in tests.items() if status is not TestStatus.PASSED]
    named = f"; not passed: {', '.join(failed[:10])}" if failed else ""
    said = f"Reward {reward:g}; {len(tests) - len(failed)} of {len(tests)} tests passed{named}.\n{output}"
    extra = {f"reward/{name}": value for name, value in rewards.items() if name != "reward"}
    return Verdict(reward, said, tests, {**metrics, **extra})


def _rewards(logs: Mapping[str, bytes]) -> dict[str, float]:
    """The named rewards that test.sh wrote. Raises ValueError when there is none that can be used."""
    if "reward.json" in logs:
        try:
            found = json.loads(logs["reward.json"])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"reward.json is not JSON: {error}") from None
        table = found if isinstance(found, dict) else {"reward": found}
        if not table or not all(type(value) in (int, float) and math.isfinite(value) for value in table.values()):
            raise ValueError(f"reward.json holds {str(found)[:100]}, not finite numbers")
        return {name: float(value) for name, value in table.items()}
    if "reward.txt" not in logs:
        raise ValueError("the judge wrote no reward")
    text = logs["reward.txt"].decode("utf-8", "replace").strip()
    try:
        reward = float(text)
    except ValueError:
        raise ValueError(f"reward.txt holds {text[:100]!r}, not a number") from None
    if not math.isfinite(reward):
        raise ValueError(f"reward.txt holds {text[:100]!r}, not a finite number")
    return {"reward": reward}


def _watched(logs: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The stand-ins' report, which root alone could write: one entry for each call of pytest."""
    runs: list[dict[str, Any]] = json.loads(logs.get(_REPORT, b"[]"))
    return runs


def _tests(logs: Mapping[str, bytes], output: str) -> dict[str, TestStatus]:
    """Status per test from whatever report there is; empty when there is none that can be read."""
    if _REPORT in logs:
        found = {"passed": TestStatus.PASSED, "missing": TestStatus.MISSING, "skipped": TestStatus.MISSING}
        return {
            name: found.get(what, TestStatus.FAILED) for run in _watched(logs) for name, what in run["tests"].items()
        }
    if "ctrf.json" in logs:
        return _from_ctrf(logs["ctrf.json"])
    for name in sorted(logs):
        if name.endswith(".xml"):
            return _from_junit(logs[name])
    passed = {"PASSED": TestStatus.PASSED, "SKIPPED": TestStatus.MISSING}
    return {name: passed.get(word, TestStatus.FAILED) for word, name in _PYTEST_LINE.findall(output)}


def _from_ctrf(report: bytes) -> dict[str, TestStatus]:
    try:
        tests = json.loads(report)["results"]["tests"]
        return {str(test["name"]): _CTRF.get(test["status"], TestStatus.MISSING) for test in tests}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        logger.info("ctrf.json can't be read: %r", error)
        return {}


def _from_junit(report: bytes) -> dict[str, TestStatus]:
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        return {}
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError as error:
        logger.info("The JUnit report can't be read: %r", error)
        return {}
    return {f"{case.get('classname', '')}::{case.get('name', '')}": _junit_status(case) for case in cases}


def _junit_status(case: ElementTree.Element) -> TestStatus:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return TestStatus.FAILED
    return TestStatus.MISSING if "skipped" in kinds else TestStatus.PASSED
