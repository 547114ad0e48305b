"""Programs of the project as processes of their own.

To import atroposlib, transformers and PyTorch takes five seconds of a processor. Tests start some fifty programs that
do, so they are forked from one process that has imported them and nothing else. What a program does from its first own
line on is as if a user had typed it: arguments, environment, working directory, streams, signals, exit status.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["envs.cli", "envs.swe.environment", "atropos_agent.cpu_engine.__main__"])


class Program:
    """A running program, with what the tests need of subprocess.Popen.

    arguments: as for Python, "-m MODULE ..." or "FILE ...". stdout, stderr: files that are added to.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        stdout: Path,
        stderr: Path | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        words = [str(argument) for argument in arguments]
        place, variables = str(cwd or Path.cwd()), dict(os.environ if env is None else env)
        streams = (str(stdout), str(stderr or stdout))
        self._process = ForkServerProcess(target=_run, args=(words, place, variables, streams))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("program", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its status and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        program = Program(arguments, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            status = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
        return subprocess.CompletedProcess(list(map(str, arguments)), status, out.read_text(), err.read_text())


def lines_of(file: Path, program: Program, timeout: float = 120) -> Iterator[str]:
    """Lines of a file as a program adds them, until it ends."""
    deadline, at = time.monotonic() + timeout, 0
    while time.monotonic() < deadline:
        ended = program.poll() is not None
        text = file.read_text() if file.exists() else ""
        whole = text[at : text.rfind("\n") + 1]
        at += len(whole)
        yield from whole.splitlines()
        if ended:
            return
        time.sleep(0.05)


def _run(words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[str, str]) -> None:
    for number, path in enumerate(streams, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if words[0] == "-m":
        sys.argv = [words[1], *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
