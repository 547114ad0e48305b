"""What a turn through the gateway costs: our CPU, beside our own agent's, against an engine that answers at once.

    python benchmarks/gateway.py [--turns 128] [--kilobytes 64] [--conversations 256]

The agent is another process, which speaks Chat Completions over loopback: its CPU is not counted, reading its requests
is. Four parts: turns at 4000 tokens of history, through the gateway and by our own agent; what of their prompts the
server's prefix cache holds; a conversation whose results are long, beside what rendering the whole history at every
turn costs; many conversations at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gateway_agent import OPENING, WORDS
from instant_server import InstantServer
from transformers import AutoTokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.cpu_engine.model import locate
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway import Gateway
from atropos_agent.tokens.record import problems
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentResult
from tools import ToolRegistry

BLOCK = 16
"""Tokens of a block of a prefix cache."""
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


class CachingServer(InstantServer):
    """Counts what a prefix cache of whole blocks, as vLLM's, holds of its prompts. hits, tokens: so far."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(ids)
        self.hits = self.tokens = 0
        self._known: set[int] = set()

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> tuple[Any, ...]:
        prompt = kwargs["input_ids"]
        found = [known in self._known for known in _blocks(prompt)]
        self.hits += BLOCK * (found.index(False) if False in found else len(found))
        self.tokens += len(prompt)
        self._known.update(_blocks([*prompt, *self.ids]))
        return await super().tokens_and_logprobs_completion(**kwargs)


def _blocks(ids: Sequence[int]) -> Iterator[int]:
    """Yield what names each whole block of ids and all before it."""
    name = 0
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        name = hash((name, *ids[end - BLOCK : end]))
        yield name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=128)
    parser.add_argument("--kilobytes", type=int, default=64, help="of each result in the long conversation")
    parser.add_argument("--conversations", type=int, default=256)
    options = parser.parse_args()
    asyncio.run(measure(options.turns, options.kilobytes, options.conversations))


async def measure(turns: int, kilobytes: int, conversations: int) -> None:
    template = ChatTemplate(AutoTokenizer.from_pretrained(locate("tiny")))
    fitted = FittedFormat.of("auto", template)
    if template.close_id is None:
        raise RuntimeError("the tiny model's template has an end of turn")
    ids = [*template.encode(CALL, continues=True), template.close_id]
    short, long = WORDS * 4, (WORDS * (kilobytes * 1024 // len(WORDS) + 1))[: kilobytes * 1024]

    ours, theirs = InstantServer(ids), InstantServer(ids)
    await own_agent(template, fitted, ours, short, 64)
    await through_gateway(template, fitted, theirs, short, 64)
    for when, turned in ("first 8 turns, from 4000 tokens on", slice(8)), ("63 turns, to 9000 tokens", slice(63)):
        own_ms, ms = (statistics.median(one.turns_ms[turned]) for one in (ours, theirs))
        print(f"{when}, median: own agent {own_ms:.2f} ms of CPU a turn, gateway {ms:.2f}: {ms - own_ms:.2f} more")

    cached, known = CachingServer(ids), CachingServer(ids)
    await own_agent(template, fitted, cached, short, 64)
    await through_gateway(template, fitted, known, short, 64)
    print(f"prefix cache: own agent {cached.hits} of {cached.tokens} tokens, gateway {known.hits} of {known.tokens}")

    server = InstantServer(ids)
    await own_agent(template, fitted, server, long, turns)
    own = server.turns_ms
    server = InstantServer(ids)
    result = await through_gateway(template, fitted, server, long, turns)
    many = server.turns_ms
    print(f"{turns} turns with results of {kilobytes} KB, {len(result.segments)} row(s), ms of CPU a turn:")
    for end in sorted({8, 16, 32, turns // 2, turns}):
        if end > turns:
            continue
        window = slice(max(0, end - 8), end - 1)
        rendered = f"{render_ms(template, long, end):8.1f}" if end <= 32 else "       -"
        print(
            f"  up to turn {end:3d}: own agent {statistics.median(own[window]):7.1f}, "
            f"gateway {statistics.median(many[window]):7.1f}, rendering all of it {rendered}"
        )

    await many_at_once(template, fitted, ids, short, conversations)


async def own_agent(template: ChatTemplate, fitted: FittedFormat, server: InstantServer, text: str, turns: int) -> None:
    async def look() -> str:
        """Look around."""
        return text

    agent = AtroposAgent(
        server, ToolRegistry([look]), AgentConfig(max_steps=turns), template=template, tool_format=fitted
    )
    await agent.run(OPENING)


async def through_gateway(
    template: ChatTemplate, fitted: FittedFormat, server: InstantServer, text: str, turns: int
) -> AgentResult:
    async with Gateway() as gateway, gateway.session(server, template, fitted, AgentConfig(max_steps=turns)) as session:
        await run_agent([session.api_key], session.base_url, len(text), turns)
        result = await session.result()
    assert problems(result.segments, result.record) == [None] * len(result.segments)
    return result


async def many_at_once(
    template: ChatTemplate, fitted: FittedFormat, ids: list[int], text: str, conversations: int
) -> None:
    turns = 8
    async with Gateway() as gateway, AsyncExitStack() as opened:
        sessions = [
            await opened.enter_async_context(gateway.session(InstantServer(ids), template, fitted))
            for _ in range(conversations)
        ]
        began, spent = time.monotonic(), time.process_time()
        await run_agent([session.api_key for session in sessions], sessions[0].base_url, len(text), turns)
        seconds, spent = time.monotonic() - began, time.process_time() - spent
        results = [await session.result() for session in sessions]
    assert all(len(result.segments) == 1 and result.segments[0].turns == turns for result in results)
    each = 1000 * spent / (conversations * turns)
    print(f"{conversations} conversations at once, {turns} turns each: {seconds:.1f} s, {each:.2f} ms of CPU a turn")


def render_ms(template: ChatTemplate, text: str, turns: int) -> float:
    """Return the CPU time of rendering and encoding a whole history, in milliseconds."""
    messages = [{"role": "user", "content": OPENING}]
    for _ in range(turns - 1):
        messages += [{"role": "assistant", "content": CALL}, {"role": "user", "content": text}]
    began = time.process_time()
    template.encode(template.render(messages))
    return 1000 * (time.process_time() - began)


async def run_agent(keys: Sequence[str], url: str, length: int, turns: int) -> None:
    """Run the agent's process to its end."""
    script = Path(__file__).with_name("gateway_agent.py")
    arguments = [sys.executable, str(script), url, str(length), str(turns)]
    agent = await asyncio.create_subprocess_exec(*arguments, stdin=asyncio.subprocess.PIPE)
    await agent.communicate(json.dumps(keys).encode())
    assert agent.returncode == 0


if __name__ == "__main__":
    main()
