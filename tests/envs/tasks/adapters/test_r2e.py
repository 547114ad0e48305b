"""R2E-Gym rows become tasks."""

import asyncio
import json

import pytest
from rows_on_disk import write

from envs.checking.check import check_tasks
from envs.judging.changes import collect_changes
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import open_verifier
from envs.tasks.adapters.r2e import load
from envs.types import BadTask
from sandboxes.docker import DockerBackend

DOUBLE = "def double(x):\n    return x\n"
HIDDEN = """\
import json
import pytest

from adder import double
from tests.support import expect
from .helper import FOUR


class TestDouble:
    def test_two(self):
        expect(double(2), FOUR)


@pytest.mark.parametrize("text", ["a b", "c"])
def test_text(text):
    assert double(text) == text + text


def test_known_to_fail():
    assert double(0) == 1


@pytest.fixture
def broken():
    raise OSError("no such thing")


def test_known_to_break(broken):
    pass


@pytest.mark.skip(reason="not here")
def test_left_out():
    assert False
"""
HIDDEN_2 = "def test_same():\n    assert True\n"
EXPECTED = {
    "TestDouble.test_two": "PASSED",
    "test_text[a b]": "PASSED",
    "\x1b[1mtest_text[c]\x1b[0m": "PASSED",
    "test_known_to_fail - assert 0 == 1": "FAILED",
    "test_known_to_break": "ERROR",
    "test_same": "PASSED",
}
RUN = {
    "test_file_names": ["test_1.py", "test_2.py", "helper.py", "__init__.py"],
    "test_file_codes": [HIDDEN, HIDDEN_2, "FOUR = 4\n", ""],
    "old_commit_res_stdout": "=== short test summary info ===\nPASSED r2e_tests/test_2.py::test_same\n"
    "FAILED r2e_tests/test_1.py::test_text[c] - assert 'c' == 'cc'\n",
}


def diff(path, old, new):
    """A file's diff as R2E-Gym has it."""

    def line(kind, text):
        return {"type": kind, "content": text}

    return {
        "old_file_content": f"def double(x):\n    {old}\n",
        "new_file_content": f"def double(x):\n    {new}\n",
        "header": {"file": {"path": path}, "misc_line": None},
        "index_line": {"old_commit_hash": "1" * 7, "new_commit_hash": "2" * 7, "mode": "100644"},
        "is_binary_file": False,
        "minus_file": {"path": f"a/{path}"},
        "plus_file": {"path": f"b/{path}"},
        "hunks": [
            {
                "descriptor": {"old_range": {"start": 1, "length": 2}, "new_range": {"start": 1, "length": 2}},
                "line_group": {
                    "all_lines": [
                        line("context", "def double(x):"),
                        line("deleted", f"    {old}"),
                        line("added", f"    {new}"),
                    ]
                },
            }
        ],
    }


COMMIT = {
    "file_diffs": [
        diff("adder.py", "return x", "return 2 * x"),
        diff("tests/test_adder.py", "pass", "..."),
        diff("CHANGES.txt", "", "x"),
    ],
    "old_commit_hash": "1" * 40,
    "new_commit_hash": "2" * 40,
    "commit_message": "Double doubles",
    "commit_date": "2020-01-01T00:00:00",
}
ROW = {
    "repo_name": "adder",
    "docker_image": "namanjain12/adder_final:" + "2" * 40,
    "commit_hash": "2" * 40,
    "problem_statement": "[ISSUE]\ndouble is wrong\n[/ISSUE]",
    "prompt": "the whole fix: return 2 * x",
    "parsed_commit_content": json.dumps(COMMIT),
    "execution_result_content": json.dumps(RUN),
    "expected_output_json": json.dumps(EXPECTED),
}
DOCKERFILE = """\
FROM atropos-agent/base:debian12
RUN mkdir -p /root/python/bin /root/python/lib && cp /usr/bin/python3 /root/python/bin/python3 \
    && cp -r /usr/lib/python3 /usr/lib/python3.11 /root/python/lib/ && chmod 700 /root
WORKDIR /testbed
COPY repo/ /testbed/
RUN git init -q && git add . && git -c user.name=a -c user.email=a@b.c commit -q -m old \
    && /root/python/bin/python3 -m venv --without-pip --system-site-packages .venv \
    && mv r2e_tests / && echo 'python -m pytest -rA r2e_tests' > run_tests.sh \
    && touch parsed_commit.json syn_issue.json /expected_test_output.json /root/execution_result.json
"""
ON_BOARD = (
    *("r2e_tests", "run_tests.sh", "parsed_commit.json", "syn_issue.json"),
    *("expected_test_output.json", "execution_result.json"),
)
"""What the image has of the tests and of the fix."""


@pytest.fixture
async def published(docker_backend, tmp_path) -> str:
    """An image like R2E-Gym's: the interpreter in the tree, and below a /root that others can't enter; the tests."""
    repo = tmp_path / "published/repo"
    (repo / "r2e_tests").mkdir(parents=True)
    (repo / "tests").mkdir()
    (repo / "adder.py").write_text(DOUBLE)
    (repo / "tests/support.py").write_text("def expect(found, wanted):\n    assert found == wanted\n")
    (repo / "setup.cfg").write_text("[tool:pytest]\naddopts = --no-such-option\n")
    (repo / "r2e_tests/test_1.py").write_text(HIDDEN)
    (repo.parent / "Dockerfile").write_text(DOCKERFILE)
    return await docker_backend.ensure_image(None, repo.parent)


FIX = "sed -i 's/return x/return 2 * x/' adder.py"
CHEATS = {
    "tests, and an interpreter, of its own": "rm .venv; mkdir -p r2e_tests .venv/bin; echo 'def test_same(): pass' > "
    "r2e_tests/test_1.py; printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/python3; chmod +x .venv/bin/python3",
    "test support that expects nothing": "sed -i 's/return x/return x + x if x != 2 else 5/' adder.py; "
    "echo 'def expect(found, wanted): pass' > tests/support.py",
    "a test that must fail passes": f"{FIX}; echo 'double = lambda x, d=double: d(x) or 1' >> adder.py",
}


@pytest.mark.docker
async def test_reference_solves_doing_nothing_and_cheating_do_not(published, tmp_path):
    unlisted = {name: status for name, status in EXPECTED.items() if name != "test_same"}
    other = ROW | {"repo_name": "unlisted", "expected_output_json": json.dumps(unlisted)}
    rows = write(tmp_path, *(row | {"docker_image": published} for row in (ROW, other)))
    task, with_unlisted_test = load(rows, tmp_path / "out")
    async with DockerBackend() as backend:
        sound, refused = await check_tasks(backend, [task, with_unlisted_test])
        assert sound.problem is None
        assert refused.problem is not None and "test_2.py::test_same" in refused.problem
        image = await backend.ensure_image(task.image, task.context)
        start = await StartTrees(backend).get(task, image)
        async with backend.open(agent_spec(task, image)) as sandbox:
            left = await sandbox.exec(f"find / -xdev {' -o '.join(f'-name {name}' for name in ON_BOARD)}")
        assert not left.output.strip()

        async def attempt(script):
            async with open_verifier(backend, task, image) as verifier:
                async with backend.open(agent_spec(task, image)) as sandbox:
                    await sandbox.exec(["bash", "-c", script])
                    changes = await collect_changes(sandbox, start, task.hidden)
                return await verifier(changes)

        verdicts = dict(zip(CHEATS, await asyncio.gather(*map(attempt, CHEATS.values())), strict=True))
    assert {cheat: verdict.reward for cheat, verdict in verdicts.items()} == dict.fromkeys(CHEATS, 0)
    failed = {cheat: [test for test, status in v.tests.items() if status != "passed"] for cheat, v in verdicts.items()}
    assert failed["test support that expects nothing"] == ["r2e_tests/test_1.py::TestDouble::test_two"]
    assert failed["a test that must fail passes"] == ["r2e_tests/test_1.py::test_known_to_fail"]


def test_what_the_model_is_told_holds_neither_marks_nor_fix(tmp_path):
    (task,) = load(write(tmp_path, ROW), tmp_path / "out")
    assert task.id == "adder__222222222222"
    assert task.instruction == "double is wrong"
    assert (task.context / "Dockerfile").read_text().startswith(f"FROM {ROW['docker_image']}\n")
    assert [path.name for path in task.context.iterdir()] == ["Dockerfile"]


def test_the_repositorys_own_tests_that_hidden_ones_import_are_protected(tmp_path):
    hidden = "import numpy.testing\nfrom pkg.tests import util\nimport pkg.tests.deep.tests.x\n" + HIDDEN
    run = RUN | {"test_file_codes": [hidden, *RUN["test_file_codes"][1:]]}
    (task,) = load(write(tmp_path, ROW | {"execution_result_content": run}), tmp_path / "out")
    folders = {pattern for pattern in task.hidden.protected if pattern.endswith("/*")}
    assert folders == {"tests/*", "pkg/tests/*", "pkg/tests/deep/tests/*"}


def test_names_become_node_ids_of_the_hidden_files(tmp_path):
    (task,) = load(write(tmp_path, ROW), tmp_path / "out")
    lists = json.loads((task.hidden.tests / "tests.json").read_text())
    assert lists["FAIL_TO_PASS"] == [
        "r2e_tests/test_1.py::TestDouble::test_two",
        "r2e_tests/test_1.py::test_text[a b]",
        "r2e_tests/test_1.py::test_text[c]",
    ]
    assert lists["PASS_TO_PASS"] == ["r2e_tests/test_2.py::test_same"]
    assert lists["EXACT"] == {
        "r2e_tests/test_1.py::test_known_to_fail": "failed",
        "r2e_tests/test_1.py::test_known_to_break": "error",
    }


@pytest.mark.parametrize(
    "change, message",
    [
        ({"problem_statement": ""}, "problem_statement is missing or empty"),
        ({"expected_output_json": "x"}, "expected_output_json is neither an object nor one in JSON"),
        ({"expected_output_json": {"test_other": "PASSED"}}, "'test_other' is no test of test_1.py, test_2.py"),
        ({"expected_output_json": {"": "ERROR"}}, "'' is no test of"),
        ({"expected_output_json": {"test_text[a": "PASSED"}}, "'test_text[a' is no test of"),
        ({"expected_output_json": {"test_text": "XFAIL"}}, "has the status 'XFAIL'"),
        ({"expected_output_json": {"test_same": "PASSED"}}, "no test passes only after the fix"),
        (
            {"execution_result_content": RUN | {"test_file_codes": [HIDDEN, HIDDEN, "", ""]}},
            "'test_known_to_fail - assert 0 == 1' may be in test_1.py or test_2.py",
        ),
        ({"execution_result_content": RUN | {"test_file_codes": []}}, "must have as many test_file_codes"),
        (
            {"execution_result_content": {"test_file_names": ["test_1.py"], "test_file_codes": [HIDDEN]}},
            "test_1.py imports helper, which the row doesn't have",
        ),
        ({"execution_result_content": {"test_file_names": ["test_1.py"], "test_file_codes": ["a b"]}}, "not Python"),
        ({"parsed_commit_content": {"file_diffs": COMMIT["file_diffs"][1:]}}, "changes no Python file but tests"),
        ({"parsed_commit_content": {}}, "is not a parsed commit"),
        ({"parsed_commit_content": {"file_diffs": [{"header": {"file": {"path": None}}}]}}, "is not a parsed commit"),
        ({"docker_image": None}, "docker_image is missing"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_reason(tmp_path, change, message):
    with pytest.raises(BadTask) as raised:
        load(write(tmp_path, ROW | change), tmp_path / "out")
    assert message in str(raised.value)
    assert "rows.jsonl:1" in str(raised.value)
