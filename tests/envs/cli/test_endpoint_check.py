"""doctor's look at hosted models: they can be evaluated, and not trained."""

import pytest
from hosted import Hosted

from atropos_agent.engines import chat
from envs.cli.checks import Certificate, Status
from envs.cli.doctor import examine
from envs.config import AgentEnvConfig
from envs.options import EngineConfig, Options


@pytest.fixture
def hosted(httpserver, monkeypatch):
    monkeypatch.setattr(chat, "wait_exponential", lambda **_: lambda _state: 0.0)
    return Hosted(httpserver)


@pytest.mark.parametrize("protocol", ("openai", "responses", "anthropic"))
async def test_doctor_knows_that_evaluation_is_not_training(hosted, protocol):
    env = AgentEnvConfig(rollout_server_url="http://127.0.0.1:9")
    engine = EngineConfig(base_url=hosted.url, server_type=protocol, model_name="m", api_key="x")
    found = Certificate([check async for check in examine(Options.model_construct(env=env, openai=[engine]))])
    assert found.ok
    told = {check.name: (check.status, check.text) for check in found.checks}
    assert told["tool format"] == (Status.OK, "the endpoint takes tools, and the model calls one")
    assert told["training"][0] is Status.NOTE
    assert "It can be evaluated, and not trained." in found.render()


@pytest.mark.parametrize(("needed", "status"), [(True, Status.WRONG), (False, Status.NOTE)])
async def test_doctor_tells_of_an_endpoint_without_tools(hosted, monkeypatch, needed, status):
    monkeypatch.setattr(AgentEnvConfig, "needs_tools", needed)
    hosted.first.extend([(200, None, {})] * 2)  # the short request and the question
    hosted.refuses = lambda body: (400, {"error": {"message": "no tools here"}}, {})
    env = AgentEnvConfig(rollout_server_url="http://127.0.0.1:9")
    engine = EngineConfig(base_url=hosted.url, server_type="openai", model_name="m", api_key="x")
    found = [check async for check in examine(Options.model_construct(env=env, openai=[engine]))]
    (told,) = [check for check in found if check.name == "tool format"]
    assert told.status is status
    assert "no tools here; for an endpoint without tools give --env.tool_format hermes" in told.text
