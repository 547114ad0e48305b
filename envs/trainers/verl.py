"""Work in verl's agent loops: its prompts name our tasks, its inference servers sample, our rows are its outputs.

Name the loop in the file of `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

    - name: atropos
      _target_: envs.trainers.verl.AtroposLoop
      environment: envs.swe.environment:SWEEnv
      options: [--env.tasks=tasks, --env.run_dir=runs/verl]

A row of the dataset has the task's id in `extra_info["task"]`, beside `raw_prompt` and "atropos" as `agent_name`.
Made for verl 0.9.1.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from atropos_agent.engines.objects import ObjectServer, Sampled
from atropos_agent.tokens.experts import read_experts, write_experts
from envs.delivery.exports import verl_rows
from envs.options import EngineConfig
from envs.running.feed import Feed, feed
from envs.running.sinks import TrainerGroup
from envs.trainers.named import named, sampling_of
from envs.types import Failure, InfraError

Opened = tuple[Feed[Any, Any], AsyncExitStack]
"""A run, and its closer, kept because its loss would close the run."""


class VerlEngine:
    """verl's client of its inference servers (`LLMServerClient`), as an `Engine`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply. verl also calls a reply cut off at its limit completed."""
        asked = {**params, "logprobs": True}
        out = await self._client.generate(session, prompt_ids=ids, sampling_params=asked)
        finish = "length" if len(out.token_ids) >= params["max_tokens"] else "stop"
        if str(out.stop_reason).startswith("abort"):
            finish = "abort"
        version = out.extra_fields.get("min_global_steps", out.extra_fields.get("global_steps"))
        experts = None if out.routed_experts is None else write_experts(np.asarray(out.routed_experts))
        return Sampled(out.token_ids, out.log_probs or (), finish, version, experts)


class AtroposLoop(AgentLoopBase):  # type: ignore[misc]  # it need not be installed
    """An environment's rollout for each of verl's samples, retried and checked as ever.

    environment: as package.module:Class. options: words of its own command line."""

    _of_client: ClassVar[WeakKeyDictionary[Any, dict[str, asyncio.Task[Opened]]]] = WeakKeyDictionary()
    """Open runs, by their sampling client: verl makes a loop a sample, and reports the end of none."""

    def __init__(self, *args: Any, environment: str, options: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._environment, self._options = environment, list(options)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Return a rollout's row, or its rows if the trainer takes several. An infrastructure failure raises."""
        fed = await self._fed({name: value for name, value in sampling_params.items() if name != "logprobs"})
        most = min(int(self.rollout_config.response_length), fed.run.config.max_token_length)
        name = uuid.uuid4().hex
        given = await fed.ask(kwargs["extra_info"]["task"], members=1, name=name, max_tokens=most)
        found = list(outputs(given, int(self.rollout_config.prompt_length)))
        await fed.confirm([given.name])
        if len(found) > 1 and not self.config.trainer.get("use_v1"):
            raise ValueError(f"the rollout has {len(found)} rows, which verl takes with trainer.use_v1=True alone")
        return found if len(found) > 1 else found[0]

    async def _fed(self, sampling: Mapping[str, Any]) -> Feed[Any, Any]:
        """Return the open run for verl's client with this sampling; opened if there is none."""
        opened = self._of_client.setdefault(self.server_manager, {})
        key = repr((self._environment, self._options, sorted(sampling.items())))
        if key not in opened:
            opened[key] = asyncio.create_task(self._feed(sampling, key))
        return (await asyncio.shield(opened[key]))[0]

    async def _feed(self, sampling: Mapping[str, Any], key: str) -> Opened:
        env_cls, options = named(self._environment, self._options)
        engine = VerlEngine(self.server_manager)
        served = staticmethod(lambda config, reasoning_config=None: ObjectServer(engine, config, reasoning_config))
        mine = type(env_cls.__name__, (env_cls,), {"server_cls": served})
        root = options.env.run_dir or Path("runs") / f"verl-{env_cls.name}"
        run_dir = root / f"{hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}-{os.getpid()}"
        told = {"tokenizer_name": options.env.tokenizer_name or self.tokenizer.name_or_path, "run_dir": run_dir}
        env = mine(options.env.model_copy(update={**sampling_of(sampling), **told}), [EngineConfig(model_name="verl")])
        # Validation samples otherwise, and makes no ratios.
        training = all(
            sampling.get(name) == self.rollout_config.get(name) for name in ("temperature", "top_p", "top_k")
        )
        stack = AsyncExitStack()
        fed: Feed[Any, Any] = await stack.enter_async_context(feed(env, command="feed" if training else "process"))
        return fed, stack


def outputs(given: TrainerGroup, prompt_length: int) -> Any:
    """Yield a rollout's rows as verl's own. Raises InfraError if none equals the record, or its opening does not
    fit verl's prompts."""
    rows = given.scored.rows
    if not rows:
        raise InfraError(Failure.ROW, "; ".join(row.reason for row in given.scored.dropped))
    for row, fields in zip(rows, verl_rows(rows), strict=True):
        if (tokens := len(fields["prompt_ids"])) > prompt_length:
            raise InfraError(Failure.TASK, f"{tokens} tokens come before the first reply; raise rollout.prompt_length")
        fields.pop("uid")
        for name in ("advantages", "rollout_advantage"):
            fields["extra_fields"].pop(name)  # verl makes them, over its own group
        fields["metrics"] = AgentLoopMetrics(**fields["metrics"])
        experts = None if row.experts is None else read_experts(row.experts)
        yield AgentLoopOutput(**fields, routed_experts=experts)
