"""Random trees of requests: whatever agents do, each sampled token is in one row or counted."""

import asyncio
from copy import deepcopy
from functools import partial

import pytest
from agents import AGENTS, assert_every_token_is_accounted_for, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from native import DONE, Said, asks

REPLIES = [
    asks("one"),
    DONE,
    Said((("say", {"text": "one"}), ("say", {"text": "two", "times": 2}))),
    asks("one", thinking="hm", content="So."),
    Said(spoiled="malformed"),
    Said(),
    asks("one"),
    Said(spoiled="cut"),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "ask", "again", "cut", "away", "together", "fork", "edit", "drop", "title", "new"]
        ),
        st.integers(0, 7),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.parametrize("protocol", AGENTS)
@settings(max_examples=30)
@given(steps=STEPS, stream=st.booleans())
def test_whatever_agents_do_each_token_is_accounted_for(fitted, protocol, steps, stream):
    asyncio.run(play(fitted, partial(AGENTS[protocol], stream=stream), steps))


async def play(fitted, makes, steps):
    """Let agents that `makes` makes take steps."""
    async with opened(fitted, REPLIES * 8) as (client, engine):
        makes = partial(makes, client)
        agents = [fresh(makes, "go")]
        for kind, number in steps:
            await step(makes, engine, agents, kind, number)
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
    metadata = result.metadata["gateway"]
    assert sum(metadata["branches"].values()) == len(engine.exchanges) == len(result.steps)
    assert sum(row.turns for row in result.segments) == len(engine.exchanges) - metadata["branches"].get(
        "side call", 0
    ) - metadata["branches"].get("untaken", 0)


def fresh(makes, question):
    agent = makes()
    agent.user(question)
    return agent


def is_replys(item):
    """Whether an item of an agent's history is the model's."""
    return item.get("role") in ("assistant", "model") or item.get("type") in ("reasoning", "function_call")


def edit(item, text):
    """Change what an item of an agent's history says, in whichever protocol."""
    if "parts" in item:
        others = [part for part in item["parts"] if "text" not in part]
        for part in others:
            if "functionResponse" in part:
                part["functionResponse"]["response"] = {"output": text}
        item["parts"] = others if "functionResponse" in (others or [{}])[0] else [{"text": text}, *others]
    elif item.get("type") == "reasoning":
        item["summary"] = [{"type": "summary_text", "text": text}]
    else:
        item[next(key for key in ("content", "output", "arguments") if key in item)] = text


def drop_reply(history):
    """Take out the last reply and what comes after it. Returns whether there was one."""
    last = max((n for n, item in enumerate(history) if is_replys(item)), default=-1)
    begin = last
    while begin > 0 and is_replys(history[begin - 1]):
        begin -= 1
    del history[begin if last >= 0 else len(history) :]
    return last >= 0


async def step(makes, engine, agents, kind, number):
    agent = agents[number % len(agents)]
    match kind:
        case "ask":
            await go_on(agent, await agent.ask())
        case "again":
            await agent.ask(keep=False)
            await go_on(agent, await agent.ask())
        case "cut":
            await agent.ask(cut=40 * number, keep=False)
        case "away":
            engine.gate.clear()
            gone = asyncio.Event()
            asking = asyncio.create_task(agent.ask(keep=False, gone=gone))
            await asyncio.sleep(0)
            gone.set()
            await asking
            engine.gate.set()
            for _ in range(9):  # what is sampled is taken in
                await asyncio.sleep(0)
        case "together":
            await asyncio.gather(*(one.ask(keep=False) for one in [*agents, agent]))
        case "fork":
            other = makes()
            ends = [n for n, item in enumerate(agent.history) if not is_replys(item)]
            other.history = deepcopy(agent.history[: ends[number % len(ends)] + 1])
            other.user("another way")
            agents.append(other)
        case "edit":
            edit(agent.history[number % len(agent.history)], f"edited {number}")
        case "drop":
            agent.user("once more" if drop_reply(agent.history) else "more")
        case "title":
            title = makes(system="Give a title.", tools=())
            title.user(f"go {number}")
            await title.ask()
        case "new":
            agents.append(fresh(makes, f"task {number}"))


async def go_on(agent, reply):
    if agent.calls(reply):
        agent.results(reply)
    else:
        agent.user("and now?")
