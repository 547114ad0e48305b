"""Whether a hosted model can be evaluated: it gives no token ids, so that nothing can be trained on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from atropos_agent.engines.chat import ChatServer
from atropos_agent.engines.replies import check_chat_answer
from atropos_agent.types import AgentError
from envs.cli.checks import Check, Status
from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from tools import Tool, calculator

TRAINING = "training"
"""The name of the check whether rows can be made at all."""
_QUESTION = [{"role": "user", "content": "What is 1234 * 5678? Use the calculator."}]


async def examine_endpoint(server: ChatServer, config: EngineConfig, env: AgentEnvConfig) -> AsyncIterator[Check]:
    """Check an endpoint for messages: key and model, its use of a tool, and the options of evaluations."""
    place = f"{server.url} ({config.server_type})"
    try:
        await server.connect()
        sampling = {**env.sampling(evaluating=True), "max_tokens": env.max_reply_tokens}
        sampling = {name: value for name, value in sampling.items() if value or name == "temperature"}
        native = {"tools": [Tool.of(calculator).schema]} if env.tool_format == "auto" and server.takes_tools else {}
        reply = check_chat_answer(await server.chat_completion(messages=_QUESTION, **sampling, **native))
    except AgentError as error:
        yield Check("inference server", Status.WRONG, str(error))
        return
    yield Check("inference server", Status.OK, f"{server.config.model_name} at {place} answers: {server.usage}")
    if native:
        try:
            await server.check_tools()
        except AgentError as error:
            yield Check("tool format", Status.WRONG if env.needs_tools else Status.NOTE, str(error))
            return
        called = bool((reply.message or {}).get("tool_calls"))
        text = "the endpoint takes tools, and the model calls one" if called else "the model was asked to call one"
        text += "" if called else ", and did not"
        yield Check("tool format", Status.OK if called else Status.NOTE, text)
    left = f"the model takes no {', '.join(server.left_out)}: its own default holds" if server.left_out else ""
    yield Check("sampling", Status.NOTE if left else Status.OK, left or "the model takes the options of evaluations")
    text = "no token ids and no logprobs: evaluate and process work, serve refuses"
    yield Check(TRAINING, Status.NOTE, text)
