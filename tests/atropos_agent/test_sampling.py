"""One way to sample, for our own loop and for others: several requests at once."""

import asyncio
import time

import pytest
from native_families import fitted_family
from tenacity import retry, stop_after_attempt
from truth import PlaybackServer, Turn

from atropos_agent import sampling
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.conversation import Conversation
from atropos_agent.types import AgentConfig, EngineError


@pytest.fixture
def template(smollm2_tokenizer):
    return fitted_family(smollm2_tokenizer, None, "smollm2").template


def conversation(template, text):
    return Conversation(template, [{"role": "user", "content": text}])


class Slow(PlaybackServer):
    """Takes its time; has lost tokens before each answer."""

    lost_tokens = 0

    async def tokens_and_logprobs_completion(self, **kwargs):
        await asyncio.sleep(0.2)
        self.lost_tokens += 5
        return await super().tokens_and_logprobs_completion(**kwargs)


async def test_time_and_losses_of_requests_side_by_side_are_counted_once(template, monkeypatch):
    monkeypatch.setattr(sampling, "FAIR_REPLY_S", 0.0)
    monkeypatch.setattr(sampling, "FAIR_TOKENS_PER_S", 1e9)
    server = Slow([Turn([template.close_id]) for _ in range(4)])
    sampler = Sampler(server, AgentConfig(max_seconds=100), template, "train")
    began, deadline = time.monotonic(), sampler.deadline
    await asyncio.gather(*(sampler.sample(conversation(template, f"go {n}"), 5) for n in range(4)))
    assert 0.19 < sampler.deadline - deadline <= time.monotonic() - began
    assert sampler.counts.refused_tokens == 20
    assert [exchange.extends for exchange in sampler.record.exchanges] == [False] * 4


async def test_what_atroposlibs_servers_wrap_in_attempts_is_told_as_it_is(template):
    class Wrapping(PlaybackServer):
        @retry(stop=stop_after_attempt(2))
        @retry(stop=stop_after_attempt(2))
        async def tokens_and_logprobs_completion(self, **_):
            raise ValueError("no such model")

    sampler = Sampler(Wrapping([]), AgentConfig(), template, "train")
    with pytest.raises(EngineError, match=r"^ValueError: no such model$"):
        await sampler.sample(conversation(template, "go"), 5)


async def test_strings_that_end_a_reply_are_the_rollouts_and_the_requests(template):
    seen = []

    class Seeing(PlaybackServer):
        async def tokens_and_logprobs_completion(self, **kwargs):
            seen.append(kwargs["stop"])
            return await super().tokens_and_logprobs_completion(**kwargs)

    sampler = Sampler(Seeing([Turn([template.close_id])]), AgentConfig(stop=("a",)), template, "train")
    await sampler.sample(conversation(template, "go"), 5, stop=("b",))
    assert seen == [["a", "b"]]


async def test_a_reply_that_was_cut_off_early_is_the_servers_failure(template):
    server = PlaybackServer([Turn([template.close_id], "length")])
    server.max_model_len = 1000
    sampler = Sampler(server, AgentConfig(), template, "train")
    with pytest.raises(EngineError, match="cut a reply off"):
        await sampler.sample(conversation(template, "go"), 5)
    assert sampler.counts.refused_tokens == 1
    assert sampler.record.exchanges == []


async def test_the_tokens_of_an_answer_that_came_as_its_task_was_cancelled_are_counted(template):
    sampler = Sampler(PlaybackServer([Turn([template.close_id])]), AgentConfig(), template, "train")
    asking = asyncio.create_task(sampler.sample(conversation(template, "go"), 5))
    await asyncio.sleep(0)  # it waits for its request
    await asyncio.sleep(0)  # which is answered, and nobody has read it yet
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (sampler.counts.refused_tokens, sampler.counts.abandoned_requests) == (1, 0)
    assert not sampler.record.exchanges
