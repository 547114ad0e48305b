"""A function in a process of its own, which can be killed.

The process is forked from one that has imported this package (multiprocessing's fork server), so it costs
milliseconds and the import of the function's module. It leads a session: everything started by it ends with it, and
it ends with its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import multiprocessing
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from envs.functions.arguments import LLM

Give = Callable[..., None]
_OURS = "envs.functions"


class FunctionError(RuntimeError):
    """A function raised in its process, or the process died; the message has the reason, with the traceback."""


class Child:
    """A call of a function in a process of its own.

    function: found there under its name in its module. given: its parameters, in pickled form.
    """

    def __init__(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        llm: LLM = given["llm"]
        address = (llm.base_url, llm.anthropic_url, llm.api_key, llm.model)
        others = {name: value for name, value in given.items() if name != "llm"}
        context = multiprocessing.get_context("forkserver")
        # Of a main module the fork server imports nothing (python/cpython#126631).
        listed = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]  # nothing public tells it
        if _OURS not in listed:
            context.set_forkserver_preload([*(listed if listed != ["__main__"] else ()), _OURS])
        self._ours, theirs = context.Pipe()
        self._theirs: Connection | None = theirs
        self._process = context.Process(
            target=_work, args=(theirs, function.__module__, function.__name__, address, others), daemon=True
        )
        self._killed = False

    def run(self, reward: Give) -> Any:
        """Return the function's value. Blocks; `kill` ends it. reward: of the parent's `LLM`. Raises
        FunctionError."""
        self._process.start()
        if self._killed:
            self.kill()
        if self._theirs is not None:
            self._theirs.close()
        try:
            while True:
                kind, content = self._ours.recv()
                if kind == "reward":
                    self._ours.send(_forward_reward(reward, content))
                elif kind == "returned":
                    return content
                else:
                    raise FunctionError(content)
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            what = f"its process ended with status {self._process.exitcode} before it returned"
            raise FunctionError(what) from None
        finally:
            self._ours.close()

    def kill(self) -> None:
        """End the process, with everything started by it. Doesn't wait for that: `run` does."""
        self._killed = True
        if (pid := self._process.pid) is None:
            return
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def _forward_reward(reward: Give, arguments: tuple[float, int | None]) -> str:
    """Pass a reward on. Returns its error, if any."""
    try:
        reward(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def _work(
    pipe: Connection, module: str, name: str, address: tuple[str, str, str, str], given: Mapping[str, Any]
) -> None:
    """Call the function, and report its value: the process's main function."""
    os.setsid()
    threading.Thread(target=_end_with_caller, args=(pipe.fileno(),), daemon=True).start()
    try:
        # The main module of the program has another name in processes of its own.
        found = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
        function = getattr(found, name)

        def give(value: float, turn: int | None) -> None:
            pipe.send(("reward", (value, turn)))
            if problem := pipe.recv():
                raise ValueError(problem)

        result = getattr(function, "work", function)
        result = getattr(result, "function", result)(**given, llm=LLM(*address, give))
        if inspect.isawaitable(result):
            result = asyncio.run(_await(result))
        pipe.send(("returned", result))
    except BaseException as error:  # of the user: it is raised at the other end
        pipe.send(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


def _end_with_caller(pipe: int) -> None:
    """Wait until nobody holds the pipe's other end, then end this session: the caller may have been killed."""
    watch = select.poll()
    watch.register(pipe, 0)  # the end alone, nothing that is to be read
    watch.poll()
    os.killpg(0, signal.SIGKILL)


async def _await(awaitable: Any) -> Any:
    return await awaitable
