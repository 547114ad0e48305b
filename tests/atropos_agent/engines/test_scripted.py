"""The scripted server says what it was told to say, as token ids."""

import pytest

from atropos_agent.engines.scripted import ScriptedServer


async def test_replies_come_in_order_with_the_end_of_turn_and_are_kept(tokenizer):
    server = ScriptedServer(["one", "two"], tokenizer)
    for prompt, text in (([1, 2], "one"), ([3], "two")):
        seen, [ids], [logprobs], reasons = await server.tokens_and_logprobs_completion(input_ids=prompt, max_tokens=9)
        assert (seen, reasons) == (prompt, ["stop"])
        assert tokenizer.decode(ids) == f"{text}<|im_end|>"
        assert len(logprobs) == len(ids)
    assert [turn.prompt for turn in server.turns] == [[1, 2], [3]]
    with pytest.raises(LookupError, match="no reply left"):
        await server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=9)


async def test_a_function_of_the_prompt_may_reply(tokenizer):
    server = ScriptedServer(lambda prompt: str(len(prompt)), tokenizer, sample_stop=False)
    _, [ids], _, _ = await server.tokens_and_logprobs_completion(input_ids=[1, 2, 3], max_tokens=9)
    assert tokenizer.decode(ids) == "3"


async def test_a_reply_is_cut_at_the_limit(tokenizer):
    server = ScriptedServer(["one two three four"], tokenizer)
    _, [ids], _, reasons = await server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=2)
    assert (len(ids), reasons) == (2, ["length"])
