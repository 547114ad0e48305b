"""The beginning of a task's container: its service is started, and its health check has to pass.

Published tasks also make their start by health checks: they fetch files, or hide some.
"""

from __future__ import annotations

import asyncio
import time

from envs.types import Failure, HealthCheck, InfraError, Task
from sandboxes.base import Sandbox

_START = """"$@" < /dev/null > /dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    case $(tr '\\0' ' ' 2> /dev/null < /proc/$!/cmdline) in "" | sleep* | "sh -c sleep "*) break ;; esac
    sleep 0.1
done"""
"""Runs a program beside the commands to come, and waits up to 2 s until it has become its own command."""
_SHOWN = 500


async def begin(sandbox: Sandbox, task: Task) -> None:
    """Begin a sandbox of the task's image. A service that fails is seen by the tests.

    Raises SandboxError, and InfraError if the health check fails."""
    if task.service is not None:
        await sandbox.exec(["sh", "-c", _START, "sh", *task.service.command], user=task.service.user)
    if task.health is not None and (problem := await examine(sandbox, task.health)) is not None:
        raise InfraError(Failure.TASK, f"task {task.id} can't begin: {problem}")


async def examine(sandbox: Sandbox, check: HealthCheck) -> str | None:
    """Wait until a health check passes. Returns why it does not, None normally. Raises SandboxError."""
    grace, left = time.monotonic() + check.grace_s, check.retries
    while True:
        early = time.monotonic() < grace
        ran = await sandbox.exec(["bash", "-c", check.command], timeout=check.timeout_s, user=check.user)
        if ran.ok:
            return None
        left -= not early
        if left <= 0:
            return f"its health check {check.command!r} ended with {ran.exit_code}: {ran.output[-_SHOWN:]}"
        await asyncio.sleep(check.grace_interval_s if early else check.interval_s)
