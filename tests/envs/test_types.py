"""The nouns of an environment."""

import pytest

from envs.types import SIGN, Failure, InfraError, Verdict


def test_an_infrastructure_failure_names_its_kind():
    error = InfraError("verifier", "it crashed")
    assert error.kind is Failure.VERIFIER
    assert str(error) == "verifier: it crashed"


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(ValueError, match="judge"):
        InfraError("judge", "it crashed")


def test_a_verdict_tells_its_signs_of_cheating_from_its_other_metrics():
    verdict = Verdict(1.0, "", metrics={f"{SIGN}b": 1.0, "verifier_s": 2.0, f"{SIGN}a": 1.0})
    assert verdict.signs == ("a", "b")
    assert verdict.solved
