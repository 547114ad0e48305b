"""Reading what the hidden tests left: rewards, reports of tests, and nonsense."""

import pytest
from stopwatch import Stopwatch
from verifier_samples import REWARD, task

from envs.judging.changes import Changes
from envs.judging.reports.outcome import Outcome
from envs.judging.results import ScriptRun, read_verdict
from envs.judging.verifier import judge
from envs.types import TESTS_UNSEEN, Failure, InfraError
from sandboxes.base import ExecResult

EVIL_TAR = """cat > /bin/tar << 'END'
#!/usr/bin/python3
import sys, tarfile
head = tarfile.TarInfo("x")
head.type, head.size = tarfile.XHDTYPE, 512 * 250
sys.stdout.buffer.write(head.tobuf(tarfile.USTAR_FORMAT) + b"1" * head.size + bytes(2048))
END
"""
"""Prints an archive for which tarfile takes minutes before Python 3.11.10."""


@pytest.mark.docker
@pytest.mark.parametrize(
    "script, reward, said",
    [
        ("ln -s /tests/one /logs/verifier/reward.txt", 0.0, "test.sh wrote no reward"),
        ("rm -r /logs", 0.0, "the verifier's logs could not be read"),
        (f"{EVIL_TAR}chmod +x /bin/tar; " + REWARD.format("1"), 1.0, "Reward 1"),
    ],
)
async def test_what_test_sh_leaves_decides(docker_backend, base_image, tmp_path, script, reward, said):
    sample = task(tmp_path, script, watched=False)
    watch = Stopwatch()
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert watch.seconds < 12.0
    assert verdict.reward == reward
    assert said in verdict.explanation
    assert ("verifier_memory_mb" in verdict.metrics) is ("rm -r" not in script)


@pytest.mark.parametrize(
    ("kind", "text", "reward", "said"),
    [
        ("txt", "nan", 0.0, "reward.txt holds 'nan', not a finite number"),
        ("txt", "1 2", 0.0, "reward.txt holds '1 2', not a number"),
        ("txt", "\n", 0.0, "No reward: test.sh wrote no reward (test.sh ended with 3).\nboom"),
        ("txt", "0.25\n", 0.25, "Reward 0.25"),
        ("txt", "\ufeff1\r\n", 1.0, "Reward 1"),
        ("json", '{"a": 0.5}', 0.5, "Reward 0.5"),
        ("json", '{"reward": true, "b": false}', 1.0, "Reward 1"),
        ("json", '{"a": 1, "b": 0}', 0.5, "Reward 0.5"),
        ("json", '{"a": 1, "b": 3}', 0.0, "reward.json has a, b and no `reward`"),
        ("json", "0.75", 0.75, "Reward 0.75"),
        ("json", "[1]", 0.0, "reward.json holds [1], not finite numbers"),
        ("json", '{"a": NaN}', 0.0, "not finite numbers"),
        ("json", "{", 0.0, "reward.json is not JSON"),
        ("json", "1" + "0" * 400, 0.0, "not finite numbers"),
        ("json", '{"reward": -1e300}', 0.0, "not finite numbers of at most 1e+12"),
        ("txt", "-1e300", 0.0, "reward.txt holds '-1e300', not a finite number of at most 1e+12"),
    ],
)
def test_a_reward_is_one_number(kind, text, reward, said):
    ran = ScriptRun(ExecResult(3, b"boom"), {f"reward.{kind}": text.encode()}, None, None, watched=False, known=True)
    verdict = read_verdict(ran)
    assert (verdict.reward, said in verdict.explanation) == (reward, True)


def seen(problem: str | None = None, sign: str | None = None, share: float = 1.0, **tests: str) -> Outcome:
    return Outcome(tests or {"a": "passed"}, problem, sign, share)


def read(reward: str = "1", outcome: Outcome | None = None, *, watched=True, known=True, **logs: bytes):
    return read_verdict(
        ScriptRun(ExecResult(0, b""), {"reward.txt": reward.encode(), **logs}, outcome, None, watched, known)
    )


def test_tests_that_do_not_decide_are_no_evidence():
    outcome = Outcome({"a": "passed"}, None, None, 1.0, evidence={"tests": {"a": []}})
    assert [list(read("1", outcome, watched=watched).evidence) for watched in (True, False)] == [[outcome.evidence], []]


def test_the_reward_is_the_least_of_what_was_seen_and_what_test_sh_wrote():
    assert read("1", seen()).reward == 1.0
    assert read("0", seen()).reward == 0.0
    assert read("0.25", seen()).reward == 0.25
    assert read("-1", seen("no test passed", share=0.0)).reward == -1.0
    half = seen("1 test not seen to pass: b", share=0.5, a="passed", b="failed")
    assert [read(written, half).reward for written in ("1", "0.75", "0.5", "0.25", "0")] == [0.0, 0.5, 0.5, 0.25, 0.0]
    verdict = read("1", half)
    assert "Reward 0, though test.sh wrote 1: 1 test not seen to pass: b" in verdict.explanation
    assert verdict.metrics["test_sh_reward"] == 1.0


def test_code_that_writes_a_larger_reward_behind_tests_that_passed_earns_no_more():
    verdict = read("1000", seen())
    assert (verdict.reward, "though test.sh wrote 1000" in verdict.explanation) == (1.0, True)
    assert read("1000", seen(), watched=False).reward == 1000


@pytest.mark.parametrize("written", ["true", "100%", "0,5", "nan", "PASS", ""])
def test_a_reward_that_is_no_number_is_the_tasks_where_nothing_speaks_against_the_code(written):
    for known, outcome in ((True, seen()), (False, seen("1 test not seen to pass: b", share=0.5))):
        assert read(written, outcome, known=known).reward == 0.0
    for watched in (True, False):
        with pytest.raises(
            InfraError, match=r"reward.txt holds .*, not a|wrote no reward \(test.sh ended with 0\)"
        ) as raised:
            read(written, seen() if watched else None, watched=watched, known=False)
        assert raised.value.kind is Failure.TASK


@pytest.mark.parametrize(("written", "doubted"), [("1", True), ("0", False)])
def test_an_ok_of_test_sh_beside_a_reward_of_0_is_not_left_unexplained(written, doubted):
    wrong = seen("1 test not seen to pass: b", share=0.0, b="failed")
    ran = ScriptRun(ExecResult(0, b"OK"), {"reward.txt": written.encode()}, wrong, None, watched=True, known=True)
    words = "The output of test.sh, which the verifier does not trust:\nOK"
    assert (words in read_verdict(ran).explanation) is doubted


def test_long_names_of_tests_are_not_quoted_whole():
    names = [f"test[{number}{'x' * 100_000}]" for number in range(5)]
    verdict = read("0", seen(f"not seen to pass: {', '.join(names)}", share=0.0, **dict.fromkeys(names, "failed")))
    assert len(verdict.explanation) < 10_000 and "test[0xxx" in verdict.explanation


@pytest.mark.parametrize("written", ["1", "0.25"])
def test_a_sign_of_cheating_leaves_nothing_of_a_reward(written):
    verdict = read(written, seen("no end", "ended its tests early", 0.5))
    assert (verdict.reward, verdict.signs) == (0.0, ("ended its tests early",))
    assert verdict.seen == {"ended its tests early": "no end"}
    assert "the code under test ended its tests early: no end" in verdict.explanation


def test_where_no_test_was_seen_of_a_watched_task_nothing_is_earned():
    verdict = read("1", None)
    assert (verdict.reward, verdict.metrics[TESTS_UNSEEN]) == (0.0, 1.0)
    assert "Reward 0, though test.sh wrote 1: no test was seen to run" in verdict.explanation
    with pytest.raises(InfraError, match="ran no test"):
        read("0", None, known=False)


@pytest.mark.parametrize("outcome", [None, seen("1 test not seen to pass: b", share=0.5)])
def test_of_an_unwatched_task_the_word_of_test_sh_counts_and_is_marked(outcome):
    verdict = read("0.75", outcome, watched=False)
    assert (verdict.reward, verdict.metrics[TESTS_UNSEEN], verdict.signs) == (0.75, 1.0, ())
    assert "Reward 0.75, as test.sh wrote, because the task is unwatched" in verdict.explanation


def test_named_rewards_are_metrics_beside_the_one_that_counts():
    verdict = read("0", seen(), **{"reward.json": b'{"reward": 1, "speed": 3}'})
    assert (verdict.reward, verdict.metrics["reward/speed"]) == (1.0, 3.0)  # a step's min_reward may ask for it
