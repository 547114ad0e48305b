"""The `tests/` of converted tasks."""

import json
import subprocess

from envs.tasks.adapters.script import pytest_verifier, unittest_verifier


def test_pytest_runs_the_files_and_the_listed_tests_decide():
    files = pytest_verifier(["a.py::x"], ["a.py::y"], files=["a b.py"], workdir="/app", options="-rN", prepare="true")
    script = files["tests/test.sh"]
    assert "cd /app || exit 1\ntrue\n" in script
    assert "export PYTHONPATH=/app LANG=C.UTF-8 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1\n" in script
    assert script.count("-rN 'a b.py'\n") == 1
    lists = json.loads(files["tests/tests.json"])
    assert lists == {"FAIL_TO_PASS": ["a.py::x"], "PASS_TO_PASS": ["a.py::y"], "FUNCTIONS": False}


def test_tests_that_must_not_pass_are_listed_with_how_they_end():
    files = pytest_verifier(["a"], [], files=[], workdir="/app", options="", exact={"b": "failed"}, plugins=True)
    assert json.loads(files["tests/tests.json"])["EXACT"] == {"b": "failed"}
    assert "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in files["tests/test.sh"]


def test_unittest_has_a_runner_of_ours_where_the_row_names_no_command():
    ours = unittest_verifier(["a"], [], files=["t.py"], workdir="/app")
    assert "python3 /tests/unittests.py t.py\n" in ours["tests/test.sh"]
    theirs = unittest_verifier(["a"], [], files=["t.py"], workdir="/app", command="python3 runtests.py")
    assert "python3 runtests.py\n" in theirs["tests/test.sh"]
    assert ("tests/unittests.py" in ours, "tests/unittests.py" in theirs) == (True, False)
    assert json.loads(theirs["tests/tests.json"])["UNITTEST"] == ["t.py"]


def test_every_script_is_one_that_bash_can_read():
    made = [
        pytest_verifier([], [], files=["it's.py"], workdir="/a b", options="", prepare="echo 1\necho 2"),
        unittest_verifier([], [], files=["it's.py"], workdir="/a b"),
    ]
    for files in made:
        subprocess.run(["bash", "-n"], input=files["tests/test.sh"], text=True, check=True)
        assert "@" not in files["tests/test.sh"]
