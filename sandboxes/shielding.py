"""Leave nothing behind: clean-up safe from cancellations, work side by side with a common end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_S = 1.0
"""Seconds before an unfinished task is cancelled again."""


@contextmanager
def on_failure(act: Callable[[BaseException], object]) -> Iterator[None]:
    """Call `act` with the exception that ends the block, also a cancellation. The exception goes on."""

    def ended(_: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            act(error)

    with ExitStack() as stack:
        stack.push(ended)
        yield


@contextmanager
def closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close a connection at the block's end; at once, if the block fails."""
    try:
        with on_failure(lambda _: writer.transport.abort()):
            yield
    finally:
        writer.close()


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile; then pass the cancellation on. A
    cancellation goes before an error of the work."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()


def call_in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread without an owner: if it hangs, it holds up neither others nor the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_outcome(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def work() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = function()
        except StopIteration as error:  # which a future can't hold
            problem = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # it is raised where it is awaited
            problem = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(set_outcome, result, problem)

    threading.Thread(target=work, daemon=True, name="function").start()
    return future


async def await_shared(task: asyncio.Future[T]) -> T:
    """Await a task that others await as well: it goes on when the caller is cancelled. Its error then counts as seen,
    so asyncio prints no traceback of it."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


@asynccontextmanager
async def ending(
    process: asyncio.subprocess.Process, by: signal.Signals = signal.SIGKILL
) -> AsyncIterator[asyncio.subprocess.Process]:
    """End a program if it still runs at the block's end; wait for its end, however often the caller is cancelled."""
    try:
        yield process
    finally:
        await end(process, by)


async def end(process: asyncio.subprocess.Process, by: signal.Signals = signal.SIGKILL) -> None:
    """End a program if it still runs, and wait for its end, however often the caller is cancelled."""
    if process.returncode is None:
        with suppress(ProcessLookupError):  # it ends just now
            process.send_signal(by)
    await finish(process.wait())


async def stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended, also when the caller is cancelled meanwhile; their errors are dropped.

    Once is not always enough: a task may have taken the cancellation for the end of a time limit of its own."""
    await finish(_stop(tasks))


async def _stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    going = set(tasks)
    while going:
        for task in going:
            task.cancel()
        ended, going = await asyncio.wait(going, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def run_concurrently(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do works side by side. Returns their results in order.

    The first error, or a cancellation, ends the others; it is raised after their end. With `asyncio.gather` alone
    an error would let them go on, and open again the things that the caller closes. A cancelled gather would end with
    the first that has cleaned up, and the others would be cancelled a second time, in their clean-up: so it is
    kept from them.
    """
    tasks: list[asyncio.Task[T]] = []
    try:
        tasks += map(asyncio.create_task, works)
        return list(await asyncio.gather(*map(asyncio.shield, tasks)))
    finally:
        await stop(tasks)
