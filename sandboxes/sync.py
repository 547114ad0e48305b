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


class _Face(Generic[T]):
    """The face of something async, `inner`."""

    def __init__(self, inner: T, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[_Face[Any], P], T]:
    """Return an async method's face; a call of it waits for the result."""

    @functools.wraps(method)
    def call(self: _Face[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(self.inner, method.__name__)
        return self._thread.run(work(*args, **kwargs))

    return call


def _holds(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[T]], face: Callable[[T, LoopThread], F]
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


class SyncSandbox(_Face[Sandbox]):
    """One sandbox."""

    exec = _waits(Sandbox.exec)
    read_file = _waits(Sandbox.read_file)
    write_file = _waits(Sandbox.write_file)
    upload = _waits(Sandbox.upload)
    download = _waits(Sandbox.download)
    read_tree = _waits(Sandbox.read_tree)
    stop = _waits(Sandbox.stop)
    reset = _waits(Sandbox.reset)
    overran = _waits(Sandbox.overran)
    host_out_of_memory = _waits(Sandbox.host_out_of_memory)
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
        return SyncSession(self._thread.run(self.inner.session(**options)), self._thread)

    fork = _holds(Sandbox.fork, lambda forks, thread: [SyncSandbox(fork, thread) for fork in forks])


class SyncBackend(_Face[Backend]):
    """A backend before its entry, used as `with SyncBackend(backend) as backend`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, LoopThread())
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
