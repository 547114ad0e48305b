"""Prepare the verifier's sandbox: the hidden tests among decoys, a directory for the reward, the reporter of the tests.

All of it is done before anything of the agent's is there. The tests lie in /tests as `decoys.insertion` made them;
their expected values stay in this process. The code for the sandbox is in the folder `inside`
(docs/verifier-protocol.md).
"""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from envs.judging.archives import add_file, add_link, pack_directories, pack_some, regular_files
from envs.judging.begin import begin
from envs.judging.decoys.insertion import DecoyedTests, insert_decoys
from envs.judging.decoys.node_ids import is_test_module
from envs.judging.judge_model import Bench
from envs.judging.reports.receiver import Receiver
from envs.judging.reports.required import RequiredTests
from envs.judging.specs import verifier_spec
from envs.judging.watched_tasks import files_of, folders_of, speak_of_runners
from envs.types import Failure, InfraError, Task
from sandboxes.base import Backend, NotSupported, Sandbox, SandboxError

LOGS = "/logs/verifier"
"""test.sh leaves its reward here."""
HOME = "/verifier"
"""The code from `inside` lies here."""
SHOWN = 2000
"""How many characters of a command's output an explanation quotes."""
_INSIDE = Path(__file__).parent / "inside"
_DOOR, _JUDGE = "verifier", "judge"
_STANDINS = {"standin.sh": "apt apt-get apk dnf yum curl wget pip pip3 uv uvx", "sudo.sh": "sudo"}
"""Programs of `inside`, and the names that each has in PATH."""
_MAKE = f"rm -rf {{0}} {LOGS} && mkdir -p -m 777 {LOGS} && tar -xpf - -C /"
_SET_UP = f'. {HOME}/setup.sh && echo "PATH=$PATH"'
_UVS = "/root/.local/bin"
"""uv's installer puts this in front of PATH if it isn't there yet: then nothing would stand in for uv."""
_MAX_TEST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class PreparedSandbox:
    """A sandbox, ready to judge changes.

    decoyed: the hidden tests. receiver: takes their reports. required, record: the tests that must pass. watched:
    whether the tests' observed results decide. known: whether the reference's were seen before, by `tasks check` or
    by the author of the list. path: PATH of test.sh. command: runs it. bench: of the judge by model; None without one.
    """

    sandbox: Sandbox
    decoyed: DecoyedTests
    receiver: Receiver
    required: RequiredTests
    record: Mapping[str, Any]
    watched: bool
    known: bool
    path: str
    command: Sequence[str]
    bench: Bench | None

    @property
    def judge_env(self) -> Mapping[str, str]:
        """Return the variables that lead test.sh to its judge."""
        return {} if self.bench is None else self.bench.env(self.sandbox.door(_JUDGE))


@dataclass(frozen=True, slots=True)
class _Tests:
    """The content for /tests. folders: of this machine; none if the image has it. modules: of tests, by absolute path,
    without those with a digest that test.sh asks for. listed: its tests.json. in_tree: modules of tests in the working
    directory. patch: makes these; None if they are there. speak_of_runners: whether any file names pytest or unittest.
    call_pytest: whether one may call it. command: runs test.sh."""

    folders: Sequence[Path]
    modules: Mapping[str, bytes]
    listed: Mapping[str, Any]
    in_tree: Sequence[str]
    patch: bytes | None
    speak_of_runners: bool
    call_pytest: bool
    command: Sequence[str]


@asynccontextmanager
async def open_prepared(backend: Backend, task: Task, image: str) -> AsyncIterator[PreparedSandbox]:
    """Open a sandbox and prepare it. image: the task's. Raises InfraError when there is none."""
    own = task.hidden.own
    receiver = Receiver()
    try:
        judging = image if own is None else await backend.ensure_image(own.image, own.context)
        async with AsyncExitStack() as stack:
            bench = await stack.enter_async_context(Bench(task.hidden.judge)) if task.hidden.judge else None
            doors = {_DOOR: receiver.door, **({} if bench is None else {_JUDGE: bench.door})}
            sandbox = await stack.enter_async_context(backend.open(replace(verifier_spec(task, judging), doors=doors)))
            yield await _prepare(sandbox, task, receiver, bench)
    except SandboxError as error:
        raise InfraError(Failure.VERIFIER, f"could not open the verifier's sandbox: {error}") from error


async def _prepare(sandbox: Sandbox, task: Task, receiver: Receiver, bench: Bench | None) -> PreparedSandbox:
    own = task.hidden.own
    holds_tests = own is not None and own.holds_tests
    folders = [] if holds_tests else folders_of(task.hidden)
    if not folders and not holds_tests:
        raise InfraError(
            Failure.TASK, f"task {task.id} has no tests; give it Hidden.tests, or judge it in its environment"
        )
    try:
        files = files_of(folders, _MAX_TEST_BYTES)
        if holds_tests:
            files = regular_files(await sandbox.download("/tests", max_bytes=_MAX_TEST_BYTES), _MAX_TEST_BYTES)
        tests = await asyncio.to_thread(_tests, folders, files)
        record = json.loads(task.hidden.record or "{}")
        record = record[0] if isinstance(record, list) and record else record or {}
        required = RequiredTests(tests.listed, record)
        watched = task.hidden.watched if task.hidden.watched is not None else tests.speak_of_runners
        modules = {**tests.modules, **await _tests_of_tree(sandbox, tests)}
        # Unwatched tests may run where nothing knows of decoys.
        made = await asyncio.to_thread(insert_decoys, modules if watched else {}, required.failing())
        path = await _upload(sandbox, tests, made, runner=watched and tests.call_pytest)
        if not holds_tests:
            await begin(sandbox, task if own is None else replace(task, health=None))  # as Harbor
    except (SandboxError, OSError, ValueError, tarfile.TarError) as error:
        raise InfraError(Failure.VERIFIER, f"could not prepare the verifier's sandbox: {error}") from error
    known = task.hidden.watched is not None or bool(required.tests)
    return PreparedSandbox(sandbox, made, receiver, required, record, watched, known, path, tests.command, bench)


def _tests(folders: Sequence[Path], named: Iterable[tuple[str, bytes]]) -> _Tests:
    """Read the content for /tests. named: its files' names and contents."""
    files = dict(named)
    listed = json.loads(files.get("tests.json", b"{}"))
    if not isinstance(listed, dict):
        raise ValueError("/tests/tests.json is not a table")
    texts = b"\0".join(files.values())
    return _Tests(
        folders,
        {
            f"/tests/{name}": data
            for name, data in files.items()
            if is_test_module(name.rpartition("/")[2], data) and sha256(data).hexdigest().encode() not in texts
        },
        listed,
        [str(name) for name in listed.get("IN_TREE", [])],
        files.get("test.patch"),
        speak_of_runners(files.items()),
        any(b"pytest" in data or b"py.test" in data for data in files.values()),
        command_of("/tests/test.sh", files.get("test.sh", b"")),
    )


def command_of(path: str, script: bytes) -> list[str]:
    """Return the command for a script: by the program in its first line, as the kernel reads it, by default bash."""
    line = script.partition(b"\n")[0].decode("utf-8", "replace")
    words = line[2:].split(None, 1) if line.startswith("#!") else []
    plain = not words or words == ["/usr/bin/env", "bash"] or (len(words) == 1 and words[0].endswith("/bash"))
    return ["bash", path] if plain else [words[0], *(word.strip() for word in words[1:]), path]


async def _tests_of_tree(sandbox: Sandbox, tests: _Tests) -> dict[str, bytes]:
    """Apply test.patch to the working directory, and return the modules of tests there, by absolute path."""
    if not tests.in_tree:
        return {}
    if tests.patch is not None:
        command = ["git", "-c", "safe.directory=*", "apply", "-"]
        applied = await sandbox.exec(command, cwd=sandbox.workdir, user="root", stdin=tests.patch)
        if not applied.ok:
            raise InfraError(Failure.TASK, f"test.patch does not fit the image's tree: {applied.output[-SHOWN:]}")
    packed = await pack_some(sandbox, sandbox.workdir, tests.in_tree, _MAX_TEST_BYTES)
    found = regular_files(packed, _MAX_TEST_BYTES) if packed else ()
    return {f"{sandbox.workdir.rstrip('/')}/{name}": data for name, data in found}


async def _upload(sandbox: Sandbox, tests: _Tests, made: DecoyedTests, *, runner: bool) -> str:
    """Put the tests and the code of `inside` into the sandbox. Returns the PATH for test.sh. runner: whether a process
    with pytest shall wait there for its calls. Raises InfraError, SandboxError and OSError."""
    archive = await asyncio.to_thread(_pack, tests, made, _port(sandbox))
    make = _MAKE.format("/tests" if tests.folders else "")
    env = {"RUNNER_FOR": sandbox.workdir} if runner else {}
    done = await sandbox.exec(f"{make} && {_SET_UP}", user="root", stdin=archive, env=env)
    if not done.ok and (await sandbox.exec(make.rpartition(" && ")[0], user="root")).ok:  # an image without tar
        await sandbox.upload(archive, "/")
        done = await sandbox.exec(_SET_UP, user="root", env=env)
    if not done.ok:
        raise InfraError(Failure.VERIFIER, f"could not prepare the verifier's sandbox: {done.output[-SHOWN:]}")
    return f"{HOME}/bin:{done.output.rpartition('PATH=')[2].strip()}:{_UVS}"


def _port(sandbox: Sandbox) -> str:
    """Return the port of loopback for the reports of the tests."""
    try:
        return sandbox.door(_DOOR).rpartition(":")[2]
    except NotSupported:
        return "1"  # nothing is seen there


def _pack(tests: _Tests, made: DecoyedTests, port: str) -> bytes:
    elsewhere = {path.lstrip("/") for path in made.texts} | ({"tests/test.patch"} if tests.in_tree else set())

    def is_kept(name: str) -> bool:
        return name not in elsewhere

    archive = io.BytesIO(
        pack_directories([*(("tests", folder) for folder in tests.folders), ("verifier", _INSIDE)], keep=is_kept)
    )
    with tarfile.open(fileobj=archive, mode="a", format=tarfile.GNU_FORMAT) as tar:
        for path, data in made.texts.items():
            add_file(tar, path.lstrip("/"), data)
        add_file(tar, "verifier/port", port.encode())
        add_file(tar, "verifier/lacking", b"", 0o666)
        add_file(tar, "verifier/uv/sitecustomize.py", (_INSIDE / "verifier_hook.pth").read_bytes())
        for program, names in _STANDINS.items():
            add_file(tar, f"verifier/{program}", (_INSIDE / program).read_bytes(), 0o755)
            for name in names.split():
                add_link(tar, f"verifier/bin/{name}", f"verifier/{program}")
    return archive.getvalue()
