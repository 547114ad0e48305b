"""Run the hidden tests on the agent's changes in a prepared sandbox, and read their outcome.

The changes are applied, and /tests/test.sh runs in the working directory as the task's user, by default the
image's. The test runners' reports come meanwhile by the sandbox's door; /logs/verifier is read afterwards.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from envs.judging.archives import PATH, regular_files
from envs.judging.changes import Changes
from envs.judging.patch import old_files, patch_of
from envs.judging.prepare import HOME, LOGS, SHOWN, PreparedSandbox
from envs.judging.reports.outcome import EARLY, outcome_of
from envs.judging.results import ScriptRun, read_verdict
from envs.types import Failure, InfraError, Task, Verdict
from sandboxes.base import ExecResult, Sandbox, SandboxDied, SandboxError, SandboxTimeout
from tools.output import truncate

_MAX_REPORT_BYTES = 4 * 2**20
_MAX_LOGS_BYTES = 64 * 2**20
_SMALL = 2**20
"""The most bytes of changes that are held in the sandbox's memory while they are unpacked."""
_REFUSED = 123
"""How `xargs` ends when `rm` could not remove something."""
MAX_OUTPUT = 40_000
"""Kept characters of test.sh's output: half of its beginning and half of its end."""
_LATE_S = 5.0
"""How long after their time the tests may be ended, in seconds."""
_SHARE = 0.5
"""Tests were starved if they had less than this share of one processor. Below the same part of their fair share of the
machine's processors they waited for something else."""
_MUCH = 4.0
"""How many times their usual time tests need a processor for at most."""
_USED = "cat /proc/loadavg /proc/cpuinfo /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null"
_KILLS = ("memory.events", "memory/memory.oom_control")
"""The kernel's counts, of control groups' versions 2 and 1."""
_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Tests may look into a repository of another user's."""
_LOOK = f"""exec 2>/dev/null
cat /sys/fs/cgroup/memory.peak || cat /sys/fs/cgroup/memory/memory.max_usage_in_bytes || echo 0
cd {LOGS} || exit 1
for name in reward.json reward.txt; do
    if [ -s $name ] && [ -f $name ] && [ ! -L $name ]; then echo $name; exec cat $name; fi
done"""
"""Prints the peak of memory, and the name and content of the file with the reward. Programs of the sandbox do that:
whoever replaces one can say no more than who writes the file. They print no archive: tarfile may take hours for one."""
_DIGITS = 20
_PYVENV = re.compile(r"/pyvenv\.cfg$")
OUT_OF_MEMORY = "the machine ran out of memory, and its kernel killed programs"
_KILLED = frozenset((129, 130, 131, 134, 137, 143))
"""Bash's exit codes after a signal from another process."""


class _NotProven(InfraError):
    """Tests that came to no end of their own: perhaps not for the code under test."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.VERIFIER, message)


class DiedInTests(_NotProven):
    """The sandbox died or went silent under `test.sh`. overran: the limit that the judged code broke to do that; None
    if nothing proves the code's guilt: it may have been the machine."""

    def __init__(self, message: str, overran: str | None) -> None:
        super().__init__(message)
        self.overran = overran


class ScriptKilled(_NotProven):
    """Somebody ended test.sh by a signal: from outside, or the code under test."""


class CpuStarved(_NotProven):
    """The tests did not end within their time, while others kept the machine's processors busy."""


async def run_tests(prepared: PreparedSandbox, task: Task, changes: Changes, timeout_s: float | None = None) -> Verdict:
    """Apply the changes, run test.sh and read the verdict. Done once in a sandbox.

    timeout_s: the tests have failed after it. None: after the task's own, if they had a processor meanwhile.
    Raises InfraError: DiedInTests and CpuStarved too.
    """
    try:
        before = await old_files(prepared.sandbox, changes)
        problem = await apply_changes(prepared.sandbox, changes, task.user)
        if problem is None:
            await _listen_in(prepared.sandbox, changes)
    except (SandboxError, OSError) as error:
        raise InfraError(Failure.VERIFIER, f"could not apply the changes in the verifier's sandbox: {error}") from error
    if problem is not None:
        return Verdict(0.0, problem)
    spent_s = _processor_s(await _usage(prepared.sandbox)) if task.hidden.in_place else None
    ran = await _run_test_sh(prepared, task, timeout_s or task.hidden.timeout_s)
    if ran.timed_out and timeout_s is None:
        await _had_time(prepared, ran.duration_s, task.hidden.usual_s, spent_s or 0.0)
    if await prepared.sandbox.host_out_of_memory():
        raise InfraError(Failure.VERIFIER, f"{OUT_OF_MEMORY} in the verifier's sandbox")
    bench = prepared.bench
    if bench is not None:
        await bench.check()
    verdict = await _read(prepared, ran, changes.written())
    return replace(
        verdict,
        explanation=verdict.explanation + (bench.words() if bench else ""),
        metrics={**verdict.metrics, **(bench.metrics if bench else {})},
        output=truncate(ran.output, MAX_OUTPUT),
        patch=await asyncio.to_thread(patch_of, changes, before, prepared.sandbox.workdir),
    )


async def _read(prepared: PreparedSandbox, ran: ExecResult, written: Sequence[str]) -> Verdict:
    """Read the verdict of a finished test.sh. written: the changes' files. Raises InfraError."""
    calls = await prepared.receiver.calls()
    seen = await asyncio.to_thread(outcome_of, calls, prepared.decoyed, prepared.required, written)
    if seen is not None and seen.sign == EARLY and await _killed_for_memory(prepared.sandbox):
        # By whom is not known, and as little which tests passed.
        why = "the tests did not come to their end, and the kernel killed programs at the limit of the memory"
        seen = replace(seen, problem=why, sign=None, share=0.0)
    files, memory, problem = await _logs(prepared)
    if ran.exit_code in _KILLED and not ran.timed_out and not {"reward.txt", "reward.json"} & files.keys():
        raise ScriptKilled(f"test.sh was killed (it ended with {ran.exit_code})")
    # The stand-ins' reports on things that the image lacks explain, and decide nothing.
    lacking = "" if prepared.watched and seen is not None else await _said(prepared.sandbox, f"{HOME}/lacking")
    return read_verdict(ScriptRun(ran, files, seen, problem, prepared.watched, prepared.known, lacking, memory))


async def _killed_for_memory(sandbox: Sandbox) -> bool:
    """Tell whether the kernel has killed programs in a sandbox for its memory."""
    events = [await _said(sandbox, f"/sys/fs/cgroup/{path}") for path in _KILLS]
    return re.search(r"^oom_kill [1-9]", "\n".join(events), re.MULTILINE) is not None


async def _said(sandbox: Sandbox, path: str) -> str:
    """Return the text of a file that explains; "" if it can't be read."""
    with suppress(SandboxError, OSError, ValueError):
        return (await sandbox.read_file(path, max_bytes=SHOWN)).decode("utf-8", "replace").strip()
    return ""


async def apply_changes(sandbox: Sandbox, changes: Changes, user: str | None) -> str | None:
    """Make an agent's changes in a clean tree. Return why they can't be made, None normally. Raises InfraError when
    nothing tells.

    Changed paths are removed first, but for folders that remain folders: nothing is written through a link or into a
    file of another kind.

    user: the one that removes.
    """
    problem = await _change(sandbox, sandbox.workdir, changes, user)
    for folder, one in changes.elsewhere:
        problem = problem or await _change(sandbox, folder, one, user)
    return problem


async def _change(sandbox: Sandbox, folder: str, changes: Changes, user: str | None) -> str | None:
    """Make the changes below one folder. Returns and raises as `apply_changes`."""
    remain = frozenset(changes.folders)
    going = [*changes.deleted, *(path for path in changes.changed if path not in remain)]
    doomed = "".join(f"./{path}\0" for path in going)
    if doomed:
        # The user may have made folders writable first in the agent's sandbox. Root needs no such step.
        for who in (user, "root"):
            removed = await sandbox.exec(
                ["xargs", "-0", "rm", "-rf", "--"],
                cwd=folder,
                stdin=doomed.encode("utf-8", "surrogateescape"),
                timeout=300.0,
                user=who,
            )
            if removed.exit_code != _REFUSED:
                break
        else:
            return f"The agent's deletions could not be made: {removed.output[-SHOWN:]}"
        if not removed.ok:  # killed, or out of time: not for what is to be deleted
            raise InfraError(Failure.VERIFIER, f"deleting ended with {removed.exit_code}: {removed.output[-SHOWN:]}")
    if changes.added or changes.changed:
        await _unpack(sandbox, changes.archive, folder)
    return None


async def _unpack(sandbox: Sandbox, archive: bytes, folder: str) -> None:
    """Unpack changes by the image's own tar: nothing of the agent's is there yet, and the Docker daemon would start
    several programs for it. Large ones, and those in images without tar, are unpacked from outside."""
    if len(archive) <= _SMALL:
        command = ["tar", "-xpf", "-", "-C", folder]
        if (await sandbox.exec(command, cwd="/", stdin=archive, user="root", env={"PATH": PATH})).ok:
            return
    await sandbox.upload(archive, folder)


async def _listen_in(sandbox: Sandbox, changes: Changes) -> None:
    """Have the Pythons of the agent's virtual environments report their tests."""
    for folder, one in ((sandbox.workdir, changes), *changes.elsewhere):
        made = [path.rpartition("/")[0] for path in (*one.added, *one.changed) if _PYVENV.search(path)]
        if made:
            places = [f"{folder.rstrip('/')}/{path}" for path in made]
            await sandbox.exec(["sh", f"{HOME}/setup.sh", *places], user="root")


async def _run_test_sh(prepared: PreparedSandbox, task: Task, timeout_s: float) -> ExecResult:
    """Run test.sh. Raises DiedInTests and InfraError."""
    sandbox = prepared.sandbox
    try:
        ran = await sandbox.exec(
            prepared.command,
            timeout=timeout_s,
            cwd=sandbox.workdir,
            env={**_GIT, **prepared.env},
            user=task.hidden.user,
            max_output=_MAX_REPORT_BYTES,
        )
    except (SandboxDied, SandboxTimeout) as error:
        what = f"the sandbox did not survive the tests: {error}"
        raise DiedInTests(what, await sandbox.overran()) from error
    except SandboxError as error:
        raise InfraError(Failure.VERIFIER, f"the tests could not be run: {error}") from error
    if ran.timed_out and ran.duration_s > timeout_s + _LATE_S and await sandbox.overran() is None:
        what = f"the tests were ended {ran.duration_s - timeout_s:.0f} s late"
        raise InfraError(Failure.VERIFIER, f"{what}: the sandbox stood still, and perhaps before their time was over")
    return ran


async def _had_time(prepared: PreparedSandbox, took_s: float, usual_s: float | None, spent_s: float) -> None:
    """Raise CpuStarved if tests that ran for `took_s` seconds had little of a processor, on a busy machine.

    usual_s: their usual processor time; tests that had much more are taken to be endless. spent_s: the sandbox's before
    them.
    """
    used_s = _starved(await _usage(prepared.sandbox), took_s, spent_s)
    if used_s is not None and (usual_s is None or used_s < _MUCH * usual_s):
        raise CpuStarved(f"the tests had {used_s:.1f} s of a processor in {took_s:.0f} s, on a busy machine")


async def _usage(sandbox: Sandbox) -> str:
    """Return the kernel's `/proc/loadavg` and `/proc/cpuinfo` of the machine, and `cpu.stat` or `cpuacct.usage` of the
    sandbox's cgroup; "" if they can't be had."""
    with suppress(SandboxError):
        return (await sandbox.exec(["sh", "-c", _USED], user="root", env={"PATH": PATH})).output
    return ""


def _processor_s(usage: str) -> float | None:
    """Return the processor seconds of a sandbox's processes; None if nothing tells."""
    used = re.search(r"^(usage_usec )?(\d+)$", usage, re.MULTILINE)
    return None if used is None else int(used[2]) / (1e6 if used[1] else 1e9)


def _starved(usage: str, took_s: float, spent_s: float) -> float | None:
    """Return the processor seconds of the tests, if they would have taken more. None: they had enough, or waited for
    something else, or nothing tells.

    usage: as `_usage` returns it. took_s: how long they ran. spent_s: the sandbox's seconds before them.
    """
    load = re.search(r"^([\d.]+) [\d.]+ [\d.]+ (\d+)/", usage, re.MULTILINE)
    total_s = _processor_s(usage)
    if load is None or total_s is None:
        return None
    used_s = total_s - spent_s
    processors = len(re.findall(r"^processor\s*:", usage, re.MULTILINE))
    fair = processors / max(float(load[1]), float(load[2]), 1.0)  # of the last minute, and now
    return used_s if fair * _SHARE <= used_s / took_s < _SHARE else None


async def _logs(prepared: PreparedSandbox) -> tuple[dict[str, bytes], int, str | None]:
    """Return the file with the reward, the peak of memory, and why the file can't be read; None if it can. Raises
    InfraError."""
    try:
        look = await prepared.sandbox.exec(_LOOK, user="root", env={"PATH": PATH}, max_output=_MAX_REPORT_BYTES)
        if look.ok and look.raw and not look.truncated:
            peak, name, reward = [*look.raw.split(b"\n", 2), b"", b""][:3]
            memory = int(peak) if peak.isdigit() and len(peak) < _DIGITS else 0
            return {name.decode("ascii", "replace"): reward} if reward else {}, memory, None
    except SandboxError as error:
        raise InfraError(Failure.VERIFIER, f"could not read the verifier's logs: {error}") from error
    try:
        await prepared.sandbox.stop()
        archive = await prepared.sandbox.download(LOGS, max_bytes=_MAX_LOGS_BYTES)
        return {name: data for name, data in regular_files(archive, _MAX_REPORT_BYTES) if data}, 0, None
    except (SandboxError, tarfile.TarError) as error:
        raise InfraError(Failure.VERIFIER, f"could not read the verifier's logs: {error}") from error
    except (OSError, ValueError) as error:
        return {}, 0, f"the verifier's logs could not be read: {error}"
