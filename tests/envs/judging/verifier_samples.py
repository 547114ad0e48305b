"""Sample tasks with a test.sh, and sandboxes that fail."""

from contextlib import asynccontextmanager
from pathlib import Path

from task_formats import write

from envs.judging.changes import collect_changes
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import open_verifier
from envs.types import Hidden, Task
from sandboxes.base import ExecResult, Sandbox, SandboxDied

REWARD = "echo {} > /logs/verifier/reward.txt"


def task(tmp_path: Path, script: str, files=(), *, timeout_s=120.0, workdir: str | None = "/app", **hidden) -> Task:
    """A task with this test.sh, and other files beside it."""
    tests = write(tmp_path / "tests", {"test.sh": script, **dict(files)})
    return Task("sample", "Do it.", Hidden(tests, timeout_s=timeout_s, **hidden), workdir=workdir)


async def verdict_after(backend, image, task, command, starts=None):
    """Run a command as an agent would, and judge what it made. starts: known start trees."""
    start = await (starts or StartTrees(backend)).get(task, image)
    async with open_verifier(backend, task, image) as verifier:
        async with backend.open(agent_spec(task, image)) as sandbox:
            await sandbox.exec(command, timeout=30.0)
            changes = await collect_changes(sandbox, start, task.hidden)
        return await verifier(changes)


def image_of(tmp_path, python, *lines):
    """The folder of an image, with or without Python."""
    remove = [] if python else ["RUN rm -rf /usr/bin/python3* /usr/lib/python3*"]
    text = "\n".join(["FROM atropos-agent/base:debian12", "WORKDIR /app", *lines, *remove, ""])
    return write(tmp_path / "image", {"Dockerfile": text})


class FailingSandbox(Sandbox):
    """Answers every command with success until `fails` says that one dies."""

    id = "failing"
    workdir = "/app"

    def __init__(self, fails, limit=None):
        self._fails = fails
        self._limit = limit
        self.commands = []

    async def exec(self, command, **options):
        self.commands.append(command)
        if self._fails(command):
            raise SandboxDied("killed")
        return ExecResult(0, b"")

    async def overran(self):
        return self._limit

    async def upload(self, archive, path):
        pass

    async def stop(self):
        pass

    async def read_file(self, path, *, max_bytes=0):
        raise FileNotFoundError(path)

    async def download(self, path, *, max_bytes=0):
        raise FileNotFoundError(path)


class FailingBackend:
    """Opens the given sandboxes one after the other; an exception in their place is raised."""

    def __init__(self, *sandboxes):
        self._sandboxes = list(sandboxes)
        self.opened = 0

    @asynccontextmanager
    async def open(self, spec):
        self.opened += 1
        sandbox = self._sandboxes.pop(0)
        if isinstance(sandbox, BaseException):
            raise sandbox
        yield sandbox


def dies_in_tests(limit=None):
    return FailingSandbox(lambda command: "/tests/test.sh" in command, limit)


def dies_before_the_tests():
    return FailingSandbox(lambda command: "mkdir" in command)


def survives():
    return FailingSandbox(lambda command: False)


def rewards():
    """A sandbox in which test.sh writes a reward of 1."""
    return AnsweringSandbox(lambda timeout: ExecResult(0, b""))


def times_out(cpu_s, running=8):
    """A sandbox in which test.sh takes all of its time, and has a processor for cpu_s (None: nothing tells)."""
    used = "" if cpu_s is None else f"usage_usec {cpu_s * 1_000_000:.0f}\n"
    told = f"1.50 0.50 0.20 {running}/300 12345\nprocessor\t: 0\nprocessor\t: 1\n{used}"
    return AnsweringSandbox(lambda timeout: ExecResult(124, b"", timed_out=True, duration_s=timeout), told)


class AnsweringSandbox(FailingSandbox):
    """Answers test.sh as `ran` says, whose argument is the time limit, and who asks for the load with `told`."""

    def __init__(self, ran, told="", logs=None):
        super().__init__(lambda command: False)
        self._ran = ran
        self._told = told
        self._logs = {"reward.txt": b"1"} if logs is None else logs

    async def exec(self, command, **options):
        if "/tests/test.sh" in command:
            return self._ran(options["timeout"])
        if "/proc/loadavg" in command[-1]:
            return ExecResult(0, self._told.encode())
        if "cd /logs/verifier" in command:
            return ExecResult(0, b"0\n" + b"".join(name.encode() + b"\n" + data for name, data in self._logs.items()))
        return await super().exec(command, **options)
