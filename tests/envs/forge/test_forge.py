"""From a source tree to tasks that can be used."""

import subprocess
from pathlib import Path

import pytest

from envs.judging.check import check_tasks
from envs.tasks.forge.emit import Bug, Forged, emit
from envs.tasks.forge.forge import forge
from envs.tasks.forge.instruction import write_instruction
from envs.tasks.forge.mutations import apply_mutations, find_mutations
from envs.tasks.forge.project import obtain, read_project
from envs.tasks.forge.suite import observed, parse_report
from envs.tasks.harbor import load_task, load_tasks
from envs.types import BadTask

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


@pytest.fixture
def library(tmp_path) -> Path:
    root = tmp_path / "shapes"
    for path, text in {
        "src/shapes.py": LIBRARY,
        "tests/test_area.py": TESTS,
        "tests/test_halves.py": MORE_TESTS,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--no-such-option"\n')
    return root


def forged(library: Path, operator: str = "cmp_swap") -> Forged:
    text = (library / "src/shapes.py").read_text()
    mutation = next(one for one in find_mutations(text) if one.operator == operator)
    failing = "tests/test_area.py::test_no_area"
    frames = "tests/test_area.py:10: in test_no_area\n    assert area(0, 5) == 0\nsrc/shapes.py:9: in area\n    x"
    message = f"{frames}\nE   assert 5 == 0"
    return Forged(
        read_project(library),
        (Bug("src/shapes.py", text, apply_mutations(text, [mutation]), (mutation,)),),
        {failing: message},
        ("tests/test_halves.py::test_halves",),
        {failing: "tests/test_area.py", "tests/test_halves.py::test_halves": "tests/test_halves.py"},
        duration_s=1.0,
    )


def test_a_source_tree_is_sorted_into_library_and_tests(library):
    (library / "src/shapes_test.py").write_text("")
    (library / "conftest.py").write_text("")
    (library / "setup.py").write_text("")
    project = read_project(library)
    assert project.import_path == "src"
    assert project.modules == ("src/shapes.py",)
    assert project.top_level == ("shapes",)
    assert project.tests == ("src/shapes_test.py", "tests/test_area.py", "tests/test_halves.py")
    assert project.test_roots == ("conftest.py", "src/shapes_test.py", "tests")


@pytest.mark.parametrize("gone, missing", [("src/shapes.py", "Python module"), ("tests", "test module")])
def test_a_tree_without_library_or_tests_is_refused(library, gone, missing):
    path = library / gone
    for file in [path] if path.is_file() else path.iterdir():
        file.unlink()
    with pytest.raises(BadTask, match=f"holds no {missing}"):
        read_project(library)


async def test_a_name_that_pip_could_take_for_an_option_is_refused(tmp_path):
    with pytest.raises(BadTask, match="neither a directory nor a package name"):
        await obtain("--index-url=x", tmp_path)


def test_the_agent_sees_the_bug_and_not_the_tests_that_find_it(library, tmp_path):
    directory = emit(forged(library), "Fix it.", tmp_path / "out")
    repo = directory / "environment/repo"
    assert (repo / "src/shapes.py").read_text() != LIBRARY
    assert not (repo / "tests/test_area.py").exists()
    assert (repo / "tests/test_halves.py").read_text() == MORE_TESTS
    assert (directory / "tests/suite/tests/test_area.py").read_text() == TESTS
    task = load_task(directory)
    assert {"forged", "shapes", "easy"} <= {*task.tags}
    assert task.instruction == "Fix it."


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""], ids=["LF", "CRLF", "no newline at the end"])
@pytest.mark.parametrize("operator", ["cmp_swap", "drop_if_branch", "slice_shift"])
def test_the_solution_is_a_patch_that_restores_the_source(library, tmp_path, ending, operator):
    original = LIBRARY.replace("\n", ending or "\n").encode().removesuffix(b"" if ending else b"\n")
    (library / "src/shapes.py").write_bytes(original)
    text = original.decode()
    mutation = [one for one in find_mutations(text) if one.operator == operator][-1]
    bug = Bug("src/shapes.py", text, apply_mutations(text, [mutation]), (mutation,))
    task = forged(library)
    directory = emit(
        Forged(task.project, (bug,), task.fail_to_pass, task.pass_to_pass, task.files, 1.0), "Fix it.", tmp_path / "out"
    )
    repo = directory / "environment/repo"
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    subprocess.run(["git", "apply", str(directory / "solution/fix.patch")], cwd=repo, check=True)
    assert (repo / "src/shapes.py").read_bytes() == original


def test_the_instruction_tells_what_is_seen_and_documented_and_not_where(library):
    text = write_instruction(forged(library), seed=0)
    assert ">>> assert area(0, 5) == 0\n    assert 5 == 0" in text
    assert "> The area in unit squares; 0 where a side isn't positive." in text
    assert "More text" not in text
    assert "shapes.py" not in text
    assert text == write_instruction(forged(library), seed=0)


def test_addresses_and_pointers_are_left_out_of_what_is_observed():
    message = (
        "t.py:1: in test\n    assert f() == a\nE   assert <A at 0x7f00aa> == None\nE    +  where <A> = f()\nE   ? ^"
    )
    assert observed(message) == ">>> assert f() == a\nassert <A at 0x...> == None"


def test_an_id_that_is_reported_twice_and_a_skipped_test_count_for_nothing():
    case = '<testcase classname="t" name="{}" file="t.py">{}</testcase>'
    cases = [case.format("a", ""), case.format("b", ""), case.format("b", ""), case.format("c", "<skipped/>")]
    outcome = parse_report(f"<testsuite>{''.join(cases)}</testsuite>".encode())
    assert outcome.passed == {"t.py::a"}
    assert outcome.failed == frozenset()


def test_an_inherited_test_belongs_to_the_module_that_ran_it():
    case = '<testcase classname="tests.test_b.TestB" name="test_x" file="tests/__init__.py"></testcase>'
    outcome = parse_report(f"<testsuite>{case}</testsuite>".encode(), files_run=["tests/test_a.py", "tests/test_b.py"])
    assert outcome.passed == {"tests/test_b.py::TestB::test_x"}
    assert outcome.files == {"tests/test_b.py::TestB::test_x": "tests/test_b.py"}


def test_a_suite_that_left_no_report_has_no_tests():
    assert parse_report(b"").passed == parse_report(b"<half").passed == frozenset()


@pytest.mark.long
@pytest.mark.docker
async def test_a_source_tree_becomes_tasks_that_the_check_accepts(docker_backend, library, tmp_path):
    paths = []
    out = tmp_path / "out"
    (tally,) = await forge(
        docker_backend, [str(library)], out, cache=tmp_path / "cache", per_package=4, on_task=paths.append
    )
    assert tally.problem is None
    assert tally.outcomes["kept"] == len(paths) == 4
    assert 33 <= tally.tests <= 34  # of 35: one never passes, one may be seen to fail
    tasks = load_tasks(out)
    assert "medium" in {tag for task in tasks for tag in task.tags}  # two bugs in one
    results = await check_tasks(docker_backend, tasks)
    assert [result.problem for result in results] == [None] * 4


@pytest.mark.docker
async def test_a_tree_whose_tests_never_pass_is_a_problem_that_says_why(docker_backend, library, tmp_path):
    (library / "src/shapes.py").write_text("import numpy\n")
    (tally,) = await forge(docker_backend, [str(library)], tmp_path / "out", cache=tmp_path / "cache")
    assert "no test passes" in tally.problem
    assert "No module named 'numpy'" in tally.problem


@pytest.mark.docker
async def test_the_limit_ends_the_forging(docker_backend, library, tmp_path):
    paths = []
    await forge(
        docker_backend, [str(library)], tmp_path / "out", cache=tmp_path / "cache", limit=1, on_task=paths.append
    )
    assert len(paths) == len(load_tasks(tmp_path / "out")) == 1


CHEATS = {
    "conftest": "printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item):\\n"
    '    r = yield\\n    r.get_result().outcome = "passed"\\n\' | tee conftest.py > tests/conftest.py',
    "patched pytest": "echo 'import _pytest.python as p; p.Function.runtest = lambda self: None' >> src/shapes.py",
    "early exit": "echo 'import os; os._exit(0)' >> src/shapes.py",
    "tests of its own": "echo 'def test_no_area(): pass' | tee tests/test_area.py > tests/test_halves.py",
    "a shadowed module": "echo 'raise SystemExit(0)' | tee json.py pytest.py > src/pytest.py",
    "a reward file": "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt && echo 1 > reward.txt",
}


@pytest.mark.long
@pytest.mark.docker
async def test_cheats_are_not_rewarded(docker_backend, library, tmp_path):
    directory = emit(forged(library, "drop_if_branch"), "Fix it.", tmp_path / "out")
    (honest,) = await check_tasks(docker_backend, [load_task(directory)])
    assert honest.problem is None
    scores = {}
    for cheat, script in CHEATS.items():
        (directory / "solution/solve.sh").write_text(script + "\n")
        (result,) = await check_tasks(docker_backend, [load_task(directory)])
        scores[cheat] = result.reference
    assert scores == {cheat: (0.0,) for cheat in CHEATS}
