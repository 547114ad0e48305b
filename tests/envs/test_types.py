"""The nouns of an environment."""

import pickle

import pytest

from envs.judging.run_tests import DiedInTests
from envs.types import SIGN, BadTask, BadTasks, Failure, InfraError, Task, TestStatus, Verdict


def test_an_infrastructure_failure_names_its_kind():
    error = InfraError("verifier", "it crashed")
    assert error.kind is Failure.VERIFIER
    assert str(error) == "verifier: it crashed"


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(ValueError, match="judge"):
        InfraError("judge", "it crashed")


@pytest.mark.parametrize(
    "error",
    [
        InfraError(Failure.ROW, "no row", unexpected=True),
        DiedInTests("the sandbox died", "memory"),
        BadTasks("task", ["one: no image"], [], " in tasks/"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_is_the_same_in_another_process(error):
    """As Ray raises it again in the process that has asked for a rollout."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_verdict_tells_its_signs_of_cheating_from_its_other_metrics():
    verdict = Verdict(1.0, "", metrics={f"{SIGN}b": 1.0, "verifier_s": 2.0, f"{SIGN}a": 1.0})
    assert verdict.signs == ("a", "b")
    assert verdict.solved


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reward": "1"}, "Verdict: reward is a str; give a number"),
        ({"explanation": None}, "Verdict.explanation is a NoneType; give a text"),
        ({"metrics": {"kind": "easy"}}, "Verdict.metrics: kind is a str; give a number"),
        ({"tests": {"a": True}}, "Verdict.tests: True is not a valid TestStatus; give a TestStatus: passed"),
    ],
)
def test_what_can_not_be_saved_is_no_verdict(values, said):
    with pytest.raises(TypeError, match=said):
        Verdict(**{"reward": 1.0, "explanation": "", **values})
    assert Verdict(1.0, "", tests={"a": "passed"}).tests == {"a": TestStatus.PASSED}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hidden": {}}, "task 'a': hidden is a dict; give a Hidden"),
        ({"metadata": [1]}, "task 'a': metadata is a list; give a Mapping"),
        ({"tags": "easy"}, "task 'a': tags is 'easy'; give a list of texts"),
        ({"tags": None}, "task 'a': tags is None; give a list of texts"),
        ({"tags": ["easy", 3]}, r"task 'a': tags is \['easy', 3\]; give a list of texts"),
        ({"env": None}, "task 'a': env is a NoneType; give a Mapping"),
        ({"timeout_s": 0}, "task 'a': timeout_s is 0; give seconds above 0, or None"),
        ({"timeout_s": "60"}, "task 'a': timeout_s is '60'"),
    ],
)
def test_a_task_with_a_value_of_another_type_is_refused(values, said):
    with pytest.raises(BadTask, match=said):
        Task("a", "Do it.", **values)
