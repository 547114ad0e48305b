"""Lives of a process whose imports take long: each is a fork."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def begin(work: Callable[[], Any]) -> int:
    """Fork a process that does `work`; return its id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    return child


def end_of(child: int) -> int:
    """Wait for its end; return how it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
