"""A rollout branches: the agent's code runs again from its beginning, is told all again, and goes on by itself."""

import asyncio

import pytest
from worked import TOOLS, Model, assert_every_token_is_accounted_for, call, loop

from atropos_agent.agent import AtroposAgent
from atropos_agent.script import Diverged
from atropos_agent.types import AgentConfig, AgentError, StopReason
from tools.base import ToolRegistry


async def plain(turns):
    await loop(turns)


async def asks_once_more(turns):
    await loop(turns)
    turns.add("Are you sure?")
    await loop(turns)


async def plans_beside(turns):
    beside = turns.open("Make a plan.")
    plan = await beside.reply()
    turns.add(f"Go by {plan.content}; you have {turns.replies} replies so far.")
    await loop(turns)
    beside.add("Was it a good plan?")
    await beside.reply()


def agent_of(work, server, template, tools=TOOLS, **config):
    class Own(AtroposAgent):
        async def work(self, turns):
            await work(turns)

    return Own(server, tools, AgentConfig(**config), template=template)


async def grow(template, texts, work, later=None, **config):
    """A rollout that branches behind its first results; the branch goes on when the rollout has ended."""
    server, points = Model(template, texts), []
    agent = agent_of(work, server, template, **config)

    async def executed(turns, results):
        if not points:
            points.append(turns.branch())

    async with agent.turns("Go.") as turns:
        turns.executed = executed
        await agent.work(turns)
        turns.ended = turns.ended or StopReason.ANSWERED
    leaf = points[0].branch()
    await agent_of(later or work, server, template, **config).go_on(leaf)
    return turns, leaf, server


WAYS = {
    plain: ([call("say", text="one"), "mine", "yours"], ["one"]),
    asks_once_more: (
        ["first", call("say", text="one"), "mine", call("say", text="two"), "yours"],
        ["one", "two"],
    ),
    plans_beside: (["a plan", call("say", text="one"), "mine", "good", "yours", "bad"], ["one"]),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_whatever_an_agent_is_its_branches_share_the_tokens_before_them(smollm2, way):
    turns, leaf, server = await grow(smollm2, WAYS[way][0], way)
    assert not server.texts, "the branch was told the replies before it, and asked only for its own"
    assert (turns.final, leaf.final) == ("mine", "yours")
    alone = leaf.result()
    assert alone.final_response == "yours"
    assert [step.index for step in alone.steps] == sorted(leaf.ledger.numbers)
    turns.ledger.join([leaf.ledger], [turns.ledger, leaf.ledger], "lost")
    assert_every_token_is_accounted_for(turns.result(), server.exchanges)


async def test_replies_of_no_leaf_are_counted_and_those_before_the_branch_are_trained(smollm2):
    turns, leaf, server = await grow(smollm2, WAYS[plain][0], plain)
    turns.ledger.join([leaf.ledger], [leaf.ledger], "lost branch")
    result = turns.result()
    assert_every_token_is_accounted_for(result, server.exchanges)
    mine = len(server.exchanges[1].ids)
    assert result.metadata["conversations"]["untrained_tokens"] == {"lost branch": mine}


async def test_a_branch_has_the_budget_of_any_other_rollout(smollm2):
    texts = [call("say", text="one"), call("say", text="two"), call("say", text="three"), "yours"]
    turns, leaf, _ = await grow(smollm2, texts, plain, max_steps=2)
    assert (turns.ended, leaf.ended) == (StopReason.MAX_STEPS, StopReason.MAX_STEPS)
    assert len(leaf.ledger.numbers) == 2


async def test_code_that_does_something_else_than_before_is_not_branched(smollm2):
    async def idle(turns):
        return None

    with pytest.raises(AgentError, match="ended before it came to the branch") as caught:
        await grow(smollm2, WAYS[plain][0], plain, later=idle)
    assert isinstance(caught.value.__cause__, Diverged)

    async def other(turns):
        turns.open("Something else.")

    with pytest.raises(AgentError, match="called open where it called reply before"):
        await grow(smollm2, WAYS[plain][0], plain, later=other)


async def test_a_branch_fails_alone_and_is_made_again_from_its_place(smollm2):
    server, points, broken = (
        Model(smollm2, [call("say", text="one"), "mine", call("say", text="two"), "yours"]),
        [],
        [True],
    )

    async def say(text: str) -> str:
        """Say something back."""
        if text == "two" and broken.pop():
            raise OSError("disk on fire")
        return text

    async def executed(turns, results):
        points.append(turns.branch())

    tools = ToolRegistry([say])
    agent = agent_of(loop, server, smollm2, tools)
    async with agent.turns("Go.") as turns:
        turns.executed = executed
        await agent.work(turns)
    with pytest.raises(AgentError, match="disk on fire") as caught:
        await agent_of(loop, server, smollm2, tools).go_on(points[0].branch())
    assert caught.value.partial.steps
    leaf = points[0].branch()
    await agent_of(loop, server, smollm2, tools).go_on(leaf)
    assert (leaf.final, turns.ledger.failure) == ("yours", None)


async def test_branches_go_on_side_by_side(smollm2):
    texts = [call("say", text="one"), "mine", *("one", "two", "three")]
    server, points = Model(smollm2, texts), []
    agent = agent_of(loop, server, smollm2)

    async def executed(turns, results):
        points.append(turns.branch())

    async with agent.turns("Go.") as turns:
        turns.executed = executed
        await agent.work(turns)
    leaves = [points[0].branch() for _ in range(3)]
    await asyncio.gather(*(agent_of(loop, server, smollm2).go_on(leaf) for leaf in leaves))
    ledgers = [leaf.ledger for leaf in leaves]
    turns.ledger.join(ledgers, [turns.ledger, *ledgers], "lost")
    result = turns.result()
    assert_every_token_is_accounted_for(result, server.exchanges)
    assert [row.turns for row in result.segments] == [2, 1, 1, 1]
