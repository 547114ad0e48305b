"""A folder with a repository and tests becomes a task."""

import json

import pytest

from envs.checking.check import check_tasks
from envs.tasks.adapters.plain_folder import load
from envs.types import BadTask

FILES = {
    "instruction.md": "`add` is wrong.",
    "repo/adder.py": "def add(a, b):\n    return a - b\n",
    "solution/adder.py": "def add(a, b):\n    return a + b\n",
    "tests/conftest.py": "import pytest\n\n@pytest.fixture\ndef one():\n    return 1\n",
    "tests/deep/test_adder.py": (
        "import pytest\nimport adder\n\n"
        "@pytest.mark.parametrize('b', [1, 2])\ndef test_add(one, b):\n    assert adder.add(one, b) == 1 + b\n\n"
        "class TestZero:\n    def test_zero(self):\n        assert adder.add(0, 0) == 0\n"
    ),
}


def folder(tmp_path, **changes):
    root = tmp_path / "adder"
    for path, text in {**FILES, **{key.replace("__", "/"): text for key, text in changes.items()}}.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


def test_every_test_function_counts_where_none_is_listed(tmp_path):
    (task,) = load(folder(tmp_path), tmp_path / "out")
    listed = json.loads((task.hidden.tests / "tests.json").read_text())
    assert listed["FAIL_TO_PASS"] == ["deep/test_adder.py::test_add", "deep/test_adder.py::TestZero::test_zero"]
    assert not [path for path in task.context.rglob("*") if "test" in path.name]


def test_a_fixture_is_no_test_whatever_its_name(tmp_path):
    module = "import pytest\n@pytest.fixture\ndef test_data(): return 1\ndef test_it(test_data): pass\n"
    (task,) = load(folder(tmp_path, **{"tests/deep/test_adder.py": module}), tmp_path / "out")
    assert json.loads((task.hidden.tests / "tests.json").read_text())["FAIL_TO_PASS"] == ["deep/test_adder.py::test_it"]


@pytest.mark.docker
async def test_reference_solves_and_doing_nothing_does_not(docker_backend, tmp_path):
    listing = {
        "FAIL_TO_PASS": ["deep/test_adder.py::test_add[1]"],
        "PASS_TO_PASS": ["deep/test_adder.py::TestZero::test_zero"],
    }
    tasks = load(folder(tmp_path), tmp_path / "out")
    root = folder(tmp_path)
    (root / "tests.json").write_text(json.dumps(listing))
    (root / "solution").rename(root / "unused")
    (root / "solution.patch").write_text(
        "--- a/adder.py\n+++ b/adder.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
    )
    tasks += load(root, tmp_path / "listed")
    results = await check_tasks(docker_backend, tasks)
    assert [result.problem for result in results] == [None, None]


@pytest.mark.parametrize(
    "path, text, message",
    [
        ("instruction.md", None, "instruction.md is missing"),
        ("tests/deep/test_adder.py", None, "tests/ holds no test_"),
        ("tests/deep/test_adder.py", "def (", "is not Python"),
        ("tests/deep/test_adder.py", "x = 1", "no test is listed or found"),
        ("tests.json", "[]", "must hold an object"),
        ("tests.json", "{", "is not JSON"),
        ("tests.json", '{"FAIL_TO_PASS": [1]}', "FAIL_TO_PASS must be a list of texts"),
        ("repo/adder.py", None, "holds no repo/"),
    ],
)
def test_a_folder_that_lacks_something_is_refused_with_the_reason(tmp_path, path, text, message):
    root = folder(tmp_path, **{path.replace("/", "__"): text})
    with pytest.raises(BadTask, match=message):
        load(root, tmp_path / "out")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadTask, match="none holds no repo/"):
        load(tmp_path / "none", tmp_path / "out")
