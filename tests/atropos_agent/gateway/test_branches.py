"""What the branches of a rollout are, and which are trained."""

from agents import ChatAgent, assert_every_token_is_accounted_for, opened
from native import DONE, Said, asks

from atropos_agent.gateway import TRAINED, Branch


async def traffic(fitted, trained):
    async with opened(fitted, [asks("one"), Said(content="A title"), asks("two"), DONE, DONE], trained=trained) as (
        client,
        engine,
    ):
        agent = ChatAgent(client)
        agent.user("go")
        reply = await agent.ask()
        title = ChatAgent(client, tools=(), system="Give a title.")
        title.user("go")
        await title.ask()
        other = ChatAgent(client, system="You help.")
        other.user("part")
        other.results(await other.ask())
        await other.ask()
        agent.results(reply)
        await agent.ask()
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
    return result


async def test_side_calls_are_left_out_and_counted(fitted):
    result = await traffic(fitted, None)
    assert [row.branch for row in result.segments] == ["main", "sub-agent"]
    metadata = result.metadata["gateway"]
    assert metadata["branches"] == {"main": 2, "side call": 1, "sub-agent": 2}
    assert set(metadata["untrained_tokens"]) == {"side call"}
    assert [exchange.untrained for exchange in result.record] == ["", "side call", "", "", ""]
    assert [message["content"] for step in result.steps if step.branch == "sub-agent" for message in step.said] == [
        "part"
    ]


async def test_which_branches_are_trained_is_an_option(fitted):
    assert [row.branch for row in (await traffic(fitted, {*TRAINED, Branch.SIDE})).segments] == [
        "main",
        "side call",
        "sub-agent",
    ]
    assert [row.branch for row in (await traffic(fitted, {Branch.MAIN})).segments] == ["main"]


async def test_a_branch_trains_its_own_replies_behind_the_common_prefix(fitted):
    async with opened(fitted, [asks("one"), asks("two"), DONE]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        await agent.ask(keep=False)
        await agent.ask()
        result = await client.session.result()
    first, second = result.segments
    assert (first.turns, second.turns) == (2, 1)
    assert list(second.tokens[: len(engine.exchanges[1].prompt)]) == list(engine.exchanges[1].prompt)
    assert {step.segment for step in result.steps} == {0, 1}


async def test_an_agent_without_tools_talks_most_in_its_own_conversation(fitted):
    async with opened(fitted, [Said(content="title"), Said(content="a"), Said(content="b")]) as (client, _):
        title = ChatAgent(client, tools=(), system="Title.")
        title.user("go")
        await title.ask()
        agent = ChatAgent(client, tools=())
        agent.user("go")
        await agent.ask()
        agent.user("more")
        await agent.ask()
        result = await client.session.result()
    assert result.metadata["gateway"]["branches"] == {"side call": 1, "main": 2}


async def test_results_stand_at_their_step_where_the_history_is_begun_again(fitted):
    async with opened(fitted, [asks("one"), asks("two"), DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask(), "first")
        agent.tools.pop()
        agent.results(await agent.ask(), "second")
        await agent.ask()
        result = await client.session.result()
    assert result.metadata["gateway"]["changes"] == {"rewritten": 1}
    assert [[one.content for one in step.results] for step in result.steps] == [["first"], ["second"], []]
    assert result.steps[0].results[0].call == result.steps[0].calls[0]
