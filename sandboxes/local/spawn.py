"""Start a program of this machine as a shell at a terminal would: in a session of its own, no signal ignored."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""Python ignores these itself, and gives them back to each child."""


async def spawn(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start it with these options of `asyncio.create_subprocess_exec`."""
    return await asyncio.create_subprocess_exec(
        *argv, start_new_session=True, preexec_fn=_make_signal_reset(_ignored_signals()), **options
    )


def _ignored_signals() -> list[signal.Signals]:
    """Return what a program would go on ignoring: nohup says so of SIGHUP, a script's background of SIGINT."""
    signals = signal.valid_signals() - _BY_PYTHON
    return [signal.Signals(number) for number in signals if signal.getsignal(number) is signal.SIG_IGN]


def _make_signal_reset(ignored: list[signal.Signals]) -> Callable[[], None] | None:
    if not ignored:
        return None  # Without it, Python need not copy itself for a child.

    def restore_signals() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)

    return restore_signals
