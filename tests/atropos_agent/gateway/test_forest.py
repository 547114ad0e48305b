"""Where a request's history ends in what we know."""

from agents import AGENTS, ChatAgent, opened
from native import DONE, Said, asks


async def test_of_replies_that_are_alike_the_one_that_was_taken_is_gone_on_from(fitted):
    async with opened(fitted, [Said(content="same"), Said(content="same"), DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        assert await agent.ask(cut=0) is None
        agent.body["stop"] = ["x"]
        await agent.ask()
        agent.user("more")
        await agent.ask()
        result = await client.session.result()
    assert result.metadata["gateway"]["branches"] == {"untaken": 1, "main": 2}


async def test_the_same_tools_in_another_order_are_the_same_conversation(fitted):
    async with opened(fitted, [asks("one"), DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        agent.tools.reverse()
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


async def test_a_history_named_by_an_id_has_the_system_message_of_the_request(fitted):
    async with opened(fitted, [DONE, DONE, DONE]) as (client, _):
        agent = AGENTS["responses"](client, instructions="Be good.", system=None)
        agent.user("go")
        for instructions in ("Be good.", "Be bad."):
            await agent.ask()
            agent.history = [{"role": "user", "content": "more"}]
            agent.body |= {"previous_response_id": "resp_gw_0", "instructions": instructions}
        await agent.ask()
        result = await client.session.result()
    assert len(result.segments) == 2
    assert result.segments[1].full_text.count("Be bad.") == 1


async def test_a_part_of_a_reply_that_is_named_twice_is_there_once(fitted):
    async with opened(fitted, [asks("one"), DONE]) as (client, engine):
        agent = AGENTS["responses"](client, system=None)
        agent.user("go")
        await agent.ask()
        named = [{"type": "item_reference", "id": "fc_gw_0_0"}] * 1000
        await client.call("/v1/responses", {**agent.body, "input": [*named, {"role": "user", "content": "more"}]})
    assert fitted.template.decode(engine.exchanges[1].prompt).count('"one"') <= 1


async def test_a_known_reply_in_new_history_is_told_in_our_own_words(with_calls):
    async with opened(with_calls, [asks("one", content="First."), DONE]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        agent.history[0]["content"] = "Other rules."
        agent.history[2]["content"] = " First. "
        await agent.ask()
    assert "\nFirst.\n" in with_calls.template.decode(engine.exchanges[1].prompt)
