"""An inference server in this process that answers at once."""

from __future__ import annotations

import time
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.token_server import TokenServer


class InstantServer(TokenServer):
    """Always samples the same reply, in no time. spent: CPU seconds of this process at each request."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(APIServerConfig(model_name="instant", base_url="", server_type="vllm"))
        self.initialized = True
        self.ids, self.logprobs = ids, [-0.5] * len(ids)
        self.spent: list[float] = []

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> tuple[Any, ...]:
        self.spent.append(time.process_time())
        return kwargs["input_ids"], [list(self.ids)], [list(self.logprobs)], ["stop"]

    @property
    def turns_ms(self) -> list[float]:
        """Return the CPU time between each request and the next, in milliseconds."""
        return [1000 * (b - a) for a, b in zip(self.spent, self.spent[1:], strict=False)]
