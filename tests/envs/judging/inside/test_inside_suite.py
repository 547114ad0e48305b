"""One call of pytest: what its process tells, and what follows from that."""

import subprocess
import sys


def test_sites_have_a_say_in_what_passed(judged):
    solution = "def f(x):\n    return x + 1\n"
    tests = "from solution import f\n\ndef test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n"
    good = judged({"solution.py": solution, "test_a.py": tests})
    assert (good.status, good.tests) == (0, {"test_a.py::test_f": "passed"})
    assert good.evidence["unverified"] == []
    empty = (
        "import gc, types\n"
        + solution.replace("return x + 1", "return empty()")
        + (
            "\ndef empty():\n    for one in gc.get_objects():\n"
            "        if isinstance(one, types.FunctionType) and one.__name__ == 'test_f':\n"
            "            one.__code__ = (lambda: None).__code__\n    import pytest\n    pytest.skip()\n"
        )
    )
    assert judged({"solution.py": empty, "test_a.py": tests}).status == 1
    patched = solution.replace("x + 1", "x") + "import _pytest.python as p\np.Function.runtest = lambda self: None\n"
    forced = judged({"solution.py": patched, "test_a.py": tests})
    assert (forced.tests, forced.cheat) == ({"test_a.py::test_f": "failed"}, "changed what tests rely on")


def test_ids_of_tests_are_as_they_are_without_decoys(judged):
    tests = """
import pytest

@pytest.mark.parametrize("x, twice", [(4, 8), (0.5, 1.0), ("a", "aa"), (1, 2), (1, 2), ([1], [1, 1]), (b"a", b"aa")])
def test_f(x, twice):
    assert x * 2 == twice
"""
    found = judged({"test_a.py": tests}).tests
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--collect-only", "test_a.py"]
    collected = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [*found] == [line for line in collected.splitlines() if "::" in line]


def test_what_the_reference_passed_is_asked_for_and_nothing_else(judged):
    files = {
        "test_a.py": "import os\ndef test_a():\n    assert len('a') == 1\n"
        "def test_b():\n    assert os.environ.get('X')\n"
    }
    assert judged(files).status == 1
    record = {"tests": {"test_a.py::test_a": []}, "sites": [], "odd": []}
    assert judged(files, record=record).status == 0
    assert judged(files, record={**record, "tests": {"test_a.py::test_c": []}}).status == 1
