"""HumanEval and MBPP rows become tasks that are judged like any other."""

import gzip

import pytest
from rows_on_disk import write

from envs.checking.check import check_tasks, solve
from envs.judging.start_trees import StartTrees
from envs.tasks.adapters.python_functions import load
from envs.types import BadTask

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "entry_point": "double",
    "prompt": 'def double(x):\n    """Twice x.\n    >>> double(2)\n    4\n    """\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(3) == 6\n    assert candidate(-1) == -2\n",
}
MBPP = {
    "task_id": 601,
    "text": "Write a function to find the larger of two numbers.",
    "code": "import math\r\ndef larger(a, b):\r\n    return a if a > b else b",
    "test_list": ["assert larger(1, 2) == 2", "assert larger(2, 1) == 2"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


@pytest.mark.docker
async def test_reference_solves_and_doing_nothing_does_not(docker_backend, tmp_path):
    tasks = load(write(tmp_path, HUMANEVAL, MBPP), tmp_path / "out")
    assert [task.id for task in tasks] == ["HumanEval-900", "mbpp-601"]
    results = await check_tasks(docker_backend, tasks)
    assert [result.problem for result in results] == [None, None]


# What an agent may write; that pytest skips must earn nothing.
CHEATS = {
    "an interpreter of its own": "mkdir -p .venv/bin && printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' "
    "> .venv/bin/python && chmod 755 .venv/bin/python",
    "a reward file": "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt && echo 1 > reward.txt",
    "an early exit": "echo 'import os; os._exit(0)' > solution.py",
    "skipping": "printf 'import pytest\\npytest.skip(allow_module_level=True)\\n' > solution.py",
    "patched pytest": "printf 'import _pytest.python as p\\np.Function.runtest = lambda self: None\\n"
    "def double(x): pass\\n' > solution.py",
    "a plugin": "printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item):\\n"
    '    r = yield\\n    r.get_result().outcome = "passed"\\n\' > conftest.py',
}


@pytest.mark.docker
@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_cheat_is_not_rewarded(docker_backend, tmp_path, cheat):
    (task,) = load(write(tmp_path, HUMANEVAL), tmp_path / "out")
    (task.hidden.solution / "solve.sh").write_text(CHEATS[cheat] + "\n")
    image = await docker_backend.ensure_image(task.image, task.context)
    verdict, _ = await solve(docker_backend, StartTrees(docker_backend), task, image)
    assert verdict.reward == 0.0


def test_what_a_row_checks_is_the_test_itself_unless_the_row_calls_it_too(tmp_path):
    twice = HUMANEVAL | {"task_id": "HumanEval/901", "test": HUMANEVAL["test"] + "check(abs)\n"}
    of_the_pack = HUMANEVAL | {"task_id": "Python/0", "test": HUMANEVAL["test"] + "\ncheck(double)\n"}
    own, called, packed = load(write(tmp_path, HUMANEVAL, twice, of_the_pack), tmp_path / "out")
    assert "check" not in (packed.hidden.tests / "test_hidden.py").read_text()
    text = (own.hidden.tests / "test_hidden.py").read_text()
    assert "def test_double(candidate=double):\n    assert candidate(3) == 6\n" in text and "check" not in text
    assert (called.hidden.tests / "test_hidden.py").read_text().endswith("def test_double():\n    check(double)\n")


def test_the_agent_is_told_the_prompt_and_not_the_tests(tmp_path):
    function, described = load(write(tmp_path, HUMANEVAL, MBPP), tmp_path / "out")
    assert HUMANEVAL["prompt"].strip() in function.instruction
    assert "candidate(3)" not in function.instruction
    assert "assert larger(1, 2) == 2" in described.instruction
    assert "assert larger(2, 1)" not in described.instruction
    assert (function.context / "files/solution.py").read_text() == HUMANEVAL["prompt"]
    assert not [path for path in function.context.rglob("*") if "check" in path.name or "test" in path.name]


@pytest.mark.parametrize(
    "row, message",
    [
        (HUMANEVAL | {"prompt": ""}, "rows.jsonl:1: prompt is missing or empty"),
        (HUMANEVAL | {"task_id": None}, "task_id is missing"),
        (HUMANEVAL | {"entry_point": "a b"}, "entry_point 'a b' is not a name"),
        (HUMANEVAL | {"canonical_solution": "    return ("}, "the reference of HumanEval/900 is not Python"),
        (HUMANEVAL | {"canonical_solution": "    return '\ud83d'\n"}, "the reference of HumanEval/900 is not Python"),
        (HUMANEVAL | {"canonical_solution": f"    return {'-' * 20_000}1\n"}, "HumanEval/900 is not Python"),
        (MBPP | {"test_list": []}, "test_list is missing or empty"),
        (MBPP | {"test_list": [1]}, "test_list must be a list of texts"),
        (MBPP | {"test_list": ["assert ("]}, "the tests of mbpp-601 is not Python"),
        (MBPP | {"code": 3}, "code is int, not text"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_field(tmp_path, row, message):
    with pytest.raises(BadTask) as raised:
        load(write(tmp_path, row), tmp_path / "out")
    assert message in str(raised.value)


def test_two_rows_with_one_id_are_refused(tmp_path):
    with pytest.raises(BadTask, match=r"rows\.jsonl:2: a second row with the id mbpp-601"):
        load(write(tmp_path, MBPP, MBPP | {"text": "Find the larger one."}), tmp_path / "out")


def test_equal_rows_count_once(tmp_path, caplog):
    assert len(load(write(tmp_path, MBPP, MBPP), tmp_path / "out")) == 1
    assert "1 repeated row in" in caplog.text and "rows.jsonl:2" in caplog.text


def test_lines_that_are_no_json_and_files_that_are_not_there_are_refused(tmp_path):
    for line in ("{", f"{'[' * 200_000}{']' * 200_000}"):
        (tmp_path / "rows.jsonl").write_text(line)
        with pytest.raises(BadTask, match="not valid JSON"):
            load(tmp_path / "rows.jsonl", tmp_path / "out")
    with pytest.raises(BadTask, match="is not a file"):
        load(tmp_path / "none.jsonl", tmp_path / "out")


def test_rows_may_be_compressed(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(write(tmp_path, HUMANEVAL).read_bytes()))
    assert [task.id for task in load(tmp_path / "rows.jsonl.gz", tmp_path / "out")] == ["HumanEval-900"]
    (tmp_path / "bad.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(BadTask, match=r"bad.jsonl.gz can't be read"):
        load(tmp_path / "bad.jsonl.gz", tmp_path / "out")
