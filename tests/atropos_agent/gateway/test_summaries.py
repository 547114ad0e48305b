"""Agents that make their conversations shorter, each in its own way: what was a summary, and what became of it."""

import pytest
from agents import ChatAgent, assert_every_token_is_accounted_for, opened
from native import DONE, Said, asks

from atropos_agent.harvest import MASKED_SUMMARY, UNUSED_SUMMARY

SUMMARY = "Looked at the parser first.\nThe fault is in the third branch of it."
LONG = "all that there is to see here " * 40


async def begins(client):
    """A conversation of two turns, which has grown long."""
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        agent.results(await agent.ask(), LONG)
    return agent


async def ends(client, *messages):
    """The conversation from which the agent goes on, to its end."""
    agent = ChatAgent(client)
    agent.history += messages
    agent.results(await agent.ask())
    await agent.ask()


def user(text):
    return {"role": "user", "content": text}


async def like_codex(client):
    """It asks without tools, after the whole history, and begins with its own words and the summary."""
    agent = await begins(client)
    summarizer = ChatAgent(client, tools=())
    summarizer.history = [*agent.history, user("Sum up.")]
    summary = (await summarizer.ask())["content"]
    await ends(client, user("go"), user(f"Another model has begun this:\n{summary}"))


async def like_openhands(client):
    """It shows the events as text to a conversation of its own, and keeps the first ones."""
    agent = await begins(client)
    summarizer = ChatAgent(client, system=None, tools=())
    summarizer.user(f"You keep a summary of this:\n{4 * LONG}")
    summary = (await summarizer.ask())["content"]
    await ends(client, *agent.history[1:4], user(f"<summary>\n{summary}\n</summary>"))


async def like_claude_code(client):
    """It asks with its tools, in the conversation itself, and leaves out a part of the summary."""
    agent = await begins(client)
    agent.user("Sum up.")
    summary = (await agent.ask())["content"].splitlines()[1]
    await ends(client, user(f"This goes on from before. {summary}"))


async def like_opencode(client):
    """It tells the summary as a reply of the model's."""
    agent = await begins(client)
    summarizer = ChatAgent(client, tools=())
    summarizer.history = [*agent.history, user("Sum up.")]
    summary = await summarizer.ask()
    await ends(client, user("What did you do?"), summary, user("Go on."))


WAYS = [like_codex, like_openhands, like_claude_code, like_opencode]
SCRIPT = [asks("one"), asks("two"), Said(content=SUMMARY), asks("three"), DONE]


async def result_of(fitted, way, script=SCRIPT, **options):
    async with opened(fitted, script, **options) as (client, engine):
        await way(client)
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
    return result, engine


@pytest.mark.parametrize("way", WAYS)
async def test_a_summary_from_which_an_agent_goes_on_is_trained_and_told_as_our_own_agents(fitted, way):
    result, engine = await result_of(fitted, way)
    metadata = result.metadata["gateway"]
    assert metadata["branches"] == {"main": 4, "summary": 1}
    assert metadata["untrained_tokens"] == {}
    assert (
        [step.index for step in result.steps if step.branch == "summary"] == metadata["compaction"]["summaries"] == [2]
    )
    before, after = len(engine.exchanges[2].prompt), len(engine.exchanges[3].prompt)
    assert metadata["compaction"]["count"] == 1
    assert metadata["compaction"]["tokens_saved"] >= before - after > 0


@pytest.mark.parametrize("way", WAYS)
async def test_summaries_are_masked_as_our_own_agents_are(fitted, way):
    result, engine = await result_of(fitted, way, trains_summaries=False)
    assert result.metadata["gateway"]["untrained_tokens"] == {MASKED_SUMMARY: len(engine.exchanges[2].ids)}


@pytest.mark.parametrize("reply", [Said(), Said(content=SUMMARY), asks("no summary")])
async def test_a_summary_from_which_nothing_goes_on_is_not_trained(fitted, reply):
    async def forgets(client):
        agent = await begins(client)
        summarizer = ChatAgent(client, tools=())
        summarizer.history = [*agent.history, user("Sum up.")]
        await summarizer.ask()
        if reply.content:
            await ends(client, user("go, and be short"))
        else:
            agent.results(await agent.ask())
            await agent.ask()

    script = [*SCRIPT[:2], reply, *SCRIPT[3:]]
    result, engine = await result_of(fitted, forgets, script)
    assert result.metadata["gateway"]["untrained_tokens"] == {UNUSED_SUMMARY: len(engine.exchanges[2].ids)}


async def test_what_else_is_asked_without_tools_stays_what_it_is(fitted):
    """A title beside the beginning, and a judgement that moves the work on."""

    async def judged(client):
        title = ChatAgent(client, system="Give a title.", tools=())
        title.user("go")
        await title.ask()
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        judge = ChatAgent(client, tools=())
        judge.history = [*agent.history, user("Is it done?")]
        await judge.ask()
        await agent.ask()

    script = [Said(content="The title of the whole work"), asks("one"), Said(content="no"), DONE]
    result, _ = await result_of(fitted, judged, script)
    metadata = result.metadata["gateway"]
    assert metadata["branches"] == {"side call": 1, "main": 2, "summary": 1}
    assert set(metadata["untrained_tokens"]) == {"side call"}
    assert metadata["compaction"]["count"] == 0


async def test_results_that_are_cleared_are_a_compaction_without_a_summary(fitted):
    async def clears(client):
        agent = await begins(client)
        agent.history[3]["content"] = agent.history[5]["content"] = "[cleared]"
        agent.results(await agent.ask())
        await agent.ask()

    result, _ = await result_of(fitted, clears, [asks("one"), asks("two"), asks("three"), DONE])
    metadata = result.metadata["gateway"]["compaction"]
    assert (metadata["count"], metadata["summaries"]) == (1, [])
    assert metadata["tokens_saved"] > 100
