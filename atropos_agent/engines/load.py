"""Read how busy an inference server is from the page of its metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass

_METRICS = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_preemptions_total")


@dataclass(frozen=True, slots=True)
class Load:
    """A server's requests: running ones, waiting ones, and those that it has ever put back for lack of memory."""

    running: float
    waiting: float
    preempted: float


def read_load(page: str) -> Load | None:
    """Return the load from a page of Prometheus metrics; None when it has none, or is torn."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        name, _, rest = line.partition(" ")
        name = name.partition("{")[0]
        if name not in _METRICS:
            continue
        try:
            value = float(rest.rpartition(" ")[2])
        except ValueError:
            return None
        if not 0 <= value < math.inf:
            return None
        found[name] = found.get(name, 0.0) + value
    return Load(*(found.get(name, 0.0) for name in _METRICS)) if found else None
