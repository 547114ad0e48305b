"""The steps of a task, as its files say them."""

import pytest
from harbor_samples import make_task

from envs.tasks.harbor import load_task
from envs.types import BadTask, HealthCheck


def test_steps_have_tests_of_their_own_over_the_shared_ones(tmp_path, caplog):
    toml = """
    multi_step_reward_strategy = "final"
    [agent]
    timeout_sec = 50
    [verifier]
    env = { A = "task", B = "task" }
    [[steps]]
    name = "one"
    depends = []
    min_reward = 0.5
    agent = { timeout_sec = 5, user = "dev" }
    healthcheck = { command = "up", retries = 9 }
    [[steps]]
    name = "two"
    depends = ["one"]
    min_reward = { quality = 1.0 }
    verifier = { timeout_sec = 7, env = { B = "step" } }
    """
    directory = make_task(tmp_path, toml)
    (directory / "instruction.md").unlink()
    for name in ("one", "two"):
        (directory / "steps" / name).mkdir(parents=True)
        (directory / "steps" / name / "instruction.md").write_text(f"Do {name}.\n")
    for folder in ("tests", "solution", "workdir"):
        (directory / "steps/two" / folder).mkdir()
    (directory / "steps/two/solution/solve.sh").write_text("true\n")
    task = load_task(directory)
    one, two = task.steps
    assert (one.name, one.instruction, one.timeout_s) == ("one", "Do one.", 5.0)
    assert (one.health, two.health) == (HealthCheck("up", retries=9), None)
    assert "[steps.agent] user holds for the whole task" in caplog.text
    assert caplog.text.count("[steps] depends is not a field that is known here") == 1
    assert (one.hidden.tests, one.hidden.shared_tests, one.files) == (directory / "tests", None, None)
    assert (two.hidden.tests, two.hidden.shared_tests) == (directory / "steps/two/tests", directory / "tests")
    assert one.hidden.solution == directory / "solution"
    assert (two.files, two.hidden.solution) == (directory / "steps/two/workdir", directory / "steps/two/solution")
    assert (one.least, two.least) == ({"reward": 0.5}, {"quality": 1.0})
    assert (two.timeout_s, two.hidden.timeout_s) == (50.0, 7.0)
    assert (one.hidden.test_env, two.hidden.test_env) == ({"A": "task", "B": "task"}, {"A": "task", "B": "step"})
    assert (task.last_counts, task.hidden.timeout_s) == (True, 607.0)
    assert task.instruction == "Do one.\n\nDo two."


def test_a_step_without_its_files_is_named(tmp_path):
    directory = make_task(tmp_path, '[[steps]]\nname = "one"\n')
    with pytest.raises(BadTask, match=r"task sample: steps/one/instruction.md is missing"):
        load_task(directory)
    (directory / "steps/one").mkdir(parents=True)
    (directory / "steps/one/instruction.md").write_text("Do it.")
    assert load_task(directory).steps[0].hidden.tests == directory / "tests"
    (directory / "tests/test.sh").unlink()
    with pytest.raises(BadTask, match=r"task sample: steps/one/tests/test.sh is missing"):
        load_task(directory)
