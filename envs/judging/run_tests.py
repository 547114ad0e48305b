"""Run the hidden tests on the agent's changes in a prepared sandbox, and fetch what the tests left.

The changes are applied, and `bash /tests/test.sh` runs in the working directory. Then /logs/verifier is read as an
archive: by root in the sandbox where the wrappers are in place, since judged code can change nothing of root's; else by
the Docker daemon from outside, after every process was killed.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
from dataclasses import replace

from envs.judging.archives import owned_by, readable, regular_files
from envs.judging.areas import graded_paths
from envs.judging.changes import Changes
from envs.judging.patch import old_files, patch_of
from envs.judging.prepare import LOGS, REPORT, SHOWN, Prepared
from envs.judging.results import read_verdict
from envs.types import Failure, InfraError, Task, Verdict
from sandboxes.base import ExecResult, SandboxDied, SandboxError, SandboxTimeout

_MAX_REPORT_BYTES = 4 * 2**20
_MAX_LOGS_BYTES = 64 * 2**20
_REFUSED = 123
"""How `xargs` ends when `rm` could not remove something."""
MAX_OUTPUT = 40_000
"""Characters that are kept of what test.sh printed: half of its beginning and half of its end."""
_LATE_S = 5.0
"""How long after their time the tests may be ended, in seconds."""
_SHARE = 0.5
"""Of a processor, what tests must have had of it while they ran; of a fair share of the machine's, what they take who
wait for a processor and for nothing else."""
_MUCH = 4.0
"""How many times their usual time tests need a processor for at most."""
_USED = "cat /proc/loadavg /proc/cpuinfo /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null"
_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Tests may look into a repository, which is root's while they are nobody's."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DiedInTests(InfraError):
    """The sandbox died or went silent under `test.sh`. overran: the limit at which the judged code did that; None
    where nothing proves that it was the code: it may have been the machine."""

    def __init__(self, message: str, overran: str | None) -> None:
        super().__init__(Failure.VERIFIER, message)
        self.overran = overran


class Starved(InfraError):
    """The tests did not end within their time, while others kept the machine's processors busy."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure.VERIFIER, message)


async def run_tests(prepared: Prepared, task: Task, changes: Changes, timeout_s: float | None = None) -> Verdict:
    """Apply the changes, run test.sh and read the verdict. Done once in a sandbox.

    timeout_s: after which the tests have failed. None: after the task's own, if they had a processor meanwhile.
    Raises InfraError: DiedInTests and Starved too.
    """
    try:
        before = await old_files(prepared.sandbox, changes)
        problem = await _apply(prepared, task, changes)
    except (SandboxError, OSError) as error:
        raise InfraError(Failure.VERIFIER, f"could not apply the changes in the verifier's sandbox: {error}") from error
    if problem is not None:
        return Verdict(0.0, problem)
    ran = await _run_test_sh(prepared, task, timeout_s or task.hidden.timeout_s)
    if ran.timed_out and timeout_s is None:
        await _had_time(prepared, ran.duration_s, task.hidden.usual_s)
    verdict = await _read(prepared, ran)
    patch = await asyncio.to_thread(patch_of, changes, before, prepared.sandbox.workdir)
    return replace(verdict, output=_ends(ran.output), patch=patch)


async def _read(prepared: Prepared, ran: ExecResult) -> Verdict:
    """Read the verdict of a test.sh that ran. Raises InfraError."""
    try:
        logs = await _fetch_logs(prepared)
        owner = 0 if prepared.wrappers else None
        files = {name: data for name, data in regular_files(logs, _MAX_REPORT_BYTES, owner) if data}
        if not prepared.wrappers:
            files.pop(REPORT, None)  # judged code may have written it
    except (SandboxError, tarfile.TarError) as error:
        raise InfraError(Failure.VERIFIER, f"could not read the verifier's logs: {error}") from error
    except (OSError, ValueError) as error:
        return read_verdict(ran, {}, f"the verifier's logs could not be read: {error}")
    return read_verdict(ran, files)


async def _apply(prepared: Prepared, task: Task, changes: Changes) -> str | None:
    """Make the agent's changes in a clean tree. Return why they can't be made, None normally. Raises InfraError when
    nothing tells.

    Changed paths are removed first, but for folders that remain such: nothing is written through a link or into a file
    of another kind.
    """
    problem = await _change(prepared, prepared.sandbox.workdir, changes, task.user)
    for folder, one in changes.elsewhere:
        problem = problem or await _change(prepared, folder, one, task.user)
    return problem


async def _change(prepared: Prepared, folder: str, changes: Changes, user: str | None) -> str | None:
    """Make the changes below one folder. user: who removes. Returns and raises as `_apply`."""
    sandbox, archive = prepared.sandbox, changes.archive
    going = [*changes.deleted, *(path for path in changes.changed if path not in changes.folders)]
    doomed = "".join(f"./{path}\0" for path in going)
    if doomed:
        removed = await sandbox.exec(
            ["xargs", "-0", "rm", "-rf", "--"],
            cwd=folder,
            stdin=doomed.encode("utf-8", "surrogateescape"),
            timeout=300.0,
            user=user,  # who could remove them in the agent's sandbox
        )
        if removed.exit_code == _REFUSED:
            return f"The agent's deletions could not be made: {removed.output[-SHOWN:]}"
        if not removed.ok:  # killed, or out of time: not for what is to be deleted
            raise InfraError(Failure.VERIFIER, f"deleting ended with {removed.exit_code}: {removed.output[-SHOWN:]}")
    if changes.added or changes.changed:
        if folder != sandbox.workdir:
            # The owner says of each file that it is judged: root's shell obeys none of his.
            archive = owned_by(prepared.judged_uid, archive, None)
        elif prepared.shows_modes:
            archive = owned_by(prepared.judged_uid, archive, changes.private)
        else:
            # Were it judged code's own, it could read and replace what test.sh writes there.
            archive = readable(archive, changes.private)
        await sandbox.upload(archive, folder)
    return None


async def _run_test_sh(prepared: Prepared, task: Task, timeout_s: float) -> ExecResult:
    """Run test.sh. Raises DiedInTests and InfraError."""
    sandbox = prepared.sandbox
    command = ["/bin/sh", "/verifier/run.sh", sandbox.workdir] if prepared.wrappers else ["bash", "/tests/test.sh"]
    try:
        ran = await sandbox.exec(
            command,
            timeout=timeout_s,
            cwd=sandbox.workdir,
            env={
                **_GIT,
                **task.hidden.test_env,
                "JUDGED_UID": str(prepared.judged_uid),
                "JUDGED_KEPT": "\n".join(task.hidden.protected),
                "JUDGED_GRADED": "\n".join(graded_paths(task.hidden, sandbox.workdir)),
            },
            user=prepared.user,
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


async def _had_time(prepared: Prepared, took_s: float, usual_s: float | None) -> None:
    """Raise Starved where tests that ran for `took_s` seconds had little of a processor, on a busy machine.

    usual_s: what they usually take; who had much more of a processor does not end.
    """
    try:
        told = await prepared.sandbox.exec(["sh", "-c", _USED], user=prepared.user, env={"PATH": _PATH})
    except SandboxError:
        return
    used_s = _starved(told.output, took_s)
    if used_s is not None and (usual_s is None or used_s < _MUCH * usual_s):
        raise Starved(f"the tests had {used_s:.1f} s of a processor in {took_s:.0f} s, on a busy machine")


def _starved(told: str, took_s: float) -> float | None:
    """Return the seconds that a sandbox's processes had of a processor, where they would have taken more. None: they
    had enough, or waited for something else, or nothing says so.

    told: the kernel's `/proc/loadavg` and `/proc/cpuinfo` of the machine, and `cpu.stat` or `cpuacct.usage` of the
    sandbox's cgroup. took_s: how long they ran.
    """
    load = re.search(r"^([\d.]+) [\d.]+ [\d.]+ (\d+)/", told, re.MULTILINE)
    used = re.search(r"^(usage_usec )?(\d+)$", told, re.MULTILINE)
    if load is None or used is None:
        return None
    used_s = int(used[2]) / (1e6 if used[1] else 1e9)
    processors = len(re.findall(r"^processor\s*:", told, re.MULTILINE))
    fair = processors / max(float(load[1]), float(load[2]), 1.0)  # of the last minute, and now
    return used_s if fair * _SHARE <= used_s / took_s < _SHARE else None


async def _fetch_logs(prepared: Prepared) -> bytes:
    """Return `LOGS` as a tar archive. Raises SandboxError, or OSError and ValueError as `download`."""
    if prepared.wrappers:
        # What nobody's processes may still do changes no file of root's, so there is nothing to stop first.
        # Its `tar` is not one that they put into a folder of the image's PATH.
        packed = await prepared.sandbox.exec(
            ["tar", "-C", LOGS, "-cf", "-", "."], user="root", env={"PATH": _PATH}, max_output=_MAX_REPORT_BYTES
        )
        if packed.ok and packed.raw and not packed.truncated:
            return packed.raw
    await prepared.sandbox.stop()
    return await prepared.sandbox.download(LOGS, max_bytes=_MAX_LOGS_BYTES)


def _ends(output: str) -> str:
    """Return the beginning and the end of what was printed."""
    if len(output) <= MAX_OUTPUT:
        return output
    half = MAX_OUTPUT // 2
    return f"{output[:half]}\n[… {len(output) - 2 * half:,} characters are left out …]\n{output[-half:]}"
