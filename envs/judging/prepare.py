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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

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
from sandboxes.base import Backend, NotSupported, Sandbox, SandboxError, SandboxSpec

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

    decoyed: the hidden tests. receiver: takes their reports. required: the tests that must pass. watched: whether the
    tests' observed results decide. known: whether the reference's were seen before, by `tasks check` or by the author
    of the list. command: runs test.sh. env: leads it to the stand-ins and to its judge. bench: of the judge by model.
    """

    sandbox: Sandbox
    decoyed: DecoyedTests
    receiver: Receiver
    required: RequiredTests
    watched: bool
    known: bool
    command: Sequence[str]
    env: Mapping[str, str]
    bench: Bench | None


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


def with_door(spec: SandboxSpec, receiver: Callable[[], Receiver]) -> SandboxSpec:
    """Return an agent's sandbox in which its work is judged: with the door for reports. receiver: takes them."""
    return replace(spec, doors={**spec.doors, _DOOR: lambda: receiver().door()})


async def prepare_in_place(sandbox: Sandbox, task: Task, receiver: Receiver) -> PreparedSandbox:
    """Prepare the agent's own sandbox, made by `with_door`, when its work is done. Raises InfraError."""
    return await _prepare(sandbox, task, receiver, None)


async def _prepare(sandbox: Sandbox, task: Task, receiver: Receiver, bench: Bench | None) -> PreparedSandbox:
    hidden, own = task.hidden, task.hidden.own
    holds_tests = own is not None and own.holds_tests
    folders = [] if holds_tests else folders_of(hidden)
    if not folders and not holds_tests:
        raise InfraError(
            Failure.TASK, f"task {task.id} has no tests; give it Hidden.tests, or judge it in its environment"
        )
    try:
        named = files_of(folders, _MAX_TEST_BYTES)
        if holds_tests:
            named = regular_files(await sandbox.download("/tests", max_bytes=_MAX_TEST_BYTES), _MAX_TEST_BYTES)
        files = await asyncio.to_thread(dict, named)
        listed = json.loads(files.get("tests.json", b"{}"))
        if not isinstance(listed, dict):
            raise ValueError("/tests/tests.json is not a table")
        record = json.loads(hidden.record or "{}")
        required = RequiredTests(listed, record[0] if isinstance(record, list) and record else record or {})
        watched = hidden.watched if hidden.watched is not None else speak_of_runners(files.items())
        in_tree = list(map(str, listed.get("IN_TREE", [])))
        modules = await asyncio.to_thread(_modules, files) | await _tests_of_tree(sandbox, in_tree, files)
        # Unwatched tests may run where nothing knows of decoys.
        made = await asyncio.to_thread(insert_decoys, modules if watched else {}, required.failing())
        left_out = {"tests/test.patch"} if in_tree else set()
        archive = await asyncio.to_thread(_pack, folders, left_out, made.texts, _port(sandbox))
        calls_pytest = any(b"pytest" in data or b"py.test" in data for data in files.values())
        path = await _upload(sandbox, archive, folders, runner=watched and calls_pytest)
        if not (holds_tests or hidden.in_place):
            await begin(sandbox, task if own is None else replace(task, health=None))  # as Harbor
    except (SandboxError, OSError, ValueError, tarfile.TarError) as error:
        raise InfraError(Failure.VERIFIER, f"could not prepare the verifier's sandbox: {error}") from error
    env = {"PATH": path, **hidden.test_env, **({} if bench is None else bench.env(sandbox.door(_JUDGE)))}
    known = hidden.watched is not None or bool(required.tests)
    command = command_of("/tests/test.sh", files.get("test.sh", b""))
    return PreparedSandbox(sandbox, made, receiver, required, watched, known, command, env, bench)


def _modules(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the modules of tests in /tests, by absolute path, without those with a digest that test.sh asks for."""
    texts = b"\0".join(files.values())
    return {
        f"/tests/{name}": data
        for name, data in files.items()
        if is_test_module(name.rpartition("/")[2], data) and sha256(data).hexdigest().encode() not in texts
    }


def command_of(path: str, script: bytes) -> list[str]:
    """Return the command for a script: by the program in its first line, as the kernel reads it, by default bash."""
    line = script.partition(b"\n")[0].decode("utf-8", "replace")
    words = line[2:].split(None, 1) if line.startswith("#!") else []
    plain = not words or words == ["/usr/bin/env", "bash"] or (len(words) == 1 and words[0].endswith("/bash"))
    return ["bash", path] if plain else [words[0], *(word.strip() for word in words[1:]), path]


async def _tests_of_tree(sandbox: Sandbox, in_tree: Sequence[str], files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Apply test.patch to the working directory, and return the modules of tests there, by absolute path."""
    if not in_tree:
        return {}
    if "test.patch" in files:
        command = ["git", "-c", "safe.directory=*", "apply", "-"]
        applied = await sandbox.exec(command, cwd=sandbox.workdir, user="root", stdin=files["test.patch"])
        if not applied.ok:
            raise InfraError(Failure.TASK, f"test.patch does not fit the image's tree: {applied.output[-SHOWN:]}")
    packed = await pack_some(sandbox, sandbox.workdir, in_tree, _MAX_TEST_BYTES)
    found = regular_files(packed, _MAX_TEST_BYTES) if packed else ()
    return {f"{sandbox.workdir.rstrip('/')}/{name}": data for name, data in found}


async def _upload(sandbox: Sandbox, archive: bytes, folders: Sequence[Path], *, runner: bool) -> str:
    """Put the tests and the code of `inside` into the sandbox. Returns the PATH for test.sh. runner: whether a process
    with pytest shall wait there for its calls. Raises InfraError, SandboxError and OSError."""
    make = _MAKE.format("/tests" if folders else "")
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


def _pack(folders: Sequence[Path], left_out: Set[str], texts: Mapping[str, bytes], port: str) -> bytes:
    """Return the archive of all that is put into the sandbox. folders: of this machine, for /tests; none if the image
    has it. texts: the modules with decoys, by path."""
    known = left_out | {path.lstrip("/") for path in texts}
    packed = pack_directories([*(("tests", folder) for folder in folders), ("verifier", _INSIDE)], known)
    archive = io.BytesIO(packed)
    with tarfile.open(fileobj=archive, mode="a", format=tarfile.GNU_FORMAT) as tar:
        for path, data in texts.items():
            add_file(tar, path.lstrip("/"), data)
        add_file(tar, "verifier/port", port.encode())
        add_file(tar, "verifier/lacking", b"", 0o666)
        add_file(tar, "verifier/uv/sitecustomize.py", (_INSIDE / "verifier_hook.pth").read_bytes())
        for program, names in _STANDINS.items():
            add_file(tar, f"verifier/{program}", (_INSIDE / program).read_bytes(), 0o755)
            for name in names.split():
                add_link(tar, f"verifier/bin/{name}", f"verifier/{program}")
    return archive.getvalue()
