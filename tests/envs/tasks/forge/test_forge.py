"""From a source tree to tasks that can be used."""

from dataclasses import replace

import pytest
from clean_tree import a_few_at_a_time
from forge_samples import forged

from envs.checking.check import check_tasks, solve
from envs.judging.start_trees import StartTrees
from envs.tasks.forge import forge as forging
from envs.tasks.forge.emit import emit
from envs.tasks.forge.forge import forge
from envs.tasks.harbor import load_task, load_tasks


@pytest.mark.docker
async def test_a_source_tree_becomes_tasks_that_the_check_accepts(docker_backend, library, tmp_path):
    paths = []
    out = tmp_path / "out"
    (tally,) = await forge(
        docker_backend, [str(library)], out, cache=tmp_path / "cache", per_package=3, on_task=paths.append
    )
    assert tally.problem is None
    assert tally.outcomes["kept"] == len(paths) == 3
    assert 33 <= tally.tests <= 34  # of 35: one never passes, one may be seen to fail
    tasks = load_tasks(out)
    assert "medium" in {tag for task in tasks for tag in task.tags}  # two bugs in one
    results = await check_tasks(docker_backend, tasks)
    assert [result.problem for result in results] == [None] * 3


@pytest.mark.docker
async def test_a_tree_whose_tests_never_pass_is_a_problem_that_says_why(docker_backend, library, tmp_path):
    (library / "src/shapes.py").write_text("import numpy\n")
    (tally,) = await forge(docker_backend, [str(library)], tmp_path / "out", cache=tmp_path / "cache")
    assert "no test passes" in tally.problem
    assert "No module named 'numpy'" in tally.problem


@pytest.mark.parametrize(("limit", "made"), [(1, 1), (None, 2)])
async def test_the_limit_ends_the_forging(library, tmp_path, monkeypatch, limit, made):
    ended, paths = [], []

    async def tasks(backend, project, wanted, seed, tally, on_mutant):
        try:
            for operator in ("drop_if_branch", "cmp_swap"):
                yield forged(library, operator)
        finally:
            ended.append(project.name)

    monkeypatch.setattr(forging, "_forge_project", tasks)
    out, cache = tmp_path / "out", tmp_path / "cache"
    await forge(object(), [str(library)], out, cache=cache, limit=limit, on_task=paths.append)
    assert (len(paths), len(load_tasks(out)), ended) == (made, made, ["shapes"])


CHEATS = {
    "conftest": "printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item):\\n"
    '    r = yield\\n    r.get_result().outcome = "passed"\\n\' | tee conftest.py > tests/conftest.py',
    "patched pytest": "echo 'import _pytest.python as p; p.Function.runtest = lambda self: None' >> src/shapes.py",
    "early exit": "echo 'import os; os._exit(0)' >> src/shapes.py",
    "tests of its own": "echo 'def test_no_area(): pass' | tee tests/test_area.py > tests/test_halves.py",
    "a shadowed module": "echo 'raise SystemExit(0)' | tee json.py pytest.py > src/pytest.py",
    "a reward file": "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt && echo 1 > reward.txt",
}


@pytest.mark.docker
async def test_cheats_are_not_rewarded(docker_backend, library, tmp_path):
    task = load_task(emit(forged(library, "drop_if_branch"), "Fix it.", tmp_path / "out"))
    (honest,) = await check_tasks(docker_backend, [task])
    assert honest.problem is None
    scores, starts = {}, StartTrees(docker_backend)

    async def attempt(cheat, script):
        solution = tmp_path / cheat
        solution.mkdir()
        (solution / "solve.sh").write_text(script + "\n")
        cheating = replace(task, hidden=replace(task.hidden, solution=solution))
        verdict, _ = await solve(docker_backend, starts, cheating, honest.image)
        scores[cheat] = verdict.reward

    await a_few_at_a_time(attempt(cheat, script) for cheat, script in CHEATS.items())
    assert scores == dict.fromkeys(CHEATS, 0.0)
