"""The kernel log's reports of the memory killer: of a sandbox's process 1, and of processes killed for the machine.
Those of sandboxes on other machines are not in it."""

from __future__ import annotations

import os
import re

_TAKEN = re.compile(rb"[^;]*;Memory cgroup out of memory: Killed process (\d+) \(\.atropos-execut\)")
"""A record as /dev/kmsg gives it, and a process's name, cut to 15 characters. Nobody inside can write one."""
_KILL = re.compile(rb"[^;]*;oom-kill:constraint=\w+,.*?,(?:global_oom|oom_memcg=([^,]+)),task_memcg=([^,]+),")
"""The same of any process: the control group at its limit, if the machine was not at its own; the process's group."""
_RECORD = 8192


class KernelLog:
    """The kernel's log from now on; an unreadable one reports nothing. To be used in one thread."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._kills: set[tuple[str, str]] = set()
        """Control groups: of the limit, "" for the machine's memory, and of the killed process."""
        try:
            self._log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self._log = -1

    def has_killed(self, process: int) -> bool:
        """Return whether the memory killer has ended an executor with this id."""
        self._read()
        return process in self._taken

    def was_killed_for_host(self, name: str) -> bool:
        """Return whether the memory killer has ended a process of a control group that was not at its limit: for want
        of memory on the machine.

        name: the end of the group's path, or a container's id, which engines put into it in several ways.
        """
        self._read()
        within = re.compile(rf"(?<![0-9a-z]){re.escape(name)}(?![0-9a-z])")
        return any(within.search(killed) and not within.search(limited) for limited, killed in self._kills)

    def _read(self) -> None:
        while self._log >= 0:
            try:
                self._note(os.read(self._log, _RECORD))
            except BrokenPipeError:  # what was not read in time is gone; the next is what is there
                continue
            except OSError:  # no more
                break

    def _note(self, record: bytes) -> None:
        if found := _TAKEN.match(record):
            self._taken.add(int(found[1]))
        elif found := _KILL.match(record):
            self._kills.add(((found[1] or b"").decode("utf-8", "replace"), found[2].decode("utf-8", "replace")))

    def close(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
