"""The kernel log's report of a sandbox's end: the memory killer has taken its process 1."""

from __future__ import annotations

import os
import re

_TAKEN = re.compile(rb"[^;]*;Memory cgroup out of memory: Killed process (\d+) \(\.atropos-execut\)")
"""A record as /dev/kmsg gives it, and a process's name, cut to 15 characters. Nobody inside can write one."""
_RECORD = 8192


class KernelLog:
    """The kernel's log from now on; an unreadable one reports nothing. To be used in one thread."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        try:
            self._log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self._log = -1

    def has_taken(self, process: int) -> bool:
        """Return whether the memory killer has ended an executor with this id."""
        while self._log >= 0:
            try:
                self._note(os.read(self._log, _RECORD))
            except BrokenPipeError:  # what was not read in time is gone; the next is what is there
                continue
            except OSError:  # no more
                break
        return process in self._taken

    def _note(self, record: bytes) -> None:
        if found := _TAKEN.match(record):
            self._taken.add(int(found[1]))

    def close(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
