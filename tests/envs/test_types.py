"""The nouns of an environment."""

import copy
import math
import pickle
from statistics import fmean

import pytest

from envs.types import SIGN, Failure, InfraError, Leaf, Reward, Verdict, leaf_weights


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


def test_siblings_weigh_the_same_however_many_leaves_each_has():
    assert leaf_weights([]) == []
    assert leaf_weights([(0, 1, 2)]) == [1.0]
    assert leaf_weights([(0, 1), (0, 2, 3), (0, 2, 4)]) == [0.5, 0.25, 0.25]
    assert leaf_weights([(0,), (0,), (0, 1), (0, 2)]) == [0.25] * 4, "two end at the place itself"
    tree = Reward(0.25, leaves=(Leaf(0.0, (0, 1)), Leaf(1.0, (0, 2, 3)), Leaf(0.0, (0, 2, 4))))
    assert [tree.behind(turn) for turn in (0, 1, 2, 3)] == [(0.25, 1.0), (0.0, 0.5), (0.5, 0.5), (1.0, 0.25)]


CHANCES = (0.6, 0.7, 0.5)


def chance(way):
    """Of the next reply being right: less likely behind a wrong one."""
    return CHANCES[len(way)] * (0.5 if 0 in way else 1.0)


def worth(way=()):
    """What the policy's rollouts from here are worth in the mean."""
    if len(way) == len(CHANCES):
        return float(sum(way) >= 2)
    return chance(way) * worth((*way, 1)) + (1 - chance(way)) * worth((*way, 0))


def every_tree(rule, count):
    """Yield each tree of two branches at most that can come about, as its chance and its leaves: replies, and value."""
    scripts = [()]
    while scripts:
        script, tossed, made, leaves, left = scripts.pop(), [], [], [], count
        happens, waiting = 1.0, [((), ())]
        while waiting:
            way, numbers = waiting.pop(0)
            while len(way) < len(CHANCES):
                if len(tossed) == len(script):
                    scripts.append((*script, 0))
                    script = (*script, 1)
                right = script[len(tossed)]
                tossed.append(right)
                happens *= chance(way) if right else 1 - chance(way)
                way, numbers = (*way, right), (*numbers, len(made))
                made.append(right)
                if left and len(way) < len(CHANCES) and rule(way):
                    left -= 1
                    waiting.append((way, numbers))
            leaves.append((numbers, float(sum(way) >= 2)))
        yield happens, leaves


@pytest.mark.parametrize(
    ("rule", "biased"),
    [
        (lambda way: True, False),
        (lambda way: way[-1] == 0, True),
        (lambda way: way[-1] == 1, True),
        (lambda way: sum(way) == 1, True),
    ],
    ids=["everywhere", "behind errors", "behind right replies", "where it may go either way"],
)
def test_the_mean_by_siblings_is_unbiased_whatever_the_rule_for_places_and_the_mean_of_leaves_is_not(rule, biased):
    trees = list(every_tree(rule, 2))
    assert math.fsum(happens for happens, _ in trees) == pytest.approx(1.0)
    by_siblings = by_leaves = 0.0
    for happens, leaves in trees:
        weights = leaf_weights([numbers for numbers, _ in leaves])
        assert math.fsum(weights) == pytest.approx(1.0)
        by_siblings += happens * fmean((value for _, value in leaves), weights)
        by_leaves += happens * fmean(value for _, value in leaves)
    assert by_siblings == pytest.approx(worth(), abs=1e-12)
    assert (abs(by_leaves - worth()) > 0.003) == biased


def test_an_infrastructure_failure_goes_to_another_process():
    failure = InfraError("engine", "500: it is down")
    for sent in (pickle.loads(pickle.dumps(failure)), copy.copy(failure)):
        assert (sent.kind, sent.message, str(sent)) == (Failure.ENGINE, "500: it is down", "engine: 500: it is down")
