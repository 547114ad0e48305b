"""The gateway: other people's agents on our tokens.

An agent talks to an address in the protocol that it knows: OpenAI Chat Completions, OpenAI Responses or Anthropic
Messages, streamed or not. Each of its calls continues a conversation whose ids are ours, goes to the inference server
as ids, and is answered in the agent's own protocol. A rollout is a *session*, which ends as an `AgentResult` like any
other, with rows that are exactly what the inference server was given and what it sampled::

    async with Gateway() as gateway:                            # one a run; gateway.address
        async with gateway.session(route, template, tool_format, config) as session:
            client = AsyncOpenAI(base_url=session.base_url, api_key=session.api_key)
            ...                                                  # any agent, as many requests as it likes
            result = await session.result()                      # AgentResult, or AgentError: a failure of ours

`Session` by itself has no address: `await session.handle(scope, receive, send)` is the ASGI application of that one
rollout, for doors at which the connection tells whose request it is (no key is asked for). See docs/gateway.md.
"""

from atropos_agent.gateway.branches import TRAINED
from atropos_agent.gateway.server import Gateway
from atropos_agent.gateway.session import Session
from atropos_agent.types import Branch

__all__ = ["TRAINED", "Branch", "Gateway", "Session"]
