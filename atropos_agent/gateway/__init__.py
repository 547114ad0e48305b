"""The gateway: other people's agents on our tokens.

An agent talks to an address in the protocol it knows: OpenAI Chat Completions, OpenAI Responses or Anthropic
Messages, streamed or not. Each of its calls continues a conversation whose ids are ours, goes to the inference server
as ids, and is answered in the agent's own protocol. A rollout is a *session*. It ends as an `AgentResult` like any
other, and its rows hold exactly the ids given to the inference server and the ids sampled by it::

    async with Gateway() as gateway:                            # one a run; gateway.address
        async with gateway.session(route, template, tool_format, config) as session:
            client = AsyncOpenAI(base_url=session.base_url, api_key=session.api_key)
            ...                                                  # any agent, as many requests as it likes
            result = await session.result()                      # AgentResult, or AgentError: a failure of ours

`Session` by itself has no address: `await session.handle(scope, receive, send)` is the ASGI application of this one
rollout. Use it if the connection already identifies the rollout (it needs no key). See docs/gateway.md.
"""

from atropos_agent.gateway.branches import TRAINED
from atropos_agent.gateway.server import Gateway
from atropos_agent.gateway.session import Session
from atropos_agent.types import Branch

__all__ = ["TRAINED", "Branch", "Gateway", "Session"]
