"""Be OpenRLHF's agent: its vLLM engines sample, the label of a prompt names our task, and a rollout has one row.

Name a file with this class in `--train.agent_func_path`:

    class AgentExecutor(AtroposExecutor):
        environment = "envs.swe.environment:SWEEnv"
        options = ("--env.tasks=tasks", "--env.run_dir=runs/openrlhf")

Made for OpenRLHF 0.11.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

from openrlhf.utils.agent import AgentExecutorBase

from atropos_agent.engines.objects import ObjectServer, Sampled
from envs.trainers.clients import Clients, Made, one_row
from envs.trainers.named import task_of


class OpenRLHFEngine:
    """OpenRLHF's actor around vLLM, as an `Engine`. settings: vLLM's class of sampling settings."""

    def __init__(self, actor: Any, settings: type) -> None:
        self._actor, self._settings = actor, settings

    async def once(self, ids: list[int], params: Mapping[str, Any], session: str) -> Sampled:
        """Sample one reply."""
        settings = self._settings(**params, logprobs=0, skip_special_tokens=False)
        out = (await self._actor.generate(ids, settings)).outputs[0]
        logprobs = [found[token].logprob for token, found in zip(out.token_ids, out.logprobs or (), strict=True)]
        return Sampled(list(out.token_ids), logprobs, out.finish_reason)


class AtroposExecutor(AgentExecutorBase):  # type: ignore[misc]  # it need not be installed
    """An environment's rollout for each of OpenRLHF's samples. An infrastructure failure is retried, then raised.

    environment: as package.module:Class. options: words of its own command line."""

    environment: ClassVar[str]
    options: ClassVar[Sequence[str]] = ()

    def __init__(self) -> None:
        self._clients: Clients | None = None

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Return a rollout of the task named by `label`."""
        task = task_of(label, "label (--data.label_key)")
        if self._clients is None:
            settings = type(sampling_params)
            self._clients = Clients("openrlhf", lambda actor: partial(ObjectServer, OpenRLHFEngine(actor, settings)))
        sampling = {name: getattr(sampling_params, name) for name in ("temperature", "top_p", "top_k", "max_tokens")}
        made = await self._clients.rollout(
            *(llm_engine, self.environment, self.options, task, sampling),
            max_tokens=max_length,
            tokenizer=hf_tokenizer.name_or_path,
        )
        return make_response(prompt, label, made)


def make_response(prompt: str, label: str, made: Made) -> dict[str, Any]:
    """Return a rollout as `execute` returns it. Raises ValueError if it has several rows."""
    (first, *_), row = made[0], one_row(made[0], "OpenRLHF")
    places = [list(places) for own, places in groupby(range(len(row["mask"])), row["mask"].__getitem__) if own]
    return {
        "prompt": prompt,
        "label": label,
        "reward": float(first.score),
        "scores": float(first.score),
        "observation_tokens": row["tokens"],
        "action_ranges": [(run[0], run[-1] + 1) for run in places],
        "rollout_log_probs": row["logprobs"],
        "truncated": made[1],
        "extra_logs": {},
    }
