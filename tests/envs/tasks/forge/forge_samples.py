"""A small library with tests, and a task forged from it."""

from pathlib import Path

from envs.tasks.forge.emit import Bug, ForgedTask
from envs.tasks.forge.mutations import apply_mutations, find_mutations
from envs.tasks.forge.project import read_project

LIBRARY = '''\
"""Shapes in whole numbers."""


def area(width, height):
    """The area in unit squares; 0 where a side isn't positive.

    More text.
    """
    if width <= 0 or height <= 0:
        return 0
    return width * height


def clamp(value, low=0, high=10):
    """`value`, moved into the range."""
    if value < low:
        return low
    return high if value > high else value


def halves(text):
    middle = len(text) // 2
    return text[:middle], text[middle:]


def label(value):
    return f"{value}"
'''


TESTS = """\
import pytest
from shapes import area, clamp

@pytest.mark.parametrize("side", range(1, 6))
def test_area(side):
    assert area(side, 3) == side * 3

def test_no_area():
    assert area(0, 5) == area(5, -1) == 0

@pytest.mark.parametrize("value, result", [(-1, 0), (0, 0), (5, 5), (10, 10), (11, 10)])
def test_clamp(value, result):
    assert clamp(value) == result
"""


MORE_TESTS = """\
import os
import pytest
import shapes

def test_halves():
    assert shapes.halves("abcd") == ("ab", "cd")

@pytest.mark.parametrize("value", range(20))
def test_label(value):
    assert shapes.label(value) == str(value)

def test_middle():
    assert shapes.halves("abc") == ("a", "bc")

def test_sometimes():
    assert int.from_bytes(os.urandom(2), "big") % 4096

def test_never():
    assert shapes.perimeter
"""


def forged(library: Path, operator: str = "cmp_swap") -> ForgedTask:
    text = (library / "src/shapes.py").read_text()
    mutation = next(one for one in find_mutations(text) if one.operator == operator)
    failing = "tests/test_area.py::test_no_area"
    frames = "tests/test_area.py:10: in test_no_area\n    assert area(0, 5) == 0\nsrc/shapes.py:9: in area\n    x"
    message = f"{frames}\nE   assert 5 == 0"
    return ForgedTask(
        read_project(library),
        (Bug("src/shapes.py", text, apply_mutations(text, [mutation]), (mutation,)),),
        {failing: message},
        ("tests/test_halves.py::test_halves",),
        {failing: "tests/test_area.py", "tests/test_halves.py::test_halves": "tests/test_halves.py"},
        duration_s=1.0,
    )
