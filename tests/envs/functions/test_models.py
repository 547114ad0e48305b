"""A function as the model."""

import asyncio
import threading

import pytest

from atropos_agent.tokens.chat import read_chat
from atropos_agent.types import EngineError
from envs.functions.models import function_server
from envs.options import EngineConfig

CONFIG = EngineConfig(base_url="http://none", server_type="openai", api_key="none")


@pytest.fixture
async def served():
    servers = []

    def make(function):
        servers.append(function_server(function)(CONFIG))
        return servers[-1]

    yield make
    for server in servers:
        await server.close()


async def test_sync_and_async_functions_are_given_the_messages(served):
    async def later(messages):
        return messages[0]["content"].upper()

    for function in (later, lambda messages: messages[0]["content"].upper()):
        server = served(function)
        answer = await server.chat_completion(messages=[{"role": "user", "content": "hi"}], max_tokens=5)
        assert (read_chat(answer).text, server.sampled) == ("HI", 1)


async def test_functions_that_wait_wait_side_by_side(served):
    both = threading.Barrier(2, timeout=10)
    server = served(lambda messages: both.wait() * "" + "x")
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(server.chat_completion(messages=[]))
    assert server.sampled == 2


async def test_the_messages_are_a_copy(served):
    messages = [{"role": "user", "content": "hi"}]

    def spoils(given):
        given[0]["content"] = "spoilt"
        return "x"

    await served(spoils).chat_completion(messages=messages)
    assert messages == [{"role": "user", "content": "hi"}]


async def test_what_is_no_text_is_refused(served):
    with pytest.raises(EngineError, match="returned a int"):
        await served(lambda messages: 3).chat_completion(messages=[])
