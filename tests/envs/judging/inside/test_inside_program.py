"""Programs that run tests by themselves are watched as the runners are."""

import json

import pytest
from program import Program
from python_call import PythonCall

CASES = """\
import unittest
from solution import double

class TestDouble(unittest.TestCase):
    def test_two(self):
        self.assertEqual(double(2), 4)
"""
BY_UNITTEST = CASES + "\nif __name__ == '__main__':\n    unittest.main()\n"
BY_PYTEST = "import sys, pytest\nsys.exit(pytest.main(['-q', '-p', 'no:xdist', '-p', 'no:asyncio', 'test_it.py']))\n"
LEAVES_OUT = (
    "import unittest\nnames = unittest.TestLoader.getTestCaseNames\n"
    "unittest.TestLoader.getTestCaseNames = lambda self, cls: [n for n in names(self, cls) if n != 'test_two']\n"
    "import _pytest.unittest as u\nold = u.UnitTestCase.collect\n"
    "u.UnitTestCase.collect = lambda self: [one for one in old(self) if one.name != 'test_two']\n"
    "def double(n): return n\n"
)
RIGHT, WRONG, EARLY = "return 2 * n", "return 2 * n + 1", "import os; os._exit(0)"


def run(tmp_path, files, argv):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    call = PythonCall(argv)
    status = Program(call, call.what if call.kind == "script" else "").run()
    (seen,) = json.loads((tmp_path / "watched.json").read_text())
    return status, seen


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    "files, argv",
    [
        ({"test_it.py": BY_UNITTEST}, ["test_it.py"]),
        ({"test_it.py": CASES}, ["-m", "unittest", "test_it"]),
        ({"test_it.py": CASES}, ["-m", "unittest", "test_it.TestDouble.test_two"]),
        ({"test_it.py": CASES}, ["-m", "unittest", "discover"]),
        ({"test_it.py": CASES, "runs.py": BY_PYTEST}, ["runs.py"]),
    ],
)
@pytest.mark.parametrize("body, is_right", [(RIGHT, True), (WRONG, False), (EARLY, False)])
def test_what_a_program_runs_is_seen(tmp_path, files, argv, body, is_right):
    status, seen = run(tmp_path, {**files, "solution.py": f"def double(n):\n    {body}\n"}, argv)
    assert (status == 0, seen["problem"] is None) == (is_right, is_right), seen
    assert (set(seen["tests"].values()) == {"passed"}) is is_right


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    "files, argv",
    [
        ({"test_it.py": BY_UNITTEST}, ["test_it.py"]),
        ({"test_it.py": CASES}, ["-m", "unittest", "test_it"]),
        ({"test_it.py": CASES, "runs.py": BY_PYTEST}, ["runs.py"]),
    ],
)
def test_what_a_program_names_and_does_not_run_is_missed(tmp_path, files, argv):
    easy = "class TestEasy(unittest.TestCase):\n    def test_zero(self):\n        self.assertEqual(double(0), 0)\n\n"
    files = {**files, "test_it.py": files["test_it.py"].replace("class TestDouble", easy + "class TestDouble")}
    status, seen = run(tmp_path, {**files, "solution.py": LEAVES_OUT}, argv)
    assert (status != 0, seen["tests"].get("TestDouble::test_two")) == (True, "missing"), seen


@pytest.mark.usefixtures("judged")
def test_a_program_without_a_test_is_not_taken_for_tests_that_passed(tmp_path):
    status, seen = run(tmp_path, {"runs.py": "print('OK')\n"}, ["runs.py"])
    assert status != 0
    assert seen["problem"] == "the program ran no test that could be watched"


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    "argv",
    [
        ["-m", "unittest", "test_it"],
        ["-m", "unittest", "-v", "test_it.TestDouble"],
        ["-m", "unittest", "discover", "-s", "hidden"],
    ],
)
def test_modules_on_the_path_and_in_folders_have_decoys(tmp_path, monkeypatch, argv):
    (tmp_path / "hidden").mkdir()
    monkeypatch.setenv("JUDGED_PYTHONPATH", str(tmp_path / "hidden"))
    liar = "class Liar:\n    def __eq__(self, other): return True\ndef double(n): return Liar()\n"
    files = {"hidden/test_it.py": CASES, "solution.py": liar}
    status, seen = run(tmp_path, files, argv)
    assert (status != 0, seen["cheat"]) == (True, "forced its tests")
    (tmp_path / "watched.json").write_text("")
    status, seen = run(tmp_path, {**files, "solution.py": f"def double(n):\n    {RIGHT}\n"}, argv)
    assert (status, seen["problem"], seen["evidence"]["unverified"]) == (0, None, [])
