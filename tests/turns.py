"""What is tried by turns: a share in each ordinary run, all with `./run test --all`.

Which share follows from a seed that pytest prints; `--corpus-seed N` tries the same again.
"""

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")
VARIABLE = "CORPUS_SEED"
"""Has the seed, for all workers of a run."""


def choose(seed: int | None) -> None:
    """Set the seed of a run: that of the run whose worker this is, if none is given."""
    os.environ[VARIABLE] = str(seed if seed is not None else os.environ.get(VARIABLE, random.randrange(1000)))


def seed() -> int:
    return int(os.environ[VARIABLE])


def turn(shares: int) -> int:
    """Return the number of the share that is tried, from 0 on."""
    return seed() % shares


def share(table: Mapping[str, T], most: int | None, place: int = 0) -> dict[str, T]:
    """Return what a run tries of a table: `most` of it, by turns, or all. place: other ones try others."""
    shares = -(-len(table) // (most or len(table)))
    return {name: table[name] for name in list(table)[(seed() + place) % shares :: shares]}


def share_or_all(most: int) -> pytest.MarkDecorator:
    """Call a test with `most` in an ordinary run, and with None as a slow one, as `share` takes it."""
    everything = pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
    return pytest.mark.parametrize("most", [most, everything], ids=["a share", "all"])


def one_of(values: Iterable[object]) -> Sequence[object]:
    """Return parameters of which an ordinary run tries one, by turns."""
    found = list(values)
    chosen = turn(len(found))
    sets = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in found]
    return [
        pytest.param(*one.values, id=one.id, marks=[*one.marks, *[pytest.mark.slow] * (at != chosen)])
        for at, one in enumerate(sets)
    ]


LONG = Path(__file__).with_name("long.json")
"""The tests that take `LONG_S` or more, with their seconds: six workers on two cores. A run tries a share of them."""
LONG_S = 2.0
LONG_SHARES = 5


def long_tests() -> Mapping[str, float]:
    """Return the seconds of each long test, by its id."""
    return json.loads(LONG.read_text())


def waiting(long: Iterable[str]) -> set[str]:
    """Return the ids of the long tests whose turn it is not. Neighbours have different turns."""
    tests = sorted(long)
    return set(tests) - set(tests[turn(LONG_SHARES) :: LONG_SHARES])


def note_long(reports: Iterable[object]) -> None:
    """Write down which tests took long. Those without a report stay as they are."""
    seconds = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    noted = {**long_tests(), **{test: round(took) for test, took in seconds.items()}}
    LONG.write_text(json.dumps({test: noted[test] for test in sorted(noted) if noted[test] >= LONG_S}, indent=0) + "\n")
