"""What is tried by turns: a share in each ordinary run, all with `./run test --all`.

Which share follows from a seed that pytest prints; `--corpus-seed N` tries the same again.
"""

import os
import random
from collections.abc import Iterable, Sequence

import pytest
from _pytest.mark import ParameterSet

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


def one_of(values: Iterable[object]) -> Sequence[object]:
    """Return parameters of which an ordinary run tries one, by turns."""
    found = list(values)
    chosen = turn(len(found))
    sets = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in found]
    return [
        pytest.param(*one.values, id=one.id, marks=[*one.marks, *[pytest.mark.slow] * (at != chosen)])
        for at, one in enumerate(sets)
    ]
