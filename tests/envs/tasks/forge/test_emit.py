"""A forged task as a directory."""

import subprocess

import pytest
from forge_samples import LIBRARY, MORE_TESTS, TESTS, forged

from envs.tasks.forge.emit import Bug, ForgedTask, emit
from envs.tasks.forge.mutations import apply_mutations, find_mutations
from envs.tasks.harbor import load_task


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


def test_copies_of_the_tests_and_of_the_sound_module_stay_out(library, tmp_path):
    for folder in ("build/lib", "vendor/shapes"):
        (library / folder / "tests").mkdir(parents=True)
        (library / folder / "shapes.py").write_text(LIBRARY)
        (library / folder / "more.py").write_text("x = 1\n")
        (library / folder / "tests/test_area.py").write_text(TESTS)
    directory = emit(forged(library), "Fix it.", tmp_path / "out")
    left = {path: path.read_text() for path in (directory / "environment/repo").rglob("*") if path.is_file()}
    assert not {LIBRARY, TESTS} & set(left.values())
    assert {path.name for path in left if "lib" in path.parts} == {"more.py"}


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
        ForgedTask(task.project, (bug,), task.fail_to_pass, task.pass_to_pass, task.files, 1.0),
        "Fix it.",
        tmp_path / "out",
    )
    repo = directory / "environment/repo"
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    subprocess.run(["git", "apply", str(directory / "solution/fix.patch")], cwd=repo, check=True)
    assert (repo / "src/shapes.py").read_bytes() == original
