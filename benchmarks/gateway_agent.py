"""The agent of `benchmarks/gateway.py`: calls a tool at every turn, and tells the whole history again.

    python benchmarks/gateway_agent.py URL LENGTH TURNS < KEYS

One conversation for each key in the JSON list on standard input; results have LENGTH characters.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx

WORDS = "the quick brown fox jumps over the lazy dog and then some more "
OPENING = WORDS * 300
"""About 4000 tokens."""


async def act(url: str, length: str, turns: str) -> None:
    """Be an agent for each key on standard input."""
    output = (WORDS * (int(length) // len(WORDS) + 1))[: int(length)]
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=600) as client:
        await asyncio.gather(*(_work(client, url, key, output, int(turns)) for key in json.load(sys.stdin)))


async def _work(client: httpx.AsyncClient, url: str, key: str, output: str, turns: int) -> None:
    parameters = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": "look", "description": "Look around.", "parameters": parameters}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": OPENING}]
    for _ in range(turns):
        body = {"model": "m", "messages": messages, "tools": [tool]}
        headers = {"authorization": f"Bearer {key}"}
        answer = await client.post(f"{url}/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        message = answer.json()["choices"][0]["message"]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": output} for call in message["tool_calls"]]


if __name__ == "__main__":
    asyncio.run(act(*sys.argv[1:]))
