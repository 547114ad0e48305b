"""What doctor finds, as tests ask for it."""

from envs.cli.checks import Certificate, Status
from envs.cli.doctor import examine
from envs.config import AgentEnvConfig
from envs.options import EngineConfig, Options


async def certificate(engine, folder, server_type="vllm", **env):
    env = AgentEnvConfig(tokenizer_name=folder, rollout_server_url="http://127.0.0.1:9", **env)
    config = EngineConfig(base_url=engine.url, model_name="scripted", server_type=server_type, api_key="x")
    options = Options.model_construct(env=env, openai=[config])
    return Certificate([check async for check in examine(options)])


def wrong(certificate):
    return {check.name: check.text for check in certificate.checks if check.status is Status.WRONG}
