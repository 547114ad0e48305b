"""Whether a teacher can score the tokens of the model that is trained."""

from __future__ import annotations

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentError
from envs.cli.checks import Check, Status
from envs.config import AgentEnvConfig
from envs.running.teaching import longest_row, teacher_of


async def examine_teacher(template: ChatTemplate, env: AgentEnvConfig, policy: CompletionsServer) -> Check:
    """Check the teacher of the options: its address, its model, its tokenizer, its context window, its logprobs.

    policy: the inference server of the model that is trained."""
    try:
        async with teacher_of(env) as teacher:
            await teacher.check(template, longest_row(env, [policy]))
            server = teacher.server
    except (AgentError, ValueError) as error:
        return Check("teacher", Status.WRONG, str(error))
    text = f"{server.config.model_name} at {server.url} scores our ids"
    text += f", with its {env.teacher_top_k} likeliest tokens" if env.teacher_top_k else ""
    used = f"; tokens' advantages have {env.teacher_weight:g} times the reverse KL" if env.teacher_weight else ""
    return Check("teacher", Status.OK, text + used, {"url": server.url, "model": server.config.model_name})
