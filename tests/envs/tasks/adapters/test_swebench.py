"""SWE-bench rows, and those that follow it, become tasks."""

import json
import shutil
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from rows_on_disk import write

from envs.checking.check import check_tasks
from envs.judging.changes import collect_changes
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import judge
from envs.tasks.adapters.swebench import load
from envs.types import BadTask
from sandboxes.docker import DockerBackend

FIX = "--- a/adder.py\n+++ b/adder.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
BUG = "--- a/adder.py\n+++ b/adder.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a\n"
TEST_PATCH = """\
diff --git a/tests/test_adder.py b/tests/test_adder.py
--- a/tests/test_adder.py
+++ b/tests/test_adder.py
@@ -2,3 +2,8 @@
 
 def test_zero():
     assert add(0, 0) == 0
+
+
+class TestMore:
+    def test_one(self):
+        assert add(1, 1) == 2
"""
# The tests of a repository that is judged; their marks are what SWE-bench lists as passed, or must not.
WORDS = """\
import pytest
from adder import add

@pytest.mark.parametrize("word", ["a", "one two", "one three"])
def test_words(word):
    assert add(len(word), len(word)) in (0, 2 * len(word))

@pytest.mark.xfail(reason="not yet")
def test_later():
    assert add("a", "b") == "ba"

@pytest.mark.xfail(True, reason="not here")
def test_somewhere():
    assert add("a", "b") == "ba"
"""
HELPED = (
    TEST_PATCH.replace("    def test_one(self):", "    def test_one(self):\n+        from helper import expect")
    .replace("assert add(1, 1) == 2", "expect(add(1, 1), 2)")
    .replace("+2,8 @@", "+2,9 @@")
)
KEPT = ["adder.py::test_zero", "words.py::test_words[one", "words.py::test_later"]
ROW = {
    "instance_id": "Owner__adder-1",
    "problem_statement": "add is wrong",
    "patch": "diff --git a/adder.py b/adder.py\n" + FIX,
    "test_patch": TEST_PATCH,
    "FAIL_TO_PASS": json.dumps(["tests/test_adder.py::TestMore::test_one"]),
    "PASS_TO_PASS": json.dumps([f"tests/test_{test}" for test in KEPT]),
}


@pytest.mark.parametrize("interface", ["Function: add(a, b)", "No new interfaces are introduced.", "", None])
def test_names_that_only_hidden_tests_know_are_told(tmp_path, interface):
    (task,) = load(write(tmp_path, ROW | {"interface": interface}), tmp_path / "out")
    assert task.instruction.startswith("add is wrong")
    assert ("Function: add(a, b)" in task.instruction) == (interface == "Function: add(a, b)")
    assert "No new" not in task.instruction


@pytest.mark.parametrize(
    "around",
    [
        lambda row: {"instance": row},
        lambda row: {"params": {"metadata": {"instance_id": "x", "instance_dict": json.dumps(row)}}},
    ],
    ids=["field", "json"],
)
def test_a_row_inside_of_another_is_read(tmp_path, around):
    (task,) = load(write(tmp_path, around(ROW)), tmp_path / "out")
    assert (task.id, task.instruction) == ("Owner__adder-1", "add is wrong")


def test_of_a_module_whose_tests_are_made_of_data_files_the_listed_ones_run(tmp_path):
    data = [f"m.py::Suite::check-a.test::{name}" for name in ("one", "two[b::1.5]")]
    (task,) = load(write(tmp_path, ROW | {"PASS_TO_PASS": [*data, "m.py::Suite::b.test::one"]}), tmp_path / "out")
    script = (task.hidden.tests / "test.sh").read_text()
    assert " m.py::Suite::b.test m.py::Suite::check-a.test tests/test_adder.py\n" in script


@pytest.fixture
async def published(docker_backend, tmp_path) -> str:
    """An image as such sets publish them: a repository with history at /testbed, whose tests run in two processes."""
    context = tmp_path / "published"
    (context / "repo/tests").mkdir(parents=True)
    (context / "repo/adder.py").write_text("def add(a, b):\n    return a - b\n")
    (context / "repo/tests/test_adder.py").write_text(
        "from adder import add\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
    )
    (context / "repo/tests/test_minus.py").write_text(
        "from adder import add\n\ndef test_minus():\n    assert add(2, 1) == 1\n"
    )
    (context / "repo/tests/test_words.py").write_text(WORDS)
    (context / "repo/tests/helper.py").write_text("def expect(found, wanted):\n    assert found == wanted\n")
    (context / "repo/setup.cfg").write_text("[tool:pytest]\naddopts = -n 2\n")
    (packages,) = {Path(file.locate_file("")) for file in (distribution("pytest-xdist"), distribution("execnet"))}
    for name in ("xdist", "execnet", f"pytest_xdist-{version('pytest-xdist')}.dist-info"):
        shutil.copytree(packages / name, context / "packages" / name)
    (context / "Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nCOPY packages/ /usr/lib/python3/dist-packages/\n"
        "WORKDIR /testbed\nCOPY repo/ /testbed/\n"
        "RUN git init -q && git add . && git -c user.name=a -c user.email=a@b.c commit -q -m old "
        "&& git remote add origin https://example.org/x\n"
    )
    return await docker_backend.ensure_image(None, context)


@pytest.mark.docker
async def test_reference_solves_and_doing_nothing_does_not(published, tmp_path):
    smith = {
        "instance_id": "adder.1.bug",
        "image_name": published,
        "problem_statement": "add ignores b",
        "patch": "diff --git a/adder.py b/adder.py\n" + BUG,
        "FAIL_TO_PASS": ["tests/test_minus.py::test_minus"],
        "PASS_TO_PASS": ["tests/test_adder.py::test_zero"],
    }
    conditional = {"instance_id": "conditional", "PASS_TO_PASS": ["tests/test_words.py::test_somewhere"]}
    rows = write(tmp_path, ROW | {"image": published}, ROW | {"image": published} | conditional)
    tasks = load(rows, tmp_path / "out")
    tasks += load(write(tmp_path, smith), tmp_path / "out", "smith")
    async with DockerBackend() as backend:
        results = await check_tasks(backend, tasks)
    sound, unproven, smith = results
    assert sound.problem is None
    assert smith.problem is None
    assert unproven.problem is not None and "not passed: tests/test_words.py::test_somewhere." in unproven.problem


@pytest.mark.docker
async def test_helpers_of_the_tests_can_not_be_made_to_expect_nothing(published, tmp_path):
    (task,) = load(write(tmp_path, ROW | {"image": published, "test_patch": HELPED}), tmp_path / "out")
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        start = await StartTrees(backend).get(task, image)
        async with backend.open(agent_spec(task, image)) as sandbox:
            await sandbox.write_file("tests/helper.py", b"def expect(found, wanted):\n    pass\n")
            changes = await collect_changes(sandbox, start, task.hidden)
        verdict = await judge(backend, task, image, changes)
    assert verdict.reward == 0
    assert "AssertionError" in verdict.explanation


def test_an_image_that_no_row_names_follows_the_rule_of_its_family(tmp_path):
    for family, image in {
        "swebench": "swebench/sweb.eval.x86_64.owner_1776_adder-1:latest",
        "swegym": "xingyaoww/sweb.eval.x86_64.owner_s_adder-1:latest",
    }.items():
        (task,) = load(write(tmp_path, ROW), tmp_path / family, family)
        assert (task.context / "Dockerfile").read_text().splitlines()[0] == f"FROM {image}"


def protected(task):
    return {*task.hidden.protected} - {"tox.ini", ".venv"}


def test_what_tests_may_import_from_their_own_folder_is_protected_unless_the_reference_changes_it(tmp_path):
    (task,) = load(write(tmp_path, ROW), tmp_path / "out")
    assert protected(task) == {"tests/test_adder.py", "tests/test_words.py", "tests/*"}
    deep = {"PASS_TO_PASS": ["lib/testing/tests/test_x.py::test_x", "test_y.py::test_y"]}
    (task,) = load(write(tmp_path, ROW | deep), tmp_path / "out")
    assert protected(task) == {
        "tests/test_adder.py", "tests/*", "lib/testing/tests/test_x.py", "lib/testing/tests/*", "test_y.py"
    }  # fmt: skip
    changed = {"patch": ROW["patch"].replace("adder.py", "tests/adder.py")}
    (task,) = load(write(tmp_path, ROW | changed), tmp_path / "out")
    assert protected(task) == {"tests/test_adder.py", "tests/test_words.py"}


def test_pytests_progress_among_the_listed_tests_is_none(tmp_path):
    """As in rows of pytest itself."""
    listed = {"FAIL_TO_PASS": ["t/test_a.py::test_a", "[100%]"], "PASS_TO_PASS": ["[", "[100%]", "t/test_a.py::test_b"]}
    (task,) = load(write(tmp_path, ROW | listed), tmp_path / "out")
    found = json.loads((task.hidden.tests / "tests.json").read_text())
    assert (found["FAIL_TO_PASS"], found["PASS_TO_PASS"]) == (["t/test_a.py::test_a"], ["t/test_a.py::test_b"])


def test_parquet_rows_are_read_like_any_others(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([ROW]), tmp_path / "rows.parquet")
    (task,) = load(tmp_path / "rows.parquet", tmp_path / "out")
    assert task.id == "Owner__adder-1"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"problem_statement": ""}, "problem_statement is missing or empty"),
        ({"FAIL_TO_PASS": "[]"}, "has no FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": "test_a"}, "neither a list nor a list in JSON"),
        ({"FAIL_TO_PASS": ["ok 1 - it adds"]}, "nor unittest's (test (module.Class)), nor a function's name"),
        ({"PASS_TO_PASS": ["tests/test_a.py::test_b cut"]}, "is not a pytest node id"),
        ({"expected_output_json": "{}"}, "this is a row of R2E-Gym"),
        ({"patch": None}, "patch is missing"),
        ({"image": "an:image\nRUN true"}, "image or docker_image or image_name or image_url has several lines"),
        ({"workdir": "/a\nRUN true"}, "workdir has several lines; give one"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_field(tmp_path, change, message):
    with pytest.raises(BadTask) as raised:
        load(write(tmp_path, ROW | change), tmp_path / "out")
    assert message in str(raised.value)
    assert "rows.jsonl:1" in str(raised.value)


def test_a_family_that_is_not_known_and_a_smith_row_without_image_are_refused(tmp_path):
    with pytest.raises(BadTask, match="there is no family 'x'"):
        load(write(tmp_path, ROW), tmp_path / "out", "x")
    with pytest.raises(BadTask, match="image or docker_image"):
        load(write(tmp_path, ROW), tmp_path / "out", "smith")
