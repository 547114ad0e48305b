"""Prepare the verifier's sandbox: the hidden tests, a directory for the reward, and the wrappers.

The tests are uploaded to /tests (root's, readable by root alone). Every Python, pytest and other program that test.sh
calls is replaced by a wrapper that runs it as nobody and watches it (the folder `inside`, see docs/reward.md), so
that test.sh alone can write a reward, whatever the judged code does. A task that names another user than root for its
test.sh gets no wrappers: that user writes the reward, and the judged code can write it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from envs.judging.archives import pack_directories
from envs.judging.specs import verifier_spec
from envs.types import Failure, InfraError, Task
from sandboxes.base import Backend, Sandbox, SandboxError

LOGS = "/logs/verifier"
"""Where test.sh leaves its reward."""
REPORT = "watched.json"
"""The wrappers' own report, in `LOGS`."""
HINDERED = "hindered"
"""What stood in the way of hidden tests, a line each, in `LOGS`."""
NAMED = "named"
"""Which of the reward's files the task's own files name, in `LOGS`."""
SHOWN = 2000
"""How many characters of a command's output an explanation quotes."""
_INSIDE = Path(__file__).parent / "inside"
_NOBODY = 65534
# Nobody but root makes files in the directory; a program that is told to write one there finds it made (`hand_over`
# in `inside/processes.py`). The test.sh of tasks that version 0.1 converted from terminal-bench reads the wrappers'
# report as judge.json.
_MAKE = (
    f"rm -rf /tests /verifier {LOGS} && mkdir -p /tests /verifier {LOGS} && chmod 755 {LOGS} && cd {LOGS} "
    f"&& touch memory {HINDERED} {REPORT} && chmod 600 {REPORT} {HINDERED} && ln -s {REPORT} judge.json"
)
_MAKE_FOR_USER = f"rm -rf /tests {LOGS} && mkdir -p /tests {LOGS} && chmod 777 {LOGS}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sandbox in which changes can be judged.

    user: who runs test.sh; None for the image's own.
    judged_uid: the user id of the code under test.
    wrappers: whether they are in place.
    shows_modes: whether what only the agent could read stays so, as the task's files look at modes, or nothing tells.
    """

    sandbox: Sandbox
    user: str | None
    judged_uid: int
    wrappers: bool
    shows_modes: bool


@asynccontextmanager
async def open_prepared(backend: Backend, task: Task, image: str) -> AsyncIterator[Prepared]:
    """Open a sandbox and prepare it. image: the task's. Raises InfraError when there is none."""
    own = task.hidden.own
    try:
        judging = image if own is None else await backend.ensure_image(own.image, own.context)
        async with backend.open(verifier_spec(task, judging)) as sandbox:
            yield await _prepare(sandbox, task)
    except SandboxError as error:
        raise InfraError(Failure.VERIFIER, f"could not open the verifier's sandbox: {error}") from error


async def _prepare(sandbox: Sandbox, task: Task) -> Prepared:
    own = task.hidden.own
    tests = [("tests", folder) for folder in (task.hidden.shared_tests, task.hidden.tests) if folder is not None]
    if own is not None and own.holds_tests:
        tests = []
    elif not tests:
        raise InfraError(
            Failure.TASK, f"task {task.id} has no tests; give it Hidden.tests, or judge it in its environment"
        )
    try:
        asked = await sandbox.exec(["id", "-u"], user=task.hidden.user)
        user = int(asked.output) if asked.ok and asked.output.strip().isdigit() else 0
        wrappers = task.hidden.user is None or user == 0
        await _upload(sandbox, tests, wrappers)
        if wrappers and task.hidden.record:
            # As the tests are: root's alone.
            await sandbox.exec("cat > /verifier/record.json", user="root", stdin=task.hidden.record.encode())
        shows_modes = True
        if wrappers:
            seen_by_all = str(int(user == 0 and task.user in (None, "root", "0")))
            made = await sandbox.exec(["sh", "/verifier/setup.sh", sandbox.workdir, seen_by_all], user="root")
            if not made.ok:
                raise InfraError(Failure.VERIFIER, f"could not put the wrappers in place: {made.output[-SHOWN:]}")
            shows_modes = "modes" in made.output.splitlines()
    except (SandboxError, OSError) as error:
        raise InfraError(Failure.VERIFIER, f"could not prepare the verifier's sandbox: {error}") from error
    return Prepared(sandbox, "root" if wrappers else task.hidden.user, user or _NOBODY, wrappers, shows_modes)


async def _upload(sandbox: Sandbox, tests: Sequence[tuple[str, Path]], wrappers: bool) -> None:
    """Make the directories and fill them. tests: none where the image holds them. Raises InfraError, SandboxError and
    OSError."""
    archive = await asyncio.to_thread(pack_directories, [*tests, *([("verifier", _INSIDE)] if wrappers else [])])
    make = _MAKE if wrappers else _MAKE_FOR_USER
    if not tests:
        make = make.replace("rm -rf /tests ", "rm -rf ", 1)
    # By the image's own tar, where it has one: the Docker daemon starts a process for each archive.
    made = await sandbox.exec(f"{make} && tar -xf - -C /", user="root", stdin=archive)
    if made.ok:
        return
    made = await sandbox.exec(make, user="root")
    if not made.ok:
        raise InfraError(Failure.VERIFIER, f"could not make /tests and {LOGS}: {made.output[-SHOWN:]}")
    await sandbox.upload(archive, "/")
