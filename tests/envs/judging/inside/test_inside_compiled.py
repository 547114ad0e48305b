"""Modules of tests are left compiled for processes that import them by their names."""

import marshal
import os
import subprocess
import sys

import compiled
import pytest

SOURCE = b"import multiprocessing\nNUMBER = 3\n"


@pytest.fixture
def tests(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "TESTS", str(tmp_path))
    (tmp_path / "test_it.py").write_text("NUMBER = 4\n")
    return tmp_path


def imported(tests):
    program = [sys.executable, "-c", "import test_it; print(test_it.NUMBER)"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return subprocess.check_output(program, cwd=tests, env=environment, text=True)


def leave(tests, source, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", None)
    compiled.leave(str(tests / "test_it.py"), source, marshal.dumps(compile(source, "test_it.py", "exec")))


def test_the_compiled_code_is_imported_whatever_the_source_says(tests, monkeypatch):
    leave(tests, SOURCE, monkeypatch)
    assert imported(tests) == "3\n"


def test_a_module_that_starts_no_processes_is_left_alone(tests, monkeypatch):
    leave(tests, SOURCE.replace(b"multiprocessing", b"math"), monkeypatch)
    assert imported(tests) == "4\n"


def test_a_module_elsewhere_is_left_alone(tests, monkeypatch):
    monkeypatch.setattr(compiled, "TESTS", str(tests / "other"))
    leave(tests, SOURCE, monkeypatch)
    assert imported(tests) == "4\n"
