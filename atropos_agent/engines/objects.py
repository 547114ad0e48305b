"""Sample from inference servers that are Python objects: a trainer's own client, an engine in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Protocol

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig

from atropos_agent.engines.completions import Answer, CompletionsServer
from atropos_agent.engines.load import Load
from atropos_agent.engines.replies import check_ended


@dataclass(frozen=True, slots=True)
class Sampled:
    """A reply as such an object samples it.

    ids, logprobs: of equal length, the token that ended the reply included. finish_reason: "stop", "length", "abort", …
    version: of the oldest weights that had a part in it; None if not known. experts: as in `Answer`."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str
    version: int | None = None
    experts: str | None = None


class Engine(Protocol):
    """An inference server that is a Python object."""

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply to a prompt, in one try.

        params: `max_tokens`, `temperature`, `top_p`, and `top_k`, `min_p` and `stop` if used.
        session: names the rollout, whose requests share a prefix.
        Raises EngineDown if another try may succeed, ContextOverflow, EngineError; other errors fail the rollout."""
        ...


class ObjectServer(CompletionsServer):
    """An `Engine` as one of an environment's inference servers: `server_cls` of the environment returns it.

    Replies are checked, retried and counted like those over HTTP."""

    def __init__(
        self, engine: Engine, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None
    ) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self._engine = engine

    async def connect(self) -> None:
        """Do nothing: the object is there."""

    async def alive(self) -> bool:
        return True

    async def version(self) -> str | None:
        return None

    async def load(self) -> Load | None:
        return None

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> Answer:
        prompt, session = kwargs.pop("input_ids"), kwargs.pop("session", None)
        params = {name: value for name, value in kwargs.items() if value is not None and name != "n"}
        sampled = await self._engine.once(list(prompt), params, "" if session is None else session.id)
        check_ended(sampled.finish_reason, lost_tokens=len(sampled.ids))
        ids = [index(i) for i in sampled.ids]  # an array's are no int
        answer = Answer((prompt, [ids], [list(sampled.logprobs)], [sampled.finish_reason]))
        answer.versions, answer.experts = [sampled.version], [sampled.experts]
        return answer
