"""SWE-bench rows whose tests are not for pytest: of Django and sympy, whose repositories here are small ones."""

import ast
import difflib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clean_tree import CleanTree, a_few_at_a_time
from rows_on_disk import write
from turns import turn

import envs
from envs.checking.check import check_tasks
from envs.judging.verifier import judge
from envs.tasks.adapters.swebench import load
from envs.types import BadTask
from sandboxes.docker import DockerBackend

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = WRONG.replace("a - b", "a + b")

RUNNER = """\
import argparse
import os
import sys
import unittest

parser = argparse.ArgumentParser()
for option in ("--verbosity", "--settings", "--parallel"):
    parser.add_argument(option)
parser.add_argument("labels", nargs="*")

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    options = parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromNames(options.labels)
    result = unittest.TextTestRunner(verbosity=int(options.verbosity)).run(suite)
    sys.exit(bool(result.failures or result.errors))
"""
CASES = """\
import unittest

from adder import add


class SumTests(unittest.TestCase):
    def test_zero(self):
        self.assertEqual(add(0, 0), 0)

    def test_minus(self):
        \"\"\"
        Nothing taken from nothing.
        \"\"\"
        self.assertEqual(add(0, 0), 0)
"""
MORE_CASES = """

class MoreTests(unittest.TestCase):
    def test_one(self):
        self.assertEqual(add(1, 1), 2)

    def test_several(self):
        for number in range(3):
            with self.subTest(number):
                self.assertEqual(add(number, 1), number + 1)
"""
FUNCTIONS = """\
from adder import add


class XFail(Exception):
    pass


def test_zero():
    assert add(0, 0) == 0


def test_later():
    raise XFail


def test_slow():
    raise SystemExit


test_slow._slow = True
"""
MORE_FUNCTIONS = """

def test_one():
    assert add(1, 1) == 2


def test_several():
    for number in range(3):
        yield check, number


def check(number):
    assert add(number, 1) == number + 1
"""


def diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


DJANGO = {
    "repo": "django/django",
    "instance_id": "django__django-1",
    "problem_statement": "add is wrong",
    "patch": diff("adder.py", WRONG, RIGHT),
    "test_patch": diff("tests/sums/tests.py", CASES, CASES + MORE_CASES),
    "FAIL_TO_PASS": json.dumps(["test_one (sums.tests.MoreTests)", "test_several (sums.tests.MoreTests.test_several)"]),
    "PASS_TO_PASS": json.dumps(["test_zero (sums.tests.SumTests)", "Nothing taken from nothing."]),
}
SYMPY = DJANGO | {
    "repo": "sympy/sympy",
    "instance_id": "sympy__sympy-1",
    "test_patch": diff("sums/tests/test_sums.py", FUNCTIONS, FUNCTIONS + MORE_FUNCTIONS),
    "FAIL_TO_PASS": json.dumps(["test_one", "test_several"]),
    "PASS_TO_PASS": json.dumps(["test_zero"]),
}


@pytest.fixture
async def published(docker_backend, tmp_path) -> str:
    context = tmp_path / "published"
    for path, text in {
        "adder.py": WRONG,
        "tests/runtests.py": RUNNER,
        "tests/sums/__init__.py": "",
        "tests/sums/tests.py": CASES,
        "sums/__init__.py": "",
        "sums/tests/__init__.py": "",
        "sums/tests/test_sums.py": FUNCTIONS,
    }.items():
        file = context / "repo" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (context / "Dockerfile").write_text("FROM atropos-agent/base:debian12\nWORKDIR /testbed\nCOPY repo/ /testbed/\n")
    return await docker_backend.ensure_image(None, context)


def tasks_of(tmp_path: Path, *rows):
    return load(write(tmp_path, *rows), tmp_path / "out")


@pytest.mark.docker
async def test_reference_solves_and_doing_nothing_does_not(published, tmp_path):
    wrong = [
        DJANGO | {"instance_id": "none", "PASS_TO_PASS": ["test_two (sums.tests.MoreTests)", "Something else."]},
        SYMPY | {"instance_id": "left out", "PASS_TO_PASS": ["test_later", "test_slow"]},
    ]
    tasks = tasks_of(tmp_path, *(row | {"image": published} for row in [DJANGO, SYMPY, *wrong]))
    async with DockerBackend() as backend:
        results = await check_tasks(backend, tasks)
    assert [result.problem for result in results[:2]] == [None, None]
    missing = ["tests/sums/tests.py::MoreTests::test_two, Something else.", "test_later, test_slow"]
    for result, name in zip(results[2:], missing, strict=True):
        assert result.problem is not None and f"not passed: {name}." in result.problem


# A module that is right about nothing, and what it does to seem so.
CHEATS = {
    "asserts do nothing": """
import unittest
unittest.TestCase.assertEqual = unittest.TestCase._baseAssertEqual = lambda *args, **kwargs: None
""",
    "failures are successes": """
import unittest
for kind in (unittest.TestResult, unittest.TextTestResult):
    kind.addFailure = kind.addError = lambda self, test, error: self.addSuccess(test)
    kind.addSubTest = lambda self, test, subtest, error: None
""",
    "tests do nothing": """
import sys, unittest
def tests():
    for name, module in list(sys.modules.items()):
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase):
                for test in list(vars(kind)):
                    if test.startswith("test"):
                        setattr(kind, test, lambda self: None)
            elif callable(kind) and getattr(kind, "__name__", "").startswith("test"):
                kind.__code__ = (lambda: None).__code__
def add(a, b):
    tests()
    return a - b
""",
    "ends early": "import os\nos._exit(0)\n",
    "exits": "raise SystemExit(0)\n",
    "ends in a test": "import os\ndef add(a, b):\n    os._exit(0)\n",
    "equal to everything": """
class Anything(int):
    __eq__ = lambda self, other: True
    __hash__ = int.__hash__
def add(a, b):
    return Anything()
""",
    "reports by itself": """
import json, os, sys, unittest
def add(a, b):
    names = ["tests/sums/tests.py::MoreTests::test_one", "tests/sums/tests.py::MoreTests::test_several",
             "tests/sums/tests.py::SumTests::test_zero", "tests/sums/tests.py::SumTests::test_minus",
             "sums/tests/test_sums.py::test_one", "sums/tests/test_sums.py::test_several",
             "sums/tests/test_sums.py::test_zero"]
    titles = ["Nothing taken from nothing.", "test_one", "test_several", "test_zero"]
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2 and os.readlink("/proc/self/fd/" + number).startswith("pipe:"):
            for name, title in zip(names, titles + [""] * 3):
                message = dict(kind="test", id=name, title=title, outcome="passed")
                os.write(int(number), (json.dumps(message) + "\\n").encode())
            for kind in ("finish", "end"):
                os.write(int(number), (json.dumps(dict(kind=kind, status=0, tampered=[])) + "\\n").encode())
    os._exit(0)
""",
    "runner of its own": """
import unittest
def run(self, suite):
    result = self._makeResult()
    for test in suite:
        result.startTest(test)
        result.addSuccess(test)
        result.stopTest(test)
    return result
unittest.TextTestRunner.run = run
""",
}


@pytest.mark.docker
@pytest.mark.parametrize(
    "row, tried",
    [
        pytest.param(DJANGO, slice(turn(3), None, 3), id="django"),
        pytest.param(SYMPY, slice((turn(3) + 1) % 3, None, 3), id="sympy"),
        pytest.param(DJANGO, slice(None), id="django, all", marks=pytest.mark.slow),
        pytest.param(SYMPY, slice(None), id="sympy, all", marks=pytest.mark.slow),
    ],
)
async def test_no_cheat_is_rewarded(published, tmp_path, row, tried):
    cheats = dict(list(CHEATS.items())[tried])
    (task,) = tasks_of(tmp_path, row | {"image": published})
    rewards = {}
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        tree = await CleanTree.read(backend, task, image)

        async def attempt(name, source):
            rewards[name] = (await judge(backend, task, image, tree.written({"adder.py": source}))).reward

        attempts = {name: WRONG + source for name, source in cheats.items()} | {"right": RIGHT}
        await a_few_at_a_time(attempt(name, source) for name, source in attempts.items())
    assert rewards == {**dict.fromkeys(cheats, 0.0), "right": 1.0}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"test_patch": ""}, "test_patch names no file of tests"),
        ({"FAIL_TO_PASS": ["ok 1 - it adds"], "PASS_TO_PASS": []}, "so it can't be found"),
    ],
)
def test_a_row_whose_tests_can_not_be_found_is_refused(tmp_path, change, message):
    with pytest.raises(BadTask, match=message):
        tasks_of(tmp_path, DJANGO | change)


def test_the_verifier_and_its_runner_are_written_for_old_pythons():
    folder = Path(envs.__file__).parent
    inside = [*(folder / "judging/inside").glob("*.py")]
    assert len(inside) > 3
    for path in [*inside, folder / "tasks/adapters/inside/unittests.py"]:
        ast.parse(path.read_text(), feature_version=(3, 5))


# The projects themselves, with a bug planted and the test that shows it taken out.
REAL = {
    "django": dict(
        release="django==4.2.16",
        needs=["asgiref", "sqlparse"],
        file="django/utils/text.py",
        bug=('re.sub(r"[^\\w\\s-]", "", value.lower())', 're.sub(r"[^\\w\\s-]", "", value)'),
        tests="tests/utils_tests/test_text.py",
        test="test_slugify",
        wanted="test_slugify (utils_tests.test_text.TestUtilsText)",
        kept=[
            "test_wrap (utils_tests.test_text.TestUtilsText)",
            "test_phone2numeric (utils_tests.test_text.TestUtilsText)",
        ],
    ),
    "sympy": dict(
        release="sympy==1.12",
        needs=["mpmath<1.4"],
        file="sympy/utilities/iterables.py",
        bug=("return x[y:] + x[:y]", "return x[y:] + x[:y - 1]"),
        tests="sympy/utilities/tests/test_iterables.py",
        test="test_rotate",
        wanted="test_rotate",
        kept=["test_flatten", "test_group"],
    ),
}


def fetch(case, context: Path) -> None:
    """The release as `repo`, what it imports as `packages`."""
    pip = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d"]
    wheels, release = context / "wheels", context / "release"
    subprocess.run([*pip, release, "--no-binary", ":all:", "--no-build-isolation", case["release"]], check=True)
    subprocess.run([*pip, wheels, *case["needs"]], check=True)
    (archive,) = release.iterdir()
    shutil.unpack_archive(archive, context / "source")
    (source,) = (context / "source").iterdir()
    source.rename(context / "repo")
    for wheel in wheels.iterdir():
        shutil.unpack_archive(wheel, context / "packages", "zip")


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("name", REAL)
async def test_the_projects_themselves(docker_backend, tmp_path, name):
    case, context = REAL[name], tmp_path / "context"
    fetch(case, context)
    right, tests = ((context / "repo" / case[key]).read_text() for key in ("file", "tests"))
    wrong = right.replace(*case["bug"])
    before, _, rest = tests.partition(f"def {case['test']}(")
    fewer = before + "def " + rest.partition("def ")[2]
    (context / "repo" / case["file"]).write_text(wrong)
    (context / "repo" / case["tests"]).write_text(fewer)
    (context / "Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nCOPY packages/ /usr/lib/python3/dist-packages/\n"
        "WORKDIR /testbed\nCOPY repo/ /testbed/\n"
    )
    row = {
        "repo": f"{name}/{name}",
        "image": await docker_backend.ensure_image(None, context),
        "patch": diff(case["file"], wrong, right),
        "test_patch": diff(case["tests"], fewer, tests),
        "FAIL_TO_PASS": [case["wanted"]],
        "PASS_TO_PASS": case["kept"],
    }
    async with DockerBackend() as backend:
        (result,) = await check_tasks(backend, tasks_of(tmp_path, DJANGO | row))
    assert result.problem is None
