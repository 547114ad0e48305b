"""Rows sampled from a real model in float32: a second scoring of the same ids gives the same logprobs."""

from copy import deepcopy

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from engine_client import serve

from atropos_agent.cpu_engine.model import load
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.template import ChatTemplate
from envs.cli.checks import Status
from envs.cli.doctor import examine_rows
from envs.config import AgentEnvConfig

REWRITES = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + ('(last) ' if loop.last else '') + m['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.engine
@pytest.mark.parametrize("rewrites", [False, True], ids=["one segment", "a segment a turn"])
async def test_rows_agree_with_a_second_scoring_of_the_same_ids(rewrites):
    loaded = load("tiny", max_model_len=1024)
    tokenizer = deepcopy(loaded.tokenizer)
    if rewrites:
        tokenizer.chat_template = REWRITES
    server = CompletionsServer(APIServerConfig(base_url="http://engine/v1", model_name="tiny", server_type="vllm"))
    async with serve(loaded) as client:
        server._http = client
        await server.connect()
        fitted, env = FittedFormat.of("auto", ChatTemplate(tokenizer)), AgentEnvConfig(temperature=0.7)
        checks = [check async for check in examine_rows(server, fitted, env)]
    found = {check.name: check for check in checks}
    assert {name for name, check in found.items() if check.status is Status.WRONG} == set()
    assert found["logprobs"].data["mean"] < 1e-3
    assert found["logprobs"].data["max"] < 1e-2
    assert found["temperature"].status is Status.OK
