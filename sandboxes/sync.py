"""Sandboxes without async, for scripts and notebooks: each call waits for the backend's work in a thread of its own.

    with SyncBackend(DockerBackend()) as backend, backend.open(SandboxSpec(image)) as box:
        print(box.exec("make test").output)

Methods and their options are those of `sandboxes/base.py`, and may be called from any thread. Ctrl-C cancels the
work behind a call.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sandboxes.base import Backend, OutputStream, Process, Sandbox, Session, Streams

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")
_PIECE = 65536


class _Work(Generic[T]):
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

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def until(self, future: Future[F]) -> F:
        """Return a future's result. An interruption of this thread cancels the work, and waits for its end."""
        try:
            return future.result()
        except BaseException:
            if not self.outcome.done():
                self._loop.call_soon_threadsafe(self._cancel)
                wait([self.outcome])
            raise


class _Thread:
    """An event loop in a thread, between `start` and `close`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event

    def start(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)), name="sandboxes", daemon=True)
        self._thread.start()
        self._loop = started.result()

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._end = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def close(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            self._thread = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> _Work[T]:
        """Begin something in the loop."""
        if self._thread is None:
            raise RuntimeError("use the backend in its block: with SyncBackend(...) as backend")
        if threading.current_thread() is self._thread:
            raise RuntimeError("here the sandboxes' own event loop runs: await the async method instead")
        return _Work(self._loop, work())

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something in the loop, and return its result."""
        begun = self.begin(work)
        return begun.until(begun.outcome)

    @contextmanager
    def hold(self, manager: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Hold an async context for the block, in one task."""
        entered: Future[tuple[T, asyncio.Future[BaseException | None]]] = Future()

        async def held() -> None:
            async with manager() as value:
                left: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
                entered.set_result((value, left))
                error = await left
                if error is not None:  # others than Exceptions would end the loop
                    raise error if isinstance(error, Exception) else asyncio.CancelledError

        def fail(done: Future[None]) -> None:
            if not entered.done():
                entered.set_exception(done.exception() or RuntimeError("the context was not entered"))

        work = self.begin(held)
        work.outcome.add_done_callback(fail)
        value, left = work.until(entered)
        try:
            yield value
        except BaseException as error:
            self._loop.call_soon_threadsafe(_set, left, error)
            wait([work.outcome])
            raised = work.outcome.exception()
            if raised is None:
                return
            if raised is error or isinstance(raised, asyncio.CancelledError):
                raise
            raise raised from error
        self._loop.call_soon_threadsafe(_set, left, None)
        work.until(work.outcome)


def _set(future: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not future.done():
        future.set_result(error)


class _Face(Generic[T]):
    """The face of something async, `inner`."""

    def __init__(self, inner: T, thread: _Thread) -> None:
        self.inner = inner
        self._thread = thread


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[_Face[Any], P], T]:
    """Return an async method's face; a call of it waits for the result."""

    @functools.wraps(method)
    def call(self: _Face[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(self.inner, method.__name__)
        return self._thread.run(lambda: work(*args, **kwargs))

    return call


def _holds(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[T]], face: Callable[[T, _Thread], F]
) -> Callable[Concatenate[_Face[Any], P], AbstractContextManager[F]]:
    """Return the face of a method with an async context: one for `with`, which gives a face of the context's value."""

    @functools.wraps(method)
    @contextmanager
    def call(self: _Face[Any], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[F]:
        with self._thread.hold(lambda: getattr(self.inner, method.__name__)(*args, **kwargs)) as value:
            yield face(value, self._thread)

    return call


class SyncSession(_Face[Session]):
    """A shell with a lasting state."""

    run = _waits(Session.run)
    close = _waits(Session.close)


class SyncStream(_Face[OutputStream]):
    """Output of a running command; iterating over it yields it in pieces."""

    read = _waits(OutputStream.read)
    readline = _waits(OutputStream.readline)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read():
            yield piece


class SyncProcess(_Face[Process]):
    """A running command."""

    write = _waits(Process.write)
    close_stdin = _waits(Process.close_stdin)
    send_signal = _waits(Process.send_signal)
    resize = _waits(Process.resize)
    kill = _waits(Process.kill)
    wait = _waits(Process.wait)

    @property
    def stdout(self) -> SyncStream:
        return SyncStream(self.inner.stdout, self._thread)

    @property
    def stderr(self) -> SyncStream:
        return SyncStream(self.inner.stderr, self._thread)

    @property
    def exit_code(self) -> int | None:
        return self.inner.exit_code

    def __iter__(self) -> Iterator[bytes]:
        aiter(self.inner)  # which refuses streams that are apart
        return iter(self.stdout)


class SyncConnection(_Face[Streams]):
    """A connection to a server inside."""

    def read(self, size: int = _PIECE) -> bytes:
        """Return some bytes, at most `size`; none at the end."""
        return self._thread.run(lambda: self.inner[0].read(size))

    def readline(self) -> bytes:
        """Return a line with its end; nothing at the end. Raises ValueError if it is longer than 64 KB."""
        return self._thread.run(self.inner[0].readline)

    def write(self, data: bytes) -> None:
        """Send, and wait while the server is behind."""

        async def send() -> None:
            self.inner[1].write(data)
            await self.inner[1].drain()

        self._thread.run(send)

    def write_eof(self) -> None:
        """Report the end of the data to the server."""

        async def end() -> None:
            self.inner[1].write_eof()

        self._thread.run(end)


class SyncSandbox(_Face[Sandbox]):
    """One sandbox."""

    exec = _waits(Sandbox.exec)
    read_file = _waits(Sandbox.read_file)
    write_file = _waits(Sandbox.write_file)
    upload = _waits(Sandbox.upload)
    download = _waits(Sandbox.download)
    stop = _waits(Sandbox.stop)
    reset = _waits(Sandbox.reset)
    overran = _waits(Sandbox.overran)
    start = _holds(Sandbox.start, SyncProcess)
    connect = _holds(Sandbox.connect, SyncConnection)

    @property
    def workdir(self) -> str:
        return self.inner.workdir

    def door(self, name: str) -> str:
        """Return the address of the spec's door of this name for programs inside."""
        return self.inner.door(name)

    @functools.wraps(Sandbox.session)
    def session(self, **options: Any) -> SyncSession:
        return SyncSession(self._thread.run(lambda: self.inner.session(**options)), self._thread)

    @contextmanager
    def fork(self, count: int) -> Iterator[list[SyncSandbox]]:
        """Open `count` new sandboxes with this one's files."""
        with self._thread.hold(lambda: self.inner.fork(count)) as forks:
            yield [SyncSandbox(fork, self._thread) for fork in forks]


class SyncBackend(_Face[Backend]):
    """A backend before its entry, used as `with SyncBackend(backend) as backend`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, _Thread())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._thread.start()
            stack.callback(self._thread.close)
            stack.enter_context(self._thread.hold(lambda: self.inner))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> bool | None:
        return self._stack.__exit__(*exc)

    open = _holds(Backend.open, SyncSandbox)
    ensure_image = _waits(Backend.ensure_image)
    image_id = _waits(Backend.image_id)
