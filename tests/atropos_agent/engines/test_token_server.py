"""Our servers work by token ids alone."""

import pytest

from atropos_agent.engines.scripted import ScriptedServer


@pytest.mark.parametrize("way", ["_chat_completion_wrapper", "_completion_wrapper"])
async def test_text_is_refused(tokenizer, way):
    with pytest.raises(NotImplementedError, match="token ids"):
        await getattr(ScriptedServer([], tokenizer), way)(prompt="x")


async def test_atroposlibs_own_way_in_leads_to_ours(tokenizer):
    server = ScriptedServer(["one"], tokenizer)
    assert (await server._tokens_and_logprobs_completion_wrapper(input_ids=[1], max_tokens=9))[0] == [1]
    assert await server.check_server_status_task() is None
