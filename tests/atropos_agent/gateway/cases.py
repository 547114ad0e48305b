"""Traffic of agents, from what has been seen of real ones: each case is one rollout.

A case gets a client, the inference server and a function that makes agents; the server says what `replies` holds.
`rows` is how many rows it makes, with a template that leaves history as it is.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import AGENTS, SCHEMAS, ChatAgent, Told
from native import DONE, HOSTILE, Said, asks

CASES, LINEAR = {}, []
TWO = Said((("say", {"text": "one"}), ("say", {"text": "two", "times": 2})))
THOUGHT = asks("one", thinking="hm", content="First.")
CLOCK = Said((("say", {"text": "now", "times": 1763884800123456789}),))
UNKNOWN = Said((("teleport", {"text": "home"}),))
BROKEN = Said(spoiled="malformed")
CUT = Said(spoiled="cut")


@dataclass(frozen=True)
class Case:
    """One rollout. branches: kinds of replies that there must be; changes: how often what is counted."""

    traffic: Any
    replies: Sequence[Said]
    rows: int = 1
    branches: dict = field(default_factory=dict)
    changes: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)


def case(name, replies, **expected):
    def kept(traffic):
        CASES[name] = Case(traffic, replies, **expected)
        return traffic

    return kept


async def work(agent, turns, change=None):
    """A whole task: ask, tell results, until there is no call. change: what the agent makes of a reply."""
    agent.user("go")
    for _ in range(turns):
        reply = await agent.ask(keep=False)
        agent.keep(change(reply) if change else reply)
        agent.results(reply)
    return reply


def changed(reply, **values):
    return {**reply, **values}


def linear(name, replies, change=None, *, kind="chat", stream=False, **options):
    async def traffic(client, engine):
        await work(AGENTS[kind](client, stream=stream, **options), len(replies), change)

    CASES[name] = Case(traffic, replies)
    LINEAR.append(name)


def rewritten(reply):
    """Arguments parsed and written anew, keys in another order."""
    for call in reply.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), separators=(",", ":"))
    return reply


def as_doubles(reply):
    """Arguments parsed and written anew by what knows no other numbers."""
    for call in reply.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"], parse_int=float))
    return reply


def wrapped(reply, key):
    for call in reply.get("tool_calls", ()):
        if not sound(call):
            call["function"]["arguments"] = json.dumps({key: call["function"]["arguments"]})
    return reply


def renamed(reply):
    for call in reply.get("tool_calls", ()):
        if not sound(call):
            call["function"] = {"name": "invalid", "arguments": json.dumps({"tool": call["function"]["name"]})}
    return reply


def unknown(reply):
    for call in reply.get("tool_calls", ()):
        if call["function"]["name"] == "teleport":
            call["function"] = {"name": "invalid", "arguments": json.dumps({"tool": "teleport"})}
    return reply


def sound(call):
    try:
        return bool(json.loads(call["function"]["arguments"]))
    except ValueError:
        return False


linear("an answer without a call", [DONE])
linear("three turns with a call", [asks("one"), asks("two"), DONE])
linear("two calls at once", [TWO, asks("three"), DONE])
linear("arguments written anew", [TWO, asks('ä\n"x"'), DONE], rewritten)
linear("thinking sent back", [THOUGHT, THOUGHT, DONE])
linear(
    "thinking not sent back",
    [THOUGHT, asks("two", content="Then."), DONE],
    lambda r: {k: v for k, v in r.items() if k != "reasoning_content"},
)
linear(
    "white space at the ends",
    [asks("one", content="First."), DONE],
    lambda r: changed(r, content=f" {r['content'] or ''}\n"),
)
linear(
    "text as a list of parts",
    [asks("one", content="First."), DONE],
    lambda r: changed(r, content=[{"type": "text", "text": r["content"] or ""}]),
)
linear("null for no text", [asks("one"), asks("two"), DONE], lambda r: changed(r, content=r["content"] or None))
linear("no key for no text", [asks("one"), asks("two"), DONE], lambda r: {k: v for k, v in r.items() if v})
linear(
    "names, markers and keys of its own",
    [asks("one", content="A."), DONE],
    lambda r: changed(r, name="bot", cache_control={"type": "ephemeral"}, annotations=[], audio=None),
)
linear("a malformed call sent back as it is", [asks("one"), BROKEN, asks("two"), DONE])
linear("a malformed call wrapped in a field", [BROKEN, asks("two"), DONE], lambda r: wrapped(r, "__raw"))
linear("a malformed call made a call of `invalid`", [BROKEN, asks("two"), DONE], renamed)
linear("an unknown tool made a call of `invalid`", [asks("one"), UNKNOWN, asks("two"), DONE], unknown)
linear("a call that was cut off", [CUT, asks("two"), DONE])
linear("large numbers as JavaScript writes them", [CLOCK, asks("two"), DONE], as_doubles)
linear("hostile arguments", [asks(HOSTILE), DONE])
linear("ten turns", [*(asks(f"n{n}") for n in range(9)), DONE])
linear("settings that are not followed", [asks("one"), DONE], temperature=0.1, top_p=0.5, seed=3)
for _kind in AGENTS:
    for _stream in (False, True):
        _how = "streamed" if _stream else "whole"
        linear(f"{_kind}, {_how}", [THOUGHT, TWO, asks("x", content="Then."), DONE], kind=_kind, stream=_stream)
linear("messages without a stream and a malformed call", [asks("a"), BROKEN], kind="messages")
linear(
    "words beside a call not sent back",
    [asks("one", content="First."), asks("two", content="Then.", thinking="hm"), DONE],
    lambda r: changed(r, content=None) if r.get("tool_calls") else r,
)
linear(
    "thinking put into the words beside a call",
    [THOUGHT, asks("two"), DONE],
    lambda r: (
        changed(r, content=f"<think>{r.get('reasoning_content', '')}</think>{r['content'] or ''}")
        if r.get("tool_calls")
        else r
    ),
)
linear(
    "items without ids",
    [TWO, asks("x"), DONE],
    lambda r: [{k: v for k, v in i.items() if k != "id"} for i in r],
    kind="responses",
)
linear(
    "reasoning items left out",
    [THOUGHT, asks("x"), DONE],
    lambda r: [i for i in r if i["type"] != "reasoning"],
    kind="responses",
)
linear(
    "thinking blocks left out",
    [THOUGHT, asks("x"), DONE],
    lambda r: changed(r, content=[b for b in r["content"] if b["type"] != "thinking"]),
    kind="messages",
)


@case("results in another order", [TWO, DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    agent.history[-2:] = agent.history[:-3:-1]
    await agent.ask()


def thinks_apart(kind, how, apart):
    """apart: makes a reply the messages as which the agent sends it back."""

    @case(f"{kind}, thinking sent back as {how}", [THOUGHT, TWO, Said(content="Well.", thinking="so"), DONE])
    async def _(client, engine):
        agent = AGENTS[kind](client)
        agent.user("go")
        for _ in range(4):
            reply = await agent.ask(keep=False)
            agent.history += apart(reply)
            agent.results(reply)


def without(reply, key):
    return {name: value for name, value in reply.items() if name != key}


def in_parts(reply, thought):
    """A reply of Messages whose thinking is a message of its own."""
    first = [thought(block) for block in reply["content"] if block["type"] == "thinking"]
    rest = [block for block in reply["content"] if block["type"] != "thinking"]
    return [{"role": "assistant", "content": part} for part in (first, rest) if part]


def as_text(block):
    return {"type": "text", "text": block["thinking"]}


thinks_apart(
    "chat",
    "a field of a message of its own",
    lambda r: [
        *([{"role": "assistant", "reasoning_content": r["reasoning_content"]}] if r.get("reasoning_content") else []),
        without(r, "reasoning_content"),
    ],
)
thinks_apart(
    "chat",
    "the text of a message of its own",
    lambda r: [
        *(
            [{"role": "assistant", "content": f"<think>\n{r['reasoning_content']}\n</think>"}]
            if r.get("reasoning_content")
            else []
        ),
        without(r, "reasoning_content"),
    ],
)
thinks_apart("messages", "a message of its own", lambda r: in_parts(r, lambda block: block))
thinks_apart("messages", "the text of a message of its own", lambda r: in_parts(r, as_text))
thinks_apart(
    "responses",
    "a message of its own",
    lambda r: [
        {"role": "assistant", "content": i["summary"][0]["text"]} if i["type"] == "reasoning" else without(i, "id")
        for i in r
    ],
)


@case("a question after results", [asks("one"), asks("two"), DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        agent.results(await agent.ask())
        agent.user("Be quick.")
    await agent.ask()


@case("a second question", [asks("one"), DONE, asks("two"), DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    await work(agent, 2)
    await work(agent, 2)


@case("a system message in mid-conversation", [asks("one"), asks("two"), DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        agent.results(await agent.ask())
        agent.system("Remember the time.")
    await agent.ask()


@case("tools in another order", [asks("one"), DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    agent.tools.reverse()
    await agent.ask()


@case("an example that nobody sampled", [asks("one"), DONE])
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("hello")
    agent.history.append({"role": "assistant", "content": "Hello! What shall I do?"})
    await work(agent, 2)


@case("a response named by its id", [THOUGHT, asks("two"), DONE])
async def _(client, engine):
    agent = AGENTS["responses"](client)
    agent.user("go")
    for _ in range(3):
        items = await agent.ask(keep=False)
        agent.history = [{"role": "system", "content": "You are an agent."}]
        agent.body["previous_response_id"] = agent.last["id"]
        agent.results(items)


@case("an argument's text told again by two agents", [asks("one"), DONE, asks("one"), DONE], rows=2)
async def _(client, engine):
    for question in ("go", "run"):
        agent = ChatAgent(client)
        agent.user(question)
        agent.results(await agent.ask())
        await agent.ask()


SUB = {"main": 3, "sub-agent": 4}


@case("two sub-agents at once", [asks("start"), *[asks("x")] * 2, DONE, DONE, asks("end"), DONE], rows=3, branches=SUB)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    reply = await agent.ask()

    async def sub(number):
        other = ChatAgent(client, system="You help.", tools=SCHEMAS[:1])
        other.user(f"part {number}")
        other.results(await other.ask())
        await other.ask()

    await asyncio.gather(sub(1), sub(2))
    agent.results(reply)
    agent.results(await agent.ask())
    await agent.ask()


@case(
    "a title call beside the first turn",
    [asks("one"), Said(content="A title"), DONE],
    branches={"main": 2, "side call": 1},
)
async def _(client, engine):
    agent, title = ChatAgent(client), ChatAgent(client, system="Give a title.", tools=())
    agent.user("go")
    title.user("go")
    reply, _ = await asyncio.gather(agent.ask(), title.ask())
    agent.results(reply)
    await agent.ask()


@case(
    "a compaction",
    [asks("one"), asks("two"), Said(content="I did one."), asks("three"), DONE],
    rows=3,
    branches={"main": 4, "summary": 1},
)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        agent.results(await agent.ask())
    summary = ChatAgent(client, tools=())
    summary.history = [*agent.history, {"role": "user", "content": "Summarise."}]
    answer = await summary.ask()
    again = ChatAgent(client)
    again.user(f"go\n\n{answer['content']}")
    again.results(await again.ask())
    await again.ask()


@case("an old result edited away", [asks("one"), asks("two"), asks("three"), DONE], rows=2, changes={"edited": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(3):
        agent.results(await agent.ask())
    agent.history[3]["content"] = "[cleared]"
    await agent.ask()


@case("an edited reply", [Said(content="Yes."), asks("two"), DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    agent.history[2]["content"] = "No."
    agent.results(await agent.ask())
    await agent.ask()


@case("edited arguments", [asks("one"), DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    agent.history[2]["tool_calls"][0]["function"]["arguments"] = '{"text": "other"}'
    await agent.ask()


@case("one of two calls dropped", [TWO, DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    del agent.history[2]["tool_calls"][1], agent.history[-1]
    await agent.ask()


@case("a dropped reply", [asks("one"), BROKEN, asks("two"), DONE], rows=2, changes={"reply dropped": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    await agent.ask(keep=False)
    agent.user("Write a sound call.")
    agent.results(await agent.ask())
    await agent.ask()


@case("a dropped reply, more said in an earlier message", [Said(), DONE], rows=2, changes={"reply dropped": 1})
async def _(client, engine):
    agent = AGENTS["messages"](client)
    agent.user("go")
    await agent.ask(keep=False)
    agent.history[-1]["content"] += "\n\nGo on."
    await agent.ask()


@case("two replies merged into one", [Said(content="One"), Said(content="Two"), DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    await agent.ask()
    agent.user("more")
    await agent.ask()
    agent.history[2:] = [{"role": "assistant", "content": "OneTwo"}]
    agent.user("and now?")
    await agent.ask()


@case(
    "asked again, and gone on from the second",
    [asks("one"), asks("two"), DONE],
    rows=2,
    branches={"main": 2, "retry": 1},
)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    await agent.ask(keep=False)
    agent.results(await agent.ask())
    await agent.ask()


@case(
    "asked again three times in the middle",
    [asks("one"), Said(), Said(), Said(), DONE],
    rows=4,
    branches={"main": 2, "retry": 3},
)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    for _ in range(4):
        await agent.ask(keep=False)


@case("two samples at once, both taken", [asks("one"), DONE, DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    await asyncio.gather(agent.ask(keep=False), agent.ask(keep=False))


@case("a branch from the middle", [asks("one"), asks("two"), DONE, DONE], rows=2, changes={"branched": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        agent.results(await agent.ask())
    await agent.ask()
    other = ChatAgent(client)
    other.history = [*agent.history[:3], {**agent.history[3], "content": "another result"}]
    await other.ask()


@case("gone while it is sampled, and asked again", [asks("one"), DONE], changes={"answer repeated": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    engine.gate.clear()
    await away(agent)
    engine.gate.set()
    agent.results(await agent.ask())
    await agent.ask()


@case("ten repeats while it is sampled", [asks("one"), DONE], changes={"answer repeated": 10})
async def _(client, engine):
    agent = ChatAgent(client, stream=True)
    agent.user("go")
    engine.gate.clear()
    for _ in range(10):
        await away(agent)
    engine.gate.set()
    agent.results(await agent.ask())
    await agent.ask()


async def away(agent):
    """Ask, and go away before the answer comes. On a busy machine requests wait for the rollout's share first: one that
    has gone by then is none."""
    await asyncio.sleep(agent.client.session.share.wait_s())
    gone = asyncio.Event()
    asking = asyncio.create_task(agent.ask(gone=gone))
    for _ in range(5):
        await asyncio.sleep(0)
    gone.set()
    assert await asking is None


def cuts(kind, stream, at):
    @case(
        f"cut at byte {at} of {kind}{', streamed' if stream else ''}, and asked again",
        [asks("one"), DONE],
        changes={"answer repeated": 1},
    )
    async def _(client, engine):
        agent = AGENTS[kind](client, stream=stream)
        agent.user("go")
        assert await agent.ask(cut=at) is None
        agent.stream = False  # as Claude Code does
        agent.results(await agent.ask())
        await agent.ask()


for _kind in AGENTS:
    for _at in (0, 1, 150):
        cuts(_kind, True, _at)
cuts("chat", False, 0)
cuts("chat", False, 20)


@case(
    "cut after a reply that the agent tells twice, and asked again",
    [asks("one"), asks("two"), DONE],
    rows=2,
    changes={"answer repeated": 1, "edited": 1},
)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    reply = await agent.ask(keep=False)
    for result in ("stopped half-way", "done"):  # what it ran before it saw that its answer was cut, and again
        agent.keep(reply)
        agent.results(reply, result)
    assert await agent.ask(cut=0) is None
    agent.results(await agent.ask())
    await agent.ask()


@case("the last bytes not read, as it turns out", [asks("one"), DONE], changes={"answer repeated": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    await agent.ask(keep=False)
    client.untaken()
    agent.results(await agent.ask())
    await agent.ask()


@case("never asked for again", [asks("one"), DONE], branches={"main": 1, "untaken": 1})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask())
    assert await agent.ask(cut=0) is None


@case("cut by its own limit, and asked with a larger one", [asks("a long text to write"), asks("one"), DONE], rows=2)
async def _(client, engine):
    agent = ChatAgent(client, max_tokens=8)
    agent.user("go")
    await agent.ask(keep=False)
    agent.body["max_tokens"] = 1000
    agent.results(await agent.ask())
    await agent.ask()


@case("the end of the turns", [asks("one"), asks("two")], options={"max_steps": 2})
async def _(client, engine):
    await too_long(client, 2)


@case("the end of the tokens", [asks("one" * 200)], options={"max_total_tokens": 900})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask(), "x y " * 500)
    try:
        await agent.ask()
    except Told as error:
        assert error.body["error"]["code"] == "context_length_exceeded"
    else:
        raise AssertionError("it was answered")


async def too_long(client, turns):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(turns):
        agent.results(await agent.ask())
    for _ in range(3):
        try:
            await agent.ask()
        except Told as error:
            assert error.status == 400
        else:
            raise AssertionError("it was answered")


@case("too long, and compacted", [asks("one" * 100), asks("two"), DONE], rows=2, options={"max_total_tokens": 1100})
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    agent.results(await agent.ask(), "x y " * 600)
    try:
        await agent.ask()
    except Told as error:
        assert error.status == 400
    agent = ChatAgent(client)
    agent.user("go on: I have read it")
    agent.results(await agent.ask())
    await agent.ask()


@case("another tool in mid-conversation", [asks("one"), asks("two"), DONE], rows=2, branches={"main": 3})
async def _(client, engine):
    agent = ChatAgent(client, tools=SCHEMAS[:1])
    agent.user("go")
    agent.results(await agent.ask())
    agent.tools = list(SCHEMAS)
    agent.results(await agent.ask())
    await agent.ask()


@case("a stop string", [Said(content="Thought: look\nObservation: none"), DONE])
async def _(client, engine):
    agent = ChatAgent(client, stop=["Observation:"])
    agent.user("go")
    reply = await agent.ask()
    assert reply["content"] == "Thought: look"
    assert engine.options[0]["stop"] == ["Observation:"]
    agent.user("Observation: it is there")
    await agent.ask()


@case("everything asked twice", [asks("one"), asks("one"), asks("two"), asks("two"), DONE, DONE], rows=4)
async def _(client, engine):
    agent = ChatAgent(client)
    agent.user("go")
    for _ in range(2):
        await agent.ask(keep=False)
        agent.results(await agent.ask())
    await agent.ask(keep=False)
    await agent.ask()
