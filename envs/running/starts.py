"""Name the conditions of a run, and write down each start of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from atropos_agent.engines.chat import UNNAMED
from atropos_agent.engines.completions import CompletionsServer
from envs.records.disk import retry_until_space
from envs.records.provenance import (
    FILE_NAME,
    add_start,
    commit,
    digest_of,
    digest_of_model,
    digest_of_tokenizer,
    machine,
    revision_of_model,
    versions,
)
from envs.running.environment import Environment
from envs.running.waiting import retry_until_served

OPTIONS = (
    *("temperature", "top_p", "top_k", "min_p", "system_prompt", "history", "compaction", "tool_format", "tool_role"),
    *("agent", "reward", "estimator", "length_penalty", "summary_weight", "tools"),
    *("teacher_model", "teacher_top_k", "teacher_weight"),
)
"""Options among the conditions of a run; an environment need not have the last ones."""


async def conditions_of(env: Environment) -> dict[str, Any]:
    """Return the conditions of rollouts: model, tokenizer, template, and the options of sampling
    and scoring. Rollouts of a run that differ in them are no sample of one policy, or not worth the same.

    A server whose model is not named is asked for its only one. Raises ModelNotServed, NotThisServer."""
    for server in env.servers:
        if server.config.model_name in UNNAMED:
            try:
                await retry_until_served(server.connect)
            finally:
                await server.close()  # the run, which opens it again with its first request, may never begin
    options = env.config.model_dump(mode="json")
    template = [getattr(env.tokenizer, "chat_template", None), options["chat_template_kwargs"], options["fold_system"]]
    models = _model_names(env)
    return {
        **({"model": models} if models else {}),
        "tokenizer": await asyncio.to_thread(digest_of_tokenizer, env.tokenizer),  # a large vocabulary takes its time
        "template": digest_of(template),
        **{name: options[name] for name in OPTIONS if name in options},
    }


async def write_start(
    env: Environment,
    command: str,
    under: Mapping[str, Any],
    *,
    run_id: str | None = None,
    changed: Sequence[str] = (),
) -> None:
    """Write a start of the run into `run.json`, waiting while the disk is full.

    under: see `conditions_of`. changed: those that differ from the start before. Raises OSError when it can't be
    written, or the run is to stop.
    """
    path = env.run_dir / FILE_NAME
    asking = (
        server.version() if isinstance(server, CompletionsServer) else _unknown_version() for server in env.servers
    )
    programs = await asyncio.gather(*asking)

    def work() -> None:
        start = _make_start(env, command, under, changed, programs)
        record = orjson.loads(orjson.dumps(start, default=str))
        add_start(env.run_dir, run_id, env.name, env.redactor.value(record))

    await retry_until_space(path, work, lambda: env.stopping.requested, home=env.run_dir)


async def _unknown_version() -> None:
    """Stand for the version of a program that is not asked."""


def _make_start(
    env: Environment,
    command: str,
    under: Mapping[str, Any],
    changed: Sequence[str],
    programs: Sequence[str | None],
) -> dict[str, Any]:
    """Return a start, as `add_start` describes it. programs: versions of the inference servers."""
    root = next((root for server in env.servers if (root := getattr(server, "root", None))), None)
    return {
        "command": command,
        "options": env.config.model_dump(mode="json"),
        "conditions": under,
        "changed": list(changed),
        "model": {
            "name": under.get("model"),
            "root": root,
            "digest": digest_of_model(root),
            "revision": revision_of_model(root),
        },
        "tokenizer": {"name": env.config.tokenizer_name, "digest": under["tokenizer"]},
        "template": {"digest": under["template"]},
        "engines": [_engine(server, program) for server, program in zip(env.servers, programs, strict=True)],
        "seed": env.config.seed,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": sys.orig_argv,
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
    }


def _engine(server: Any, program: str | None) -> dict[str, Any]:
    config = server.config
    return {
        "url": config.base_url,
        "kind": config.server_type,
        "model": config.model_name,
        "root": getattr(server, "root", None),
        "window": getattr(server, "max_model_len", None),
        "version": program,
    }


def _model_names(env: Environment) -> str:
    """Return the names of the models; "" for an unknown one: its server lists none."""
    names = {server.config.model_name for server in env.servers}
    return "" if names & {*UNNAMED} else ", ".join(sorted(names))
