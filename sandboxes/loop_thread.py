"""An event loop in a thread of its own, for callers without one, or with one for each of their tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, TypeVar

from sandboxes.shielding import finish, on_failure

T = TypeVar("T")
F = TypeVar("F")


class Job(Generic[T]):
    """A coroutine in another thread's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.outcome: Future[T] = Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self.outcome.set_result(task.result())
        else:
            self.outcome.set_exception(error)

    def cancel(self) -> None:
        """Cancel it, from any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def wait_for(self, future: Future[F]) -> F:
        """Return a future's result. An interruption of this thread cancels the work, and waits for its end."""
        with on_failure(self._end):
            return future.result()

    def _end(self, _: BaseException) -> None:
        if not self.outcome.done():
            self.cancel()
            wait([self.outcome])


class LoopThread:
    """An event loop in a thread, between `start` and `close`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="sandboxes", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        # `asyncio.run` ends the loop's threads by a new one, which an ending process has none of from Python 3.12 on.
        loop, threads = asyncio.new_event_loop(), ThreadPoolExecutor(thread_name_prefix="sandboxes")
        loop.set_default_executor(threads)
        try:
            loop.run_until_complete(self._main(started))
        finally:
            threads.shutdown()
            loop.close()

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._end = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._end.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()

    def close(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            self._thread = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Job[T]:
        """Start a coroutine in the loop. Raises RuntimeError if it does not run, or runs this call."""
        why = ""
        if self._thread is None:
            why = "use the backend in its block: with SyncBackend(...) as backend"
        elif threading.current_thread() is self._thread:
            why = "here the sandboxes' own event loop runs: await the async method instead"
        if why:
            work.close()
            raise RuntimeError(why)
        return Job(self._loop, work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return its result. Ctrl-C cancels the work."""
        job = self.submit(work)
        return job.wait_for(job.outcome)

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, awaited from another one. A cancellation cancels it and waits for its end."""
        job = self.submit(work)
        ended = asyncio.wrap_future(job.outcome)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            job.cancel()
            await finish(asyncio.wait({ended}))
            raise

    @contextmanager
    def open_context(self, manager: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Hold an async context for the block, in one task."""
        entered: Future[tuple[T, asyncio.Future[BaseException | None]]] = Future()

        async def enter() -> None:
            async with manager() as value:
                left: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
                entered.set_result((value, left))
                error = await left
                if error is not None:  # others than Exceptions would end the loop
                    raise error if isinstance(error, Exception) else asyncio.CancelledError

        def fail(done: Future[None]) -> None:
            if not entered.done():
                entered.set_exception(done.exception() or RuntimeError("the context was not entered"))

        job = self.submit(enter())
        job.outcome.add_done_callback(fail)
        value, left = job.wait_for(entered)
        try:
            yield value
        except BaseException as error:  # the context in the other thread gets it, and may take it
            self._loop.call_soon_threadsafe(_resolve, left, error)
            wait([job.outcome])
            raised = job.outcome.exception()
            if raised is None:
                return
            if raised is error or isinstance(raised, asyncio.CancelledError):
                raise
            raise raised from error
        self._loop.call_soon_threadsafe(_resolve, left, None)
        job.wait_for(job.outcome)


def _resolve(future: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not future.done():
        future.set_result(error)
