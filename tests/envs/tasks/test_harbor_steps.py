"""The steps of a task, as its files say them."""

from pathlib import Path

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
    agent = { timeout_sec = 5 }
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


def test_a_user_and_a_network_of_all_steps_are_the_tasks(tmp_path):
    agent = 'agent = { user = "dev", network_mode = "public" }\n'
    directory = make_steps(tmp_path / "all", agent, agent)
    task = load_task(directory)
    assert (task.user, task.limits.network) == ("dev", True)
    hosts = 'agent = { network_mode = "allowlist", allowed_hosts = ["pypi.org"] }\n'
    limits = load_task(make_steps(tmp_path / "hosts", hosts, hosts)).limits
    assert (limits.network, limits.allowed_hosts) == (False, ("pypi.org",))


def test_a_step_may_say_what_holds_anyway(tmp_path):
    toml = '[agent]\nuser = "dev"\n'
    same = 'agent = { user = "dev", network_mode = "no-network" }\n'
    task = load_task(make_steps(tmp_path, "", same, toml=toml))
    assert (task.user, task.limits.network) == ("dev", False)


@pytest.mark.parametrize(
    ("agent", "field"), [('user = "dev"', "user"), ("user = 1000", "user"), ('network_mode = "public"', "network_mode")]
)
def test_steps_with_different_users_or_networks_are_refused(tmp_path, agent, field):
    directory = make_steps(tmp_path, f"agent = {{ {agent} }}\n", "")
    with pytest.raises(BadTask, match=rf"task sample: task.toml: \[steps.agent\] {field}: the steps .* share"):
        load_task(directory)


def make_steps(folder: Path, *agents: str, toml: str = "") -> Path:
    """Return a task whose steps have these tables of agents."""
    steps = "".join(f'[[steps]]\nname = "{place}"\n{agent}' for place, agent in enumerate(agents))
    directory = make_task(folder, toml + steps)
    for place in range(len(agents)):
        (directory / f"steps/{place}").mkdir(parents=True)
        (directory / f"steps/{place}/instruction.md").write_text("Do it.")
    return directory
