"""The published sets of tasks: where each is, in one revision, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ROWS = ("*train*.parquet",)


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A set of tasks. place: a dataset's name on the Hugging Face hub, or a git repository's address.

    revision: a commit of it. format: a key of `ADAPTERS`. files: the needed ones of a dataset, as patterns."""

    place: str
    revision: str
    format: str
    files: tuple[str, ...] = _ROWS


_NEMOTRON = ("nvidia/Nemotron-Terminal-Synthetic-Tasks", "7e53648e183cee7bcb0aed623cc91a121d37fa38", "harbor")
SETS: Mapping[str, PublishedSet] = {
    "swe-rebench-v2": PublishedSet("nebius/SWE-rebench-V2", "475dd5e8703bb5fb22dd3c60b5d038b019eba1e0", "swebench"),
    "swe-smith": PublishedSet("SWE-bench/SWE-smith", "699b53400d3855206a0fbf3ff4beaf1a52f4f232", "swe-smith"),
    "swe-gym": PublishedSet("SWE-Gym/SWE-Gym", "bb94ed9e39bbeb96a7fcbfb533b80f25a7fd59cb", "swe-gym"),
    "r2e-gym": PublishedSet("R2E-Gym/R2E-Gym-Subset", "2e8108ff942f24fcb5686badfaf7f9a8808566d5", "r2e-gym"),
    "nemotron-easy": PublishedSet(*_NEMOTRON, ("skill_based/easy.tar.gz",)),
    "nemotron-medium": PublishedSet(*_NEMOTRON, ("skill_based/medium*.tar.gz",)),
    "nemotron-mixed": PublishedSet(*_NEMOTRON, ("skill_based/mixed/*.tar.gz",)),
    "terminal-bench-2": PublishedSet(
        "https://github.com/laude-institute/terminal-bench-2.git", "69671fbaac6d67a7ef0dfec016cc38a64ef7a77c", "harbor"
    ),
}
"""The sets by the name given on the command line."""
