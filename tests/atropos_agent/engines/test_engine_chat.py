"""A plain OpenAI-compatible endpoint as the model."""

from atropos_agent.engines.protocols import open_server
from atropos_agent.tokens.chat import read_chat
from envs.options import EngineConfig


async def test_replies_are_counted_and_carry_no_ids(httpserver):
    choice = {"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    httpserver.expect_request("/v1/chat/completions").respond_with_json(answer)
    config = EngineConfig(base_url=httpserver.url_for("/v1"), server_type="openai", model_name="m", api_key="x")
    async with open_server(config) as server:
        completion = read_chat(await server.chat_completion(messages=[{"role": "user", "content": "2 + 2?"}]))
        assert (completion.text, completion.ids, server.sampled) == ("four", (), 1)
        assert await server.load() is None
