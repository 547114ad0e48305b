"""How long something took of which a test says that it is quick."""

from __future__ import annotations

import os
import time

PROCESSORS = len(os.sched_getaffinity(0))


class Stopwatch:
    """Measures the seconds since it was made, as a machine without other work would take them, about.

    They are divided by the number of processes that shared a processor, by the load of the last minute. So a bound
    holds on a busy machine, and what hangs breaks it there, too, a few times later.
    """

    def __init__(self) -> None:
        self._began, self._load = time.monotonic(), os.getloadavg()[0]

    @property
    def seconds(self) -> float:
        load = max(self._load, os.getloadavg()[0])
        return (time.monotonic() - self._began) / max(1.0, load / PROCESSORS)
