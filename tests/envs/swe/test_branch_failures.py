"""Infrastructure failures in a rollout with branches: what was had is kept, what failed is made again from its place.

A new branch asks before the rollout goes on: that is the order of the texts."""

from contextlib import asynccontextmanager

import pytest
from worked import TOOLS, Model, assert_every_token_is_accounted_for, call

from atropos_agent.agent import AtroposAgent
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from envs.rewards import rewarded
from envs.swe.branching import LOST, Tree
from envs.swe.places import Branches
from envs.types import Failure, InfraError, Outcome, Verdict
from sandboxes.base import ExecResult, Sandbox, SandboxDied
from tools.base import ToolRegistry


class Box(Sandbox):
    """A sandbox with nothing in it; resets are counted."""

    workdir = "/app"

    def __init__(self, opened):
        self.resets = 0
        self.opened = opened
        opened.append(self)

    async def exec(self, command, **options):
        return ExecResult(0, b"5\n/proc/1 S 0\n/proc/4 S 1\n/proc/5 R 4", False, False, 0.0)

    async def reset(self):
        self.resets += 1

    @asynccontextmanager
    async def fork(self, count):
        forks = [Box(self.opened) for _ in range(count)]
        yield forks
        self.opened.remove(forks[0])


class Place:
    """A workplace where an answer of `good` is worth 1. broken: answers that can't be judged, once each."""

    def __init__(self, broken=()):
        self.opened, self.broken = [], list(broken)
        self.sandbox = Box(self.opened)

    async def collect(self):
        return None

    def _verdict(self, result):
        if result.final_response in self.broken:
            self.broken.remove(result.final_response)
            raise InfraError(Failure.VERIFIER, "the verifier died")
        return Outcome(result, Verdict(float("good" in result.final_response), "said"), work=[{"of": "it"}])

    async def judge(self, changes, result):
        self.own = self._verdict(result)

    async def outcome(self, keep_mb):
        return self.own

    async def judge_fork(self, sandbox, result, keep_mb):
        return self._verdict(result)


@pytest.fixture(scope="module")
def template(smollm2_tokenizer):
    return ChatTemplate(smollm2_tokenizer)


async def grow(template, texts, place, branches="1@every:1", tools=TOOLS, attempts=3, failures=()):
    """failures: of branches, expected, as texts or their beginnings."""
    server, found = Model(template, texts), []

    def make_agent(sandbox, *, first):
        return AtroposAgent(server, tools, AgentConfig(max_steps=6), template=template)

    async with Tree(Branches.of(branches), place, make_agent, found, attempts=attempts, keep_mb=1.0) as tree:
        outcome = await tree.grow("Go.")
    assert [one.kind for one in found] == list(failures)
    assert place.opened == [place.sandbox], "nothing is left behind"
    assert_every_token_is_accounted_for(outcome.result, server.exchanges)
    return outcome, rewarded(outcome, lambda one: one.verdict.reward)


async def test_each_leaf_is_judged_by_itself(template):
    texts = [call("say", text="one"), "bad", "good"]
    outcome, reward = await grow(template, texts, Place())
    assert (reward.value, sorted(leaf.value for leaf in reward.leaves)) == (0.5, [0.0, 1.0])
    assert outcome.verdict.reward == 0.5
    assert not outcome.verdict.solved
    assert len(outcome.work) == 2
    assert outcome.result.metadata["tree"] == {"leaves": 2}


async def test_a_branch_that_fails_is_made_again_from_its_place_and_counted(template):
    texts = [call("say", text="one"), "good", "bad", "good too"]
    outcome, reward = await grow(template, texts, Place(broken=["bad"]), failures=["verifier"])
    assert reward.value == 1.0, "the failed attempt is no 0"
    assert outcome.result.metadata["tree"] == {"failed: verifier": 1, "leaves": 2}
    assert len(outcome.result.metadata["conversations"]["untrained_tokens"]) == 1
    assert LOST in outcome.result.metadata["conversations"]["untrained_tokens"]


async def test_a_leaf_that_can_not_be_had_is_left_out_of_the_mean(template):
    texts = [call("say", text="one"), "bad", "good", "bad"]
    outcome, reward = await grow(template, texts, Place(broken=["bad", "bad"]), attempts=2, failures=["verifier"] * 2)
    assert (reward.value, len(reward.leaves)) == (1.0, 1)
    assert outcome.result.metadata["tree"] == {"failed: verifier": 2, "lost": 1, "leaves": 1}


async def test_a_rollout_that_dies_begins_again_from_its_last_branch_not_from_its_start(template):
    texts = [call("say", text="one"), "good a", call("say", text="two"), "good b", "broken", "bad"]
    place = Place(broken=["broken"])
    outcome, reward = await grow(template, texts, place, "2@every:1", failures=["verifier"])
    assert len(reward.leaves) == 3, "both branches, and the rollout once more from the second place"
    two = next(step.index for step in outcome.result.steps if "two" in step.response)
    assert sorted(leaf.value for leaf in reward.leaves if two in leaf.turns) == [0.0, 1.0]
    assert outcome.result.metadata["tree"] == {"failed: verifier": 1, "leaves": 3}


async def test_without_any_leaf_the_rollout_fails_as_it_did(template):
    async def breaks(text: str) -> str:
        """Say something back."""
        raise SandboxDied("the sandbox is gone")

    with pytest.raises(Exception, match="the sandbox is gone"):
        await grow(template, [call("say", text="one")], Place(), tools=ToolRegistry([_named(breaks, "say")]))


def _named(function, name):
    function.__name__ = name
    return function


async def test_siblings_may_branch_again_within_the_number_of_the_rollout(template):
    texts = [call("say", text="one"), *[call("say", text="two")] * 2, *["good"] * 3]
    outcome, reward = await grow(template, texts, Place(), "2@every:1")
    assert len(reward.leaves) == 3
    assert outcome.result.metadata["tree"] == {"leaves": 3}


async def test_the_failure_of_a_rollout_without_any_leaf_counts_once(template):
    server, failures = Model(template, [call("say", text="one"), *["bad"] * 2]), []

    def make_agent(sandbox, *, first):
        return AtroposAgent(server, TOOLS, AgentConfig(max_steps=6), template=template)

    place = Place(broken=["bad"] * 4)
    with pytest.raises(InfraError, match="verifier: the verifier died"):
        async with Tree(Branches.of("1@every:1"), place, make_agent, failures, attempts=1, keep_mb=1.0) as tree:
            server.texts += ["bad"] * 2
            await tree.grow("Go.")
    assert len(failures) == 2, "the branch, and the rollout's other attempt; its own failure is raised"
