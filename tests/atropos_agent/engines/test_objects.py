"""An inference server that is a Python object: its replies are checked and asked for again like any other's."""

import numpy as np
import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.errors import EngineDown
from atropos_agent.engines.objects import ObjectServer, Sampled
from atropos_agent.engines.route import Route
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, TokenMismatch
from envs.options import EngineConfig


class Engine:
    """Answers with these, one after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def once(self, ids, params, session):
        self.requests.append((ids, dict(params), session))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run(engine, tokenizer, **config):
    server = ObjectServer(engine, EngineConfig(model_name="m"))
    await server.connect()
    agent = AtroposAgent(Route([server]), config=AgentConfig(**config), template=ChatTemplate(tokenizer))
    return await agent.run("Go.")


async def test_its_ids_logprobs_and_versions_are_the_rows(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    ids = [*template.encode("Done."), template.close_id]
    engine = Engine(EngineDown("not yet"), Sampled([], [], "abort"), Sampled(ids, [-0.5] * len(ids), "stop", version=7))
    result = await run(engine, smollm2_tokenizer, max_tokens=9, top_k=20, min_p=0.1)
    (row,) = result.segments
    assert list(row.tokens[-len(ids) :]) == ids
    assert (row.policy_version, row.trained) == (7, len(ids))
    prompts, params, sessions = zip(*engine.requests, strict=True)
    assert len({tuple(prompt) for prompt in prompts}) == len(set(sessions)) == 1
    assert sessions[0]
    assert params[0] == {"max_tokens": 9, "temperature": 1.0, "top_p": 1.0, "top_k": 20, "min_p": 0.1}


async def test_its_ids_and_logprobs_may_be_arrays(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    ids = [*template.encode("Done."), template.close_id]
    result = await run(Engine(Sampled(np.array(ids), np.full(len(ids), -0.5, "f4"), "stop")), smollm2_tokenizer)
    (row,) = result.segments
    assert (list(row.tokens[-len(ids) :]), set(map(type, row.tokens))) == (ids, {int})
    assert set(map(type, row.logprobs)) == {float}


async def test_a_reply_that_contradicts_itself_is_refused(smollm2_tokenizer):
    with pytest.raises(TokenMismatch, match="2 ids but 1 logprobs"):
        await run(Engine(Sampled([5, 6], [-0.5], "stop")), smollm2_tokenizer)
