"""Stop a run in good order by SIGTERM, SIGHUP and Ctrl-C, and at once by a second one."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from sandboxes.shielding import on_failure

T = TypeVar("T")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STATUS = 130
"""The exit status of a process that was asked to end."""
CLOSING_S = 60.0
"""Seconds to close what a run has open: sandboxes, its journal, rows on their way."""
STARTING_S = 3.0
"""Seconds to close what a command has open before its run begins. Nothing is made by then."""
TIDYING_S = 30.0
"""Seconds to remove the sandboxes of a command that is no run, such as `tasks check`."""


class StopRequest:
    """Whether a run was asked to stop."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.working = False
        """Whether groups are being worked on: the run ends these by itself."""

    @property
    def requested(self) -> bool:
        """Tell whether nothing new is to be started."""
        return self._requested.is_set()

    def ask(self) -> bool:
        """Stop: nothing new is started, and running work has `shutdown_s` to finish. Returns False when there is
        nothing to wait for, or the second time: then cancel the run."""
        again = self.requested
        self._requested.set()
        return self.working and not again


class SignalHandler:
    """The effect of SIGTERM, SIGHUP (unless it is ignored, as under `nohup`) and Ctrl-C on this process. Used as
    `with`, around the event loop.

    The first one says so and calls `stop`; then the process has `closing_s` seconds to end. The second one calls
    `now`, and leaves it `hurry_s`. After this time, or with the third, it ends at once.
    """

    hurry_s = 3.0

    def __init__(self, *, closing_s: float = CLOSING_S) -> None:
        self.closing_s = closing_s
        self.stop: Callable[[], object] = _do_nothing
        self.now: Callable[[], object] = _do_nothing
        self._signals = 0
        self._before: dict[signal.Signals, Any] = {}
        self._timers: list[threading.Timer] = []
        self._waking: tuple[socket.socket, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for timer in self._timers:
            timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._waking:
            signal.set_wakeup_fd(-1)
        for end in self._waking:
            end.close()

    def follow(self, stop: Callable[[], object], now: Callable[[], object]) -> None:
        """Begin, in the event loop that calls both."""
        self.stop, self.now = stop, now
        self._loop = asyncio.get_running_loop()
        self._wake_loop_by_signals()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                # Not the loop's own handler: the loop may be held up.
                self._before[number] = signal.signal(number, self._on_signal)

    def _wake_loop_by_signals(self) -> None:
        """Have each signal end the loop's waiting: one that comes just before, or to another thread, would not."""
        reader, writer = self._waking = socket.socketpair()
        for end in self._waking:
            end.setblocking(False)
        self._loop.add_reader(reader, reader.recv, 4096)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
        signal.alarm(0)  # Ray's handler, which comes before, has the process aborted in 3 s
        if self._signals == 1:
            os.write(2, f"asked to end: it closes what is open, in {self.closing_s:g} s at most\n".encode())
            self._close_within(self.closing_s, self.stop)
        elif self._signals == 2:
            self._close_within(self.hurry_s, self.now)
        else:
            _exit_now("at the third signal")

    def _close_within(self, seconds: float, close: Callable[[], object]) -> None:
        self._exit_after(seconds)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(close)

    def _exit_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, _exit_now, [f"it had {seconds:g} s to close what was open"])
        timer.daemon = True
        timer.start()
        self._timers.append(timer)


class NoPlace(RuntimeError):
    """A command can't run in this thread; the message has the remedy."""


def check_place() -> None:
    """Raise NoPlace where no command can run: beside a running event loop, or outside of the main thread."""
    instead = "start the command as a program (in a notebook: !python FILE ...), or await envs.functions.running.run"
    if asyncio._get_running_loop() is not None:
        raise NoPlace(f"an event loop runs here already, as in a notebook; {instead}")
    if threading.current_thread() is not threading.main_thread():
        raise NoPlace(f"signals end a command, and they reach the main thread alone; {instead}")


def run_to_end(work: Coroutine[Any, Any, T], *, closing_s: float = TIDYING_S) -> T:
    """Run `work` in an event loop. A signal cancels it, with its clean-up; raises KeyboardInterrupt then. Raises
    NoPlace."""
    with on_failure(lambda _: work.close()):
        check_place()
    with SignalHandler(closing_s=closing_s) as end:
        try:
            return asyncio.run(run_until_signal(work, end))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def run_until_signal(work: Coroutine[Any, Any, T], end: SignalHandler) -> T:
    """Run `work`, which a signal cancels."""
    task = asyncio.ensure_future(work)
    end.follow(task.cancel, task.cancel)
    return await task


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End this process at once with Ctrl-C, in whatever import it is: imports may swallow a KeyboardInterrupt."""

    def end(*_: object) -> None:
        os.write(2, b"interrupted; nothing was begun\n")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        atexit._run_exitfuncs()  # temporary folders of what is imported
        os._exit(STATUS)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _do_nothing() -> None:
    """Do nothing."""


def _exit_now(why: str) -> None:
    # Past everything that could hold it up, Python's own clean-up included.
    os.write(2, f"ended at once ({why}); the next start makes again what is not on disk\n".encode())
    os._exit(STATUS)
