"""Reading what the hidden tests left: rewards, reports of tests, and nonsense."""

import json
import re

import pytest
from samples import rollout
from verifier_samples import REWARD, task

from envs.judging.changes import Changes
from envs.judging.results import read_verdict
from envs.judging.verifier import judge
from envs.rewards import Shaping, shaped
from envs.types import Failure, InfraError, TestStatus
from sandboxes.base import ExecResult


@pytest.mark.docker
@pytest.mark.parametrize(
    "script, reward, said",
    [
        ("true", 0.0, "the verifier wrote no reward (test.sh ended with 0)"),
        ("echo boom; exit 3", 0.0, "the verifier wrote no reward (test.sh ended with 3).\nboom"),
        (REWARD.format("nan"), 0.0, "reward.txt holds 'nan', not a finite number"),
        (REWARD.format("1 2"), 0.0, "reward.txt holds '1 2', not a number"),
        (REWARD.format("''"), 0.0, "reward.txt holds '', not a number"),
        (REWARD.format("0.25"), 0.25, "Reward 0.25"),
        (REWARD.format("0") + '; echo \'{"reward": 1, "speed": 3}\' > /logs/verifier/reward.json', 1.0, "Reward 1"),
        ("echo '{\"a\": 0.5}' > /logs/verifier/reward.json", 0.5, "Reward 0.5"),
        ("echo 0.75 > /logs/verifier/reward.json", 0.75, "Reward 0.75"),
        ("echo '[1]' > /logs/verifier/reward.json", 0.0, "reward.json holds [1], not finite numbers"),
        ("echo '{\"a\": NaN}' > /logs/verifier/reward.json", 0.0, "not finite numbers"),
        ("echo '{' > /logs/verifier/reward.json", 0.0, "reward.json is not JSON"),
        ("ln -s /tests/one /logs/verifier/reward.txt", 0.0, "the verifier wrote no reward"),
        ("rm -r /logs", 0.0, "the verifier's logs could not be read"),
    ],
)
async def test_what_test_sh_leaves_decides(docker_backend, base_image, tmp_path, script, reward, said):
    verdict = await judge(docker_backend, task(tmp_path, script), base_image, Changes())
    assert verdict.reward == reward
    assert said in verdict.explanation


def read(reward: str = "1", *runs: dict, **logs: bytes):
    entries = [{"problem": None, "cheat": None, "listed": False, **run} for run in runs]
    report = {"watched.json": json.dumps(entries).encode()} if runs else {}
    return read_verdict(ExecResult(0, b""), {"reward.txt": reward.encode(), **report, **logs})


@pytest.mark.parametrize(
    "runs, said",
    [
        (
            [{"tests": {"a": "passed"}, "cheat": "ended its tests early", "problem": "no end"}],
            "ended its tests early: no end",
        ),
        ([{"tests": {"a": "passed", "b": "missing"}}], "1 tests did not run: b"),
        ([{"tests": {"a": "failed"}, "listed": True}], "1 listed tests were not seen to pass: a"),
    ],
)
def test_what_the_verifier_saw_counts_whatever_test_sh_wrote(runs, said):
    for reward in ("1", "0.25"):
        verdict = read(reward, *runs)
        assert verdict.reward == 0.0
        assert said in verdict.explanation


def test_what_is_no_cheat_and_no_missing_test_is_test_shs_to_judge():
    assert (
        read("0.5", {"tests": {"a": "passed", "b": "failed"}, "problem": "1 tests not seen to pass: b"}).reward == 0.5
    )
    assert (
        read("1", {"tests": {"a": "missing", "b": "passed"}}, {"tests": {"a": "passed", "b": "missing"}}).reward == 1.0
    )


def test_hidden_tests_that_could_not_be_put_in_place_are_a_sign():
    verdict = read("1", {"tests": {"a": "passed"}}, hindered=b"hidden tests could not be put to /app/t\n")
    assert (verdict.reward, verdict.signs) == (0.0, ("stood in the way of hidden tests",))
    assert verdict.seen == {"stood in the way of hidden tests": "hidden tests could not be put to /app/t"}


def test_several_rewards_of_which_none_counts_are_the_tasks_failure_that_names_them():
    several = {"reward.json": b'{"speed": 1, "accuracy": 0}'}
    with pytest.raises(InfraError, match=r"task: reward\.json has accuracy, speed and no reward") as caught:
        read("1", **several)
    assert caught.value.kind is Failure.TASK
    assert read("1", **{"reward.json": b'{"speed": 1, "reward": 0.25}'}).reward == 0.25
    assert read("1", **{"reward.json": b'{"accuracy": 0.5}'}).reward == 0.5
    cheated = {"tests": {"a": "passed"}, "cheat": "ended its tests early", "problem": "no end"}
    assert read("1", cheated, **several).reward == 0.0, "a cheat stays one"


def test_a_reward_file_counts_that_the_tasks_own_files_name():
    both = {"reward.json": b"1", "named": b"reward.txt\n"}
    assert read("0", **both).reward == 0.0
    assert read("0", **{**both, "named": b"reward.json\nreward.txt\n"}).reward == 1.0
    assert read("0", **{**both, "named": b""}).reward == 1.0


def test_tests_that_the_verifier_did_not_see_are_worth_no_fraction():
    printed = read_verdict(ExecResult(1, b"PASSED a\nFAILED b\n"), {"reward.txt": b"0"})
    assert len(printed.tests) == 2
    assert shaped(printed, rollout().result, Shaping(tests="fraction")).value == 0.0
    seen = read("0", {"tests": {"a": "passed", "b": "failed"}})
    assert shaped(seen, rollout().result, Shaping(tests="fraction")).value == 0.5


@pytest.mark.docker
async def test_tests_that_hang_are_no_reward(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, REWARD.format(1) + "; echo waiting; sleep 100", timeout_s=1.0)
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert verdict.reward == 0.0
    assert re.match(r"The tests did not end within \d s\.\nwaiting", verdict.explanation)
    assert verdict.metrics["verifier_timed_out"] == 1.0


@pytest.mark.docker
@pytest.mark.parametrize(
    "script",
    [
        """echo '{"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b", "status": "failed"},
        {"name": "c", "status": "skipped"}]}}' > /logs/verifier/ctrf.json""",
        """echo '<testsuite><testcase classname="" name="a"/><testcase classname="" name="b"><failure/></testcase>
        <testcase classname="" name="c"><skipped/></testcase></testsuite>' > /logs/verifier/junit.xml""",
        "echo 'PASSED a'; echo 'FAILED b - assert'; echo 'SKIPPED c'",
    ],
    ids=["ctrf", "junit", "pytest"],
)
async def test_reports_fill_the_status_of_each_test(docker_backend, base_image, tmp_path, script):
    verdict = await judge(docker_backend, task(tmp_path, script + "; " + REWARD.format(0)), base_image, Changes())
    found = {name.removeprefix("::"): status for name, status in verdict.tests.items()}
    assert found == {"a": TestStatus.PASSED, "b": TestStatus.FAILED, "c": TestStatus.MISSING}
    assert "1 of 3 tests passed; not passed:" in verdict.explanation


@pytest.mark.docker
async def test_a_report_that_cannot_be_read_changes_no_reward(docker_backend, base_image, tmp_path):
    script = "echo '{' > /logs/verifier/ctrf.json; " + REWARD.format(1)
    verdict = await judge(docker_backend, task(tmp_path, script), base_image, Changes())
    assert (verdict.reward, verdict.tests) == (1.0, {})
