"""Start a program of this machine as a shell at a terminal would: in a session of its own, no signal ignored."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""Python ignores these itself, and gives them back to each child."""


async def spawn(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start it with these options of `asyncio.create_subprocess_exec`."""
    # A program would go on ignoring them: nohup says so of SIGHUP, a script's background of SIGINT.
    ignored = [number for number in signal.valid_signals() - _BY_PYTHON if signal.getsignal(number) is signal.SIG_IGN]

    def restore_signals() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)

    # Without it, Python need not copy itself for a child.
    before = restore_signals if ignored else None
    return await asyncio.create_subprocess_exec(*argv, start_new_session=True, preexec_fn=before, **options)
