"""The runner of tests by unittest, as an image's Python runs it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import envs.tasks.adapters

RUNNER = Path(envs.tasks.adapters.__file__).parent / "inside/unittests.py"


def test_cases_and_functions_are_run_and_sympys_marks_are_understood(tmp_path):
    text = """
        import unittest

        class Skipped(Exception):
            pass

        class Case(unittest.TestCase):
            def test_method(self):
                pass

        def test_function():
            pass

        def test_yields():
            for wanted in (1, 2):
                yield check, wanted

        def check(wanted):
            assert wanted == 1

        def test_skipped():
            raise Skipped("not here")

        def test_slow():
            raise AssertionError

        test_slow._slow = True
        """
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes/test_area.py").write_text(textwrap.dedent(text))
    ended = subprocess.run(
        [sys.executable, RUNNER, "shapes/test_area.py"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "Ran 4 tests" in ended.stderr
    assert "FAILED (failures=1, skipped=1)" in ended.stderr
    assert "test_slow" not in ended.stderr
