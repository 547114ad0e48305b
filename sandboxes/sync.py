"""Sandboxes without async, for scripts and notebooks: each call waits for the backend's work in a thread of its own.

    with SyncBackend(DockerBackend()) as backend, backend.open(SandboxSpec(image)) as box:
        print(box.exec("make test").output)

Methods and their options are those of `sandboxes/base.py`, and may be called from any thread. Ctrl-C cancels the
work behind a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sandboxes.base import Backend, OutputStream, Process, Sandbox, Session, Streams
from sandboxes.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")
_PIECE = 65536


class _SyncProxy(Generic[T]):
    """Calls the methods of an async object, `inner`, in the thread."""

    def __init__(self, inner: T, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread


def _blocking_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_SyncProxy[Any], P], T]:
    """Return a method that runs an async one, and waits for the result."""

    @functools.wraps(method)
    def call(self: _SyncProxy[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(self.inner, method.__name__)
        return self._thread.run(work(*args, **kwargs))

    return call


def _blocking_context(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[T]], make_proxy: Callable[[T, LoopThread], F]
) -> Callable[Concatenate[_SyncProxy[Any], P], AbstractContextManager[F]]:
    """Return a method for `with` of one for `async with`. make_proxy: wraps the context's value."""

    @functools.wraps(method)
    @contextmanager
    def call(self: _SyncProxy[Any], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[F]:
        with self._thread.open_context(lambda: getattr(self.inner, method.__name__)(*args, **kwargs)) as value:
            yield make_proxy(value, self._thread)

    return call


class SyncSession(_SyncProxy[Session]):
    """A shell with a lasting state."""

    run = _blocking_method(Session.run)
    close = _blocking_method(Session.close)


class SyncStream(_SyncProxy[OutputStream]):
    """Output of a running command; iterating over it yields it in pieces."""

    read = _blocking_method(OutputStream.read)
    readline = _blocking_method(OutputStream.readline)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read():
            yield piece


class SyncProcess(_SyncProxy[Process]):
    """A running command."""

    write = _blocking_method(Process.write)
    close_stdin = _blocking_method(Process.close_stdin)
    send_signal = _blocking_method(Process.send_signal)
    resize = _blocking_method(Process.resize)
    kill = _blocking_method(Process.kill)
    wait = _blocking_method(Process.wait)

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


class SyncConnection(_SyncProxy[Streams]):
    """A connection to a server inside."""

    def read(self, size: int = _PIECE) -> bytes:
        """Return some bytes, at most `size`; none at the end."""
        return self._thread.run(self.inner[0].read(size))

    def readline(self) -> bytes:
        """Return a line with its end; nothing at the end. Raises ValueError if it is longer than 64 KB."""
        return self._thread.run(self.inner[0].readline())

    def write(self, data: bytes) -> None:
        """Send, and wait while the server is behind."""

        async def send() -> None:
            self.inner[1].write(data)
            await self.inner[1].drain()

        self._thread.run(send())

    def write_eof(self) -> None:
        """Report the end of the data to the server."""

        async def end() -> None:
            self.inner[1].write_eof()

        self._thread.run(end())


class SyncSandbox(_SyncProxy[Sandbox]):
    """One sandbox."""

    exec = _blocking_method(Sandbox.exec)
    read_file = _blocking_method(Sandbox.read_file)
    write_file = _blocking_method(Sandbox.write_file)
    upload = _blocking_method(Sandbox.upload)
    download = _blocking_method(Sandbox.download)
    read_tree = _blocking_method(Sandbox.read_tree)
    stop = _blocking_method(Sandbox.stop)
    reset = _blocking_method(Sandbox.reset)
    overran = _blocking_method(Sandbox.overran)
    host_out_of_memory = _blocking_method(Sandbox.host_out_of_memory)
    start = _blocking_context(Sandbox.start, SyncProcess)
    connect = _blocking_context(Sandbox.connect, SyncConnection)

    @property
    def workdir(self) -> str:
        return self.inner.workdir

    def door(self, name: str) -> str:
        """Return the address of the spec's door of this name for programs inside."""
        return self.inner.door(name)

    @functools.wraps(Sandbox.session)
    def session(self, **options: Any) -> SyncSession:
        return SyncSession(self._thread.run(self.inner.session(**options)), self._thread)

    fork = _blocking_context(Sandbox.fork, lambda forks, thread: [SyncSandbox(fork, thread) for fork in forks])


class SyncBackend(_SyncProxy[Backend]):
    """A backend before its entry, used as `with SyncBackend(backend) as backend`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, LoopThread())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._thread.start()
            stack.callback(self._thread.close)
            stack.enter_context(self._thread.open_context(lambda: self.inner))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> bool | None:
        return self._stack.__exit__(*exc)

    open = _blocking_context(Backend.open, SyncSandbox)
    ensure_image = _blocking_method(Backend.ensure_image)
    image_id = _blocking_method(Backend.image_id)
