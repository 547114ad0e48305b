"""What this process has in memory."""

import resource
from pathlib import Path


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
