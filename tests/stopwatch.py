"""How long something took of which a test says that it is quick."""

from __future__ import annotations

import time
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")


class Stopwatch:
    """Measures the seconds since it was made, without those in which some process waited for a processor.

    A bound on them holds however busy the machine is, and is as strict as it reads on an idle one. The kernel counts
    the waiting (`/proc/pressure/cpu`); where it does not, nothing is left out.
    """

    def __init__(self) -> None:
        self._began = self._now()

    @property
    def seconds(self) -> float:
        return self._now() - self._began

    @staticmethod
    def _now() -> float:
        return time.monotonic() - _waited_for_a_processor()


def _waited_for_a_processor() -> float:
    """Return the seconds of the machine's life in which at least one process waited."""
    try:
        some = PRESSURE.read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6
