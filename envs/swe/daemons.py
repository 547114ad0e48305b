"""Ask the Docker daemons of a run, or its cluster, before it starts, whether they meet its needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from envs.swe.config import SWEEnvConfig
from envs.swe.source import select_usable
from envs.tasks.buildable import contexts, fetch_daemon_facts, unusable_reason
from envs.types import BadTasks, Task
from sandboxes.base import SandboxError
from sandboxes.docker import PoolLimits
from sandboxes.docker.crun.availability import Obstacle, find_crun
from sandboxes.docker.daemon.client import connect
from sandboxes.e2b.options import E2BOptions
from sandboxes.e2b.server import check_server
from sandboxes.fleet import Host, read_hosts
from sandboxes.kubernetes.examine import examine
from sandboxes.kubernetes.options import PodOptions
from sandboxes.local import LocalBackend
from sandboxes.registry import load_backend, named_factory

logger = logging.getLogger(__name__)

_NOT_LOCAL = (
    "--env.sandbox local: nothing is isolated there, and the hidden tests of these tasks would run on this machine; "
    "use --env.sandbox docker"
)


def backend_options(config: SWEEnvConfig) -> Mapping[str, Any]:
    """Return the options of the sandboxes' backend, for `load_backend`."""
    warm = config.warm_sandboxes
    return {
        "hosts": config.hosts,
        "pods": config.pods if config.sandbox == "kubernetes" or config.pods != PodOptions() else None,
        "e2b": config.e2b if config.sandbox == "e2b" or config.e2b != E2BOptions() else None,
        "base_image": config.base_image,
        "pool": PoolLimits(each=warm) if warm else None,
        "runtime": config.sandbox_runtime,
        "starter": config.sandbox_starter,
    }


async def sandbox_problems(config: SWEEnvConfig) -> Sequence[Exception]:
    """Return why the sandboxes of a run can't be had, each with the remedy."""
    if problems := backend_problems(config):
        return problems
    try:
        if uses_daemons(config):
            await check_daemons(config)
        elif config.sandbox == "kubernetes" and config.workers == "process":
            return [
                ValueError(f"--env.sandbox kubernetes: {one.text}") async for one in examine(config.pods) if not one.ok
            ]
        elif config.sandbox == "e2b" and config.workers == "process":
            await check_server(config.e2b)
    except (SandboxError, ValueError) as error:
        return [error]
    return []


def backend_problems(config: SWEEnvConfig) -> Sequence[Exception]:
    """Return the options that the sandboxes' backend can't meet, each with the remedy."""
    try:
        factory = named_factory(config.sandbox, **backend_options(config))
    except ValueError as error:
        return [error]
    return [ValueError(_NOT_LOCAL)] if factory is LocalBackend else []


def uses_daemons(config: SWEEnvConfig) -> bool:
    """Tell whether this process uses Docker daemons; on a cluster each node uses its own."""
    return config.sandbox == "docker" and config.workers == "process"


async def check_daemons(config: SWEEnvConfig) -> None:
    """Check that a Docker daemon answers, of several at least one, and that all answering ones meet the options' needs.
    Raises SandboxError and ValueError with the remedy."""
    found = await asyncio.gather(*(_check(host, config) for host in _hosts(config)), return_exceptions=True)
    problems = [error for error in found if isinstance(error, BaseException)]
    for error in problems:
        if len(problems) == len(found) or not isinstance(error, SandboxError):
            raise error


async def drop_unusable(
    parts: tuple[Sequence[Task], Sequence[Task]], config: SWEEnvConfig
) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the tasks to train and to evaluate on with these sandboxes, and list the unusable ones. Raises
    BadTasks if those are refused, or a part has none left."""
    every = {task.id: task for part in parts for task in part}
    problems = await _task_objections(every, config)
    if not problems:
        return parts
    train, evaluate = ([task for task in part if task.id not in problems] for part in parts)
    none_left = (parts[0] and not train) or (parts[1] and not evaluate)
    others = [task for name, task in every.items() if name not in problems]
    select_usable(BadTasks("task", list(problems.values()), others), "refuse" if none_left else config.bad_tasks)
    return train, evaluate


def unbuildable_reasons(tasks: Mapping[str, Task], config: SWEEnvConfig) -> Mapping[str, str]:
    """Return the objections of a backend against tasks of whose Dockerfiles it makes no images, by task."""
    to_build = [(name, context) for name, task in tasks.items() for context in contexts(task, unnamed=True)]
    if not to_build:
        return {}
    backend = load_backend(config.sandbox, **backend_options(config))
    found = ((name, backend.unbuildable(context)) for name, context in to_build)
    return {name: f"task {name}: {why}" for name, why in found if why is not None}


def _hosts(config: SWEEnvConfig) -> Sequence[Host]:
    """Return the Docker hosts of a run; this machine's own has no url."""
    return [Host("")] if config.hosts is None else read_hosts(config.hosts)


async def _check(host: Host, config: SWEEnvConfig) -> None:
    """Check that a Docker daemon answers and knows the runtime, and that crun can be used if required."""
    runtime = config.sandbox_runtime
    async with connect(host.url or None, host.certificates) as docker:
        if config.sandbox_starter == "crun":
            found = find_crun(docker, await docker.system.info(), runtime)
            if isinstance(found, Obstacle):
                raise ValueError(f"--env.sandbox_starter crun: {found.why}; leave that away for the Docker daemon")
        if runtime is None or "." in runtime or "/" in runtime:  # of containerd, which need not be registered
            return
        known = sorted((await docker.system.info()).get("Runtimes") or ())
    if runtime not in known:
        raise ValueError(
            f"--env.sandbox_runtime {runtime}: the Docker daemon has none of that name; choose one of "
            f"{', '.join(known)}, or install it and name it in the daemon's configuration"
        )


async def _task_objections(tasks: Mapping[str, Task], config: SWEEnvConfig) -> Mapping[str, str]:
    """Return the objections against tasks common to every responsive Docker daemon, or of a place that builds no
    images, by task. Raises SandboxError."""
    if config.sandbox != "docker":
        return unbuildable_reasons(tasks, config)
    if not uses_daemons(config):
        return {}
    by_host: list[Mapping[str, str]] = []
    for host in _hosts(config):
        try:
            async with connect(host.url or None, host.certificates) as docker:
                known = await fetch_daemon_facts(docker, list(tasks.values()), config.base_image)
        except SandboxError as error:  # reported, or waited for, where sandboxes are made
            logger.debug("what %s can build is not known: %s", host.url or "the Docker daemon", error)
            continue
        reasons = {name: unusable_reason(task, known, config.base_image) for name, task in tasks.items()}
        by_host.append({name: why for name, why in reasons.items() if why is not None})
    return {name: why for name, why in by_host[0].items() if all(name in one for one in by_host)} if by_host else {}
