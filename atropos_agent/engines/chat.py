"""A plain OpenAI-compatible endpoint as the model."""

from __future__ import annotations

from typing import Any

from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig

from atropos_agent.engines.load import Load


class ChatServer(OpenAIServer):  # type: ignore[misc]  # atroposlib is untyped
    """A plain OpenAI-compatible endpoint: messages in, text out, no token ids and so no rows."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        # Its health check is a task that asks for ever and tells nobody.
        super().__init__(config.model_copy(update={"health_check": False}), reasoning_config)
        self.url = str(config.base_url)
        self.sampled = 0
        """Replies that it has ever given us."""

    async def chat_completion(self, **kwargs: Any) -> Any:
        """See `OpenAIServer`."""
        answer = await super().chat_completion(**kwargs)
        self.sampled += 1
        return answer

    async def load(self) -> Load | None:
        """Return nothing: such a server does not say how busy it is."""
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self.openai.close()
