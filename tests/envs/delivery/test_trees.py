"""A rollout with branches: whatever forks, retries and failures there are, each sampled token is in one row, with the
mean of the leaves behind it, and the rollout weighs one."""

import asyncio
import itertools
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_samples import rollout as plain_rollout
from row_samples import score
from worked import TOOLS, Model, assert_every_token_is_accounted_for, call, loop

from atropos_agent.agent import AtroposAgent
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, AgentConfig
from envs.delivery.estimators import Estimator
from envs.delivery.exports import Export, tinker_rows, trl_samples, verifiers_episodes, verl_rows
from envs.delivery.rows import read_rows
from envs.delivery.worth import Loss
from envs.rewards import rewarded
from envs.types import Leaf, Outcome, Reward, Rollout, Task, Verdict

TASK = Task("t", "Do it.")

trees = st.recursive(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 1)),
    lambda tree: st.tuples(st.integers(1, 2), st.lists(tree, min_size=2, max_size=3), st.integers(0, 1)),
    max_leaves=7,
)
"""A part of a rollout: turns before it ends with a reward, or before it branches, and how often we fail in it."""


@pytest.fixture(scope="module")
def template(smollm2_tokenizer):
    return ChatTemplate(smollm2_tokenizer)


class Works(AtroposAgent):
    async def work(self, turns):
        await loop(turns)


async def make(template, tree, lost=frozenset()):
    """A rollout of this shape. lost: numbers of leaves that can't be had. Returns the rollout, what the server was
    asked, and the ends, each with its reward, its replies, and which sibling it was at each place."""
    numbers, ends, ledgers = itertools.count(), [], []
    server = Model(template, [])

    async def grow(turns, part, chosen=()):
        """Go on in one part: by hand, for the shape decides, not the model."""
        depth, rest, _ = part
        for _ in range(depth):
            name = f"w{next(numbers)}"
            server.texts.append(call("say", text=name))
            await turns.execute((await turns.reply()).calls)
        if isinstance(rest, list):
            point = turns.branch()
            first, *others = rest
            for sibling, other in enumerate(others, start=1):
                for attempt in range(other[2] + 1):
                    branch = point.branch()
                    branch.script = type(branch.script)()  # this test is the agent's code, and goes on by itself
                    ledgers.append(branch.ledger)
                    if attempt < other[2]:
                        server.texts.append("half a reply, then we fail")
                        await branch.reply()
                    else:
                        await grow(branch, other, (*chosen, sibling))
            await grow(turns, first, (*chosen, 0))
            return
        server.texts.append(f"end {next(numbers)}")
        await turns.reply()
        ends.append((rest, turns, chosen))

    agent = Works(server, TOOLS, AgentConfig(max_steps=1000), template=template)
    async with agent.turns("Go.") as turns:
        await grow(turns, tree)
    root = turns.ledger
    kept = [end for place, end in enumerate(ends) if place not in lost]
    leaves = [Outcome(one.result(), Verdict(reward, "")) for reward, one, _ in kept]
    ways = [(reward, set(one.ledger.numbers), chosen) for reward, one, chosen in kept]
    root.join(ledgers, [one.ledger for _, one, _ in kept], "lost branch")
    whole = Outcome(turns.result(), Verdict(0.0, ""), leaves=leaves if len(ends) > 1 else ())
    if not whole.leaves:
        whole = Outcome(whole.result, leaves[0].verdict)
    reward = rewarded(whole, lambda one: one.verdict.reward)
    made = Rollout("tree", TASK, whole.result, whole.verdict, reward)
    return made, server.exchanges, ways


def by_siblings(values):
    """The mean of a tree's values, by siblings: (which sibling at each place, value) of each leaf."""
    if len(values) == 1:
        return values[0][1]
    siblings = {chosen[0] for chosen, _ in values}
    return statistics.fmean(
        by_siblings([(chosen[1:], value) for chosen, value in values if chosen[0] == sibling]) for sibling in siblings
    )


def tokens_of(group, name):
    """Each trained token of a rollout: the number of its turn, its advantages, and its share of a mean over rows."""
    for row in group.rows:
        if row.rollout_id != name:
            continue
        by_rows, by_tokens = row.advantages(Loss.ROWS), row.advantages(Loss.TOKENS)
        for turn in row.turns:
            for place in range(turn.start, turn.start + turn.length):
                if row.masks[place] != IGNORED:
                    yield turn.number, by_rows[place] / sum(row.sampled), by_tokens[place]


@settings(max_examples=25, deadline=None)
@given(tree=trees, other=st.sampled_from([0.0, 1.0]), data=st.data(), kind=st.sampled_from(["group-std", "group-mean"]))
def test_each_token_is_in_one_row_with_the_mean_of_its_leaves_and_a_tree_weighs_one_rollout(
    template, tree, other, data, kind
):
    ends = asyncio.run(make(template, tree))[2]
    lost = data.draw(st.sets(st.integers(0, len(ends) - 1), max_size=len(ends) - 1))
    made, exchanges, leaves = asyncio.run(make(template, tree, lost))
    assert_every_token_is_accounted_for(made.result, exchanges)
    worth = by_siblings([(chosen, value) for value, _, chosen in leaves])
    assert made.reward.value == pytest.approx(worth), "a leaf that can't be had is no 0"

    estimator = Estimator(kind)
    group = score([made, plain_rollout(other, 1, "plain")], estimator=estimator)
    mean = (made.reward.value + other) / 2
    divisor = estimator.divisor([made.reward.ends, [(other, 1.0)]])
    length = by_siblings([(chosen, sum(len(exchanges[number].ids) for number in turns)) for _, turns, chosen in leaves])
    found = list(tokens_of(group, "tree"))
    assert len(found) == made.result.sampled_tokens
    weights = 0.0
    for number, by_rows, by_tokens in found:
        behind = by_siblings([(chosen, value) for value, turns, chosen in leaves if number in turns])
        weight = by_siblings([(chosen, float(number in turns)) for _, turns, chosen in leaves])
        expected = weight * (behind - mean) / divisor if divisor else 0.0
        assert by_tokens == pytest.approx(expected, abs=1e-9)
        assert by_rows == pytest.approx(expected / length, abs=1e-9)
        weights += weight / length
    assert weights == pytest.approx(1.0), "all weights of a rollout together"


async def test_a_tree_weighs_in_a_group_as_its_mean_does_without_branches(template):
    tree = (1, [(0, 1.0, 0), (0, 0.0, 0)], 0)
    made, *_ = await make(template, tree)
    group = score([made, plain_rollout(0.0, 1, "plain")], estimator=Estimator("group-mean"))
    prefix, *ends = [turn.advantage + row.advantage for row in group.rows if row.turns for turn in row.turns][:3]
    assert prefix == pytest.approx(0.25), "0.5, less the group's mean"
    assert sorted(ends) == pytest.approx([-0.125, 0.375]), "half of each leaf's"


async def test_equal_rollouts_with_unequal_leaves_teach_and_flat_trees_do_not(template):
    tree = (1, [(0, 1.0, 0), (0, 0.0, 0)], 0)
    made = [(await make(template, tree))[0] for _ in range(2)]
    assert score(made).has_signal
    assert score(made[:1]).has_signal, "a group of one learns within its tree"
    flat = [(await make(template, (1, [(0, 1.0, 0), (0, 1.0, 0)], 0)))[0] for _ in range(2)]
    assert not score(flat).has_signal


async def test_every_form_carries_the_advantages_of_a_tree(template):
    made, *_ = await make(template, (1, [(0, 1.0, 0), (1, 0.0, 0), (0, 0.5, 0)], 0))
    group = score([made, plain_rollout(0.0, 1, "plain")])
    wanted = [row.advantages(Loss.TOKENS) for row in group.rows]
    again = read_rows(group.to_wire())
    assert [row.advantages(Loss.ROWS) for row in again] == [row.advantages(Loss.ROWS) for row in group.rows]
    export = Export(group, {"tree": made, "plain": plain_rollout(0.0, 1, "plain")})
    for row, line in zip(wanted, verl_rows(group.rows), strict=True):
        assert line["extra_fields"]["advantages"] == row[-len(line["response_ids"]) :]
    for row, line in zip(wanted, tinker_rows(group.rows), strict=True):
        assert line["loss_fn_inputs"]["advantages"]["data"] == row[1:]
    summed = {}
    for sample in trl_samples(export):
        key = (sample["rollout_id"], sample["segment"])
        mine = [sample["advantage"] * one for one in sample["completion_mask"]]
        summed[key] = [a + b for a, b in zip(summed.get(key, [0.0] * len(mine)), mine, strict=True)]
    assert list(summed.values()) == [pytest.approx(row) for row in wanted]
    nodes = [n for line in verifiers_episodes(export) for t in line["traces"] for n in t["nodes"] if n["sampled"]]
    given = [value for node in nodes for value in node["advantages"]]
    trained = [
        v for row, one in zip(wanted, group.rows, strict=True) for v, own in zip(row, one.sampled, strict=True) if own
    ]
    assert given == trained


def test_a_reward_of_ones_own_is_asked_of_each_leaf_and_turns_get_the_mean_of_theirs():
    whole = plain_rollout(0.0, 3).result
    first, second, third = whole.steps
    leaves = [
        Outcome(replace(whole, steps=(first, end)), Verdict(value, "")) for value, end in ((1.0, second), (0.0, third))
    ]

    def own(outcome):
        return Reward(
            outcome.verdict.reward, tuple(outcome.verdict.reward + step.index for step in outcome.result.steps)
        )

    found = rewarded(Outcome(whole, Verdict(0.5, ""), leaves=leaves), own)
    assert found == Reward(0.5, (0.5, 2.0, 2.0), "", (Leaf(1.0, (0, 1)), Leaf(0.0, (0, 2))))


def test_a_trained_reply_without_a_leaf_is_refused():
    unsound = replace(plain_rollout(1.0, 2), reward=Reward(1.0, leaves=(Leaf(1.0, (0,)),)))
    with pytest.raises(ValueError, match=r"turns \[1\] of rollout r are trained and lead to no leaf"):
        score([unsound])
