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
import os
import uuid
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1 import agent_loop_tq

from atropos_agent.engines.objects import ObjectServer, Sampled
from atropos_agent.tokens.experts import read_experts, write_experts
from envs.delivery.exports import verl_rows
from envs.options import EngineConfig
from envs.running.feed import Feed
from envs.running.sinks import TrainerGroup
from envs.trainers.named import Runs, check_rows, rollout, task_of


class VerlEngine:
    """verl's client of its inference servers (`LLMServerClient`), as an `Engine`. It keeps no client alive."""

    def __init__(self, client: Any) -> None:
        self._client = weakref.ref(client)

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply. verl also calls a reply cut off at its limit completed."""
        sampling = {**params, "logprobs": True}
        if (client := self._client()) is None:
            raise RuntimeError("verl's client is gone, and with it the trainer that asked")
        out = await client.generate(session, prompt_ids=ids, sampling_params=sampling)
        finish = "length" if len(out.token_ids) >= params["max_tokens"] else "stop"
        if str(out.stop_reason).startswith("abort"):
            finish = "abort"
        version = out.extra_fields.get("min_global_steps", out.extra_fields.get("global_steps"))
        experts = None if out.routed_experts is None else write_experts(np.asarray(out.routed_experts))
        return Sampled(out.token_ids, out.log_probs or (), finish, version, experts)


class AtroposLoop(AgentLoopBase):  # type: ignore[misc]  # it need not be installed
    """An environment's rollout for each of verl's samples, retried and checked as ever.

    environment: as package.module:Class. options: words of its own command line."""

    _runs_by_client: ClassVar[weakref.WeakKeyDictionary[Any, dict[str, Runs]]] = weakref.WeakKeyDictionary()
    """Open runs by their sampling client, environment and options: verl makes a loop a sample, and reports the end of
    none."""

    def __init__(self, *args: Any, environment: str, options: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._environment, self._options = environment, list(options)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Return a rollout's row, or its rows if the trainer takes several. An infrastructure failure raises, and so
        does a mistake in a setting, which ends the run."""
        try:
            return await self._run(sampling_params, **kwargs)
        except ValueError as error:
            if self.config.trainer.get("use_v1"):
                await end_trainer(error)
            raise

    async def _run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        fed = await self._open_run({name: value for name, value in sampling_params.items() if name != "logprobs"})
        most = min(int(self.rollout_config.response_length), fed.run.config.max_token_length)
        length = int(self.rollout_config.prompt_length)
        task, name = task_of((kwargs.get("extra_info") or {}).get("task"), 'extra_info["task"]'), uuid.uuid4().hex
        found = await rollout(fed, task, name, lambda given: list(make_outputs(given, length)), max_tokens=most)
        if len(found) > 1 and not self.config.trainer.get("use_v1"):
            raise ValueError(f"the rollout has {len(found)} rows, which verl takes with trainer.use_v1=True alone")
        return found if len(found) > 1 else found[0]

    async def _open_run(self, sampling: Mapping[str, Any]) -> Feed[Any, Any]:
        """Return the open run for verl's client with this sampling; opened if there is none."""
        client, key = self.server_manager, repr((self._environment, self._options))
        if (mine := self._runs_by_client.get(client)) is None:
            mine = self._runs_by_client[client] = {}
            weakref.finalize(client, end_runs, mine, asyncio.get_running_loop()).atexit = False
        if (runs := mine.get(key)) is None:
            # Other workers have runs of their own, and so has the trainer of an earlier client in this process.
            served, own = partial(ObjectServer, VerlEngine(client)), f"-{os.getpid()}-{uuid.uuid4().hex[:6]}"
            runs = mine[key] = Runs(self._environment, self._options, "verl", served, own=own)
        names = {"tokenizer_name": runs.options.env.tokenizer_name or self.tokenizer.name_or_path}
        # Validation samples otherwise, and makes no ratios.
        training = all(
            sampling.get(name) == self.rollout_config.get(name) for name in ("temperature", "top_p", "top_k")
        )
        return await runs.run(EngineConfig(model_name="verl"), sampling, training=training, **names)


async def end_trainer(error: ValueError) -> None:
    """End verl's V1 trainer with an error: it replaces failed groups for ever, but takes no state of a group that it
    doesn't know. Source: verl/trainer/ppo/v1/replay_buffer.py (0.9.1)."""
    tag = {"is_prompt": True, "global_steps": 0, "status": f"refused, {error}"}
    await agent_loop_tq.tq.async_kv_put(key=f"refused-{uuid.uuid4().hex}", partition_id="train", tag=tag)


def end_runs(mine: dict[str, Runs], loop: asyncio.AbstractEventLoop) -> None:
    """Close the runs of a client that is gone. May be called in any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: [runs.end() for runs in mine.values()])


def make_outputs(given: TrainerGroup, prompt_length: int) -> Any:
    """Yield a rollout's rows as verl's own. verl pads prompts and cuts none: tokens before the first reply that don't
    fit in there begin the response, untrained. Raises InfraError if no row equals the record, ValueError if turns have
    advantages of their own."""
    rows = check_rows(given.scored, "verl")
    for row, fields in zip(rows, verl_rows(rows, prompt_length), strict=True):
        extra = fields["extra_fields"]
        for name in ("advantages", "rollout_advantage"):
            extra.pop(name)  # verl makes them, over its own group
        for name in extra.keys() & {"teacher_ids", "teacher_logprobs"}:
            extra[name] = torch.tensor(extra[name])
        extra["reward_extra_info"] = {}  # its V1 trainer copies it from the last row to the others
        experts = None if row.experts is None else read_experts(row.experts)
        fields |= {"metrics": AgentLoopMetrics(**fields["metrics"]), "routed_experts": experts}
        fields.pop("uid")
        yield AgentLoopOutput(**fields)
