"""The checks of `doctor` beside inference server and trainer API: tasks, Docker daemon or cluster, images, disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.protocols import open_server
from atropos_agent.fitted import FittedFormat
from atropos_agent.types import EngineError
from envs.agents.examine import examine_agent
from envs.agents.facts import ForeignAgent
from envs.agents.naming import find_agent
from envs.cli.checks import Check, Status
from envs.judging.specs import agent_spec
from envs.options import EngineConfig, UsageError
from envs.options.tokenizer import load_tokenizer
from envs.records.redaction import Redactor
from envs.running.mix import Mix
from envs.running.workers import RAY_CLUSTER, check_command_line, check_workers
from envs.swe.config import SWEEnvConfig
from envs.swe.daemons import backend_options, backend_problems, unbuildable_reasons
from envs.swe.environment import SWEEnv
from envs.swe.nodes import examine_nodes, machine_check
from envs.tasks.buildable import fetch_daemon_facts, unusable_reason
from envs.types import BadTask, Task
from sandboxes.base import SandboxError, SandboxTimeout
from sandboxes.docker.crun.availability import Obstacle, find_crun
from sandboxes.docker.daemon.client import connect
from sandboxes.fleet import FleetBackend, measure, read_hosts
from sandboxes.kubernetes.examine import examine
from sandboxes.plurals import plural
from sandboxes.registry import load_backend

GIB = 2**30
ROOM_S = 60.0
"""How long a look waits for room in a cluster."""
LOOK_S = 120.0
"""How long the look at another backend may take in all."""


async def surroundings(config: SWEEnvConfig, engines: Sequence[EngineConfig] = ()) -> AsyncIterator[Check]:
    """Check tasks, the backend of the sandboxes with what it needs, disk space, and an agent that isn't ours."""
    try:
        train, evaluate = SWEEnv.load_tasks(config)
    except BadTask as error:
        yield Check("tasks", Status.WRONG, str(error))
        return
    count = {"train": len(train), "evaluate": len(evaluate)}
    yield Check("tasks", Status.OK, f"{len(train)} to train on, {len(evaluate)} to evaluate on", count)
    if problems := backend_problems(config):
        for problem in problems:
            yield Check("sandboxes", Status.WRONG, str(problem))
        return
    if config.sandbox == "docker" and (config.hosts or config.workers == "ray"):
        task = next((task for task in train if not task.steps), train[0])
        async for check in _check_hosts(config, task) if config.hosts else _check_nodes(config, engines, task):
            yield check
        yield _check_disk(config)
        return
    checks = (
        _check_docker(config, train, evaluate)
        if config.sandbox == "docker"
        else _check_other_backend(config, train, evaluate)
    )
    opened = False
    async for check in checks:
        opened |= check.name == "sandboxes" and check.status is Status.OK
        yield check
    for agent in (find_agent(name) for name in Mix.of(config.agent).names):
        if opened and isinstance(agent, ForeignAgent) and engines:
            async for check in _check_agent(agent, config, engines[0], train[0]):
                yield check


async def _check_docker(config: SWEEnvConfig, train: Sequence[Task], evaluate: Sequence[Task]) -> AsyncIterator[Check]:
    """Check the Docker daemon, its starter, the tasks' images, disk space."""
    try:
        async with connect() as docker:
            info = await docker.system.info()
            crun = find_crun(docker, info, config.sandbox_runtime)
            here = {tag for image in await docker.images.list() for tag in image.get("RepoTags") or ()}
            every = list({task.id: task for task in (*train, *evaluate)}.values())
            known = await fetch_daemon_facts(docker, every, config.base_image)
    except (SandboxError, OSError) as error:
        yield Check("sandboxes", Status.WRONG, str(error))
        return
    yield Check(
        "sandboxes",
        Status.OK,
        f"Docker {info['ServerVersion']}, {info['NCPU']} CPUs, {info['MemTotal'] / GIB:.0f} GiB",
        {"version": info["ServerVersion"], "cpus": info["NCPU"], "memory": info["MemTotal"]},
    )
    yield _check_starter(config, crun)
    yield _check_images(train, here)
    if bad := [why for task in every if (why := unusable_reason(task, known, config.base_image)) is not None]:
        yield _check_unusable(bad, len(every), config)
    yield _check_disk(config, Path(info.get("DockerRootDir") or "/"))


async def _check_other_backend(
    config: SWEEnvConfig, train: Sequence[Task], evaluate: Sequence[Task]
) -> AsyncIterator[Check]:
    """Check a cluster's rights and guards, or another backend, each by a sandbox of a task's image."""
    if config.sandbox == "kubernetes":
        found = [one async for one in examine(config.pods)]
        for one in found:
            yield Check(one.name, Status.OK if one.ok else Status.WRONG, one.text)
        if not all(one.ok for one in found):
            return
    try:
        async with asyncio.timeout(LOOK_S):
            check = await _check_sandbox(config, next((task for task in train if task.image), train[0]))
    except TimeoutError:
        check = Check("sandboxes", Status.NOTE, f"none ran a command within {LOOK_S:g} s; this look waits no longer")
    yield check
    every = {task.id: task for task in (*train, *evaluate)}
    if check.status is not Status.WRONG and (bad := unbuildable_reasons(every, config)):
        yield _check_unusable(list(bad.values()), len(every), config)
    yield _check_disk(config)


async def _check_sandbox(config: SWEEnvConfig, task: Task) -> Check:
    """Open a sandbox of a task's image, and run a command in it."""
    options = dict(backend_options(config))
    if config.sandbox == "kubernetes":
        options["pods"] = config.pods.model_copy(update={"room_timeout_s": min(config.pods.room_timeout_s, ROOM_S)})
    try:
        async with load_backend(config.sandbox, **options) as backend:
            image = await backend.ensure_image(task.image, task.context)
            began = time.perf_counter()
            async with backend.open(agent_spec(task, image)) as box:
                ran = await box.exec("true")
                took = time.perf_counter() - began
    except SandboxTimeout as error:
        return Check("sandboxes", Status.NOTE, f"none was opened for now: {error}")
    except TimeoutError:
        raise
    except (SandboxError, ValueError, OSError) as error:
        return Check("sandboxes", Status.WRONG, str(error))
    if not ran.ok:
        return Check("sandboxes", Status.WRONG, f"`true` ended with {ran.exit_code} in {image}: {ran.output}")
    return Check(
        "sandboxes", Status.OK, f"the first command in one of {image} ended after {took:.1f} s", {"first_s": took}
    )


def _check_images(tasks: Sequence[Task], here: Collection[str]) -> Check:
    """Return the check of the tasks' named images: some may be missing at the Docker daemon. here: those present."""
    wanted = {task.image for task in tasks if task.image}
    missing = sorted(name for name in wanted if name not in here and f"{name}:latest" not in here)
    if missing:
        text = f"{len(missing)} are not here and will be pulled: {', '.join(missing[:3])}"
        return Check("images", Status.NOTE, text, {"missing": missing})
    built = sum(task.context is not None for task in tasks)
    return Check("images", Status.OK, f"{len(wanted)} named and here, {built} built from the tasks' Dockerfiles")


def _check_unusable(bad: Sequence[str], tasks: int, config: SWEEnvConfig) -> Check:
    """Report the unusable ones of so many tasks."""
    status = Status.NOTE if config.bad_tasks == "skip" and len(bad) < tasks else Status.WRONG
    text = f"{len(bad)} of {plural(tasks, 'task')} can't be used here: {bad[0]}"
    return Check("Dockerfiles", status, text, {"bad": list(bad)})


async def _check_agent(
    agent: ForeignAgent, config: SWEEnvConfig, engine: EngineConfig, task: Task
) -> AsyncIterator[Check]:
    """Check a foreign agent with an inference server's template, in a task's sandbox."""
    async with open_server(engine) as server:
        try:
            if not isinstance(server, CompletionsServer):
                raise ValueError("its inference server gives no token ids")
            await server.connect()
            name = config.tokenizer_name or server.root or engine.model_name
            tokenizer = load_tokenizer(name, trust_remote_code=config.trust_remote_code)
            fitted = FittedFormat.of(config.tool_format, config.chat_template(tokenizer), config.tool_role)
        except (EngineError, UsageError, ValueError) as error:
            yield Check("agent", Status.WRONG, f"{agent.name} was not tried: {error}")
            return
    budgets = config.agent_config(max_total_tokens=config.max_token_length)
    async with load_backend(config.sandbox, **backend_options(config)) as backend:
        image = await backend.ensure_image(task.image, task.context)
        async for check in examine_agent(agent, backend, agent_spec(task, image), fitted, budgets):
            yield check


def _check_starter(config: SWEEnvConfig, crun: Path | Obstacle) -> Check:
    """Report the starter of sandboxes, and the reason against crun."""
    if config.sandbox_starter == "docker":
        return Check("started by", Status.OK, "the Docker daemon, as --env.sandbox_starter says", {"starter": "docker"})
    if isinstance(crun, Path):
        return Check("started by", Status.OK, f"{crun}, past the Docker daemon", {"starter": "crun"})
    status = Status.WRONG if config.sandbox_starter == "crun" else Status.NOTE
    text = f"the Docker daemon, which takes ten times as long: {crun.why}"
    return Check("started by", status, text, {"starter": "docker", "why": crun.why})


async def _check_hosts(config: SWEEnvConfig, task: Task) -> AsyncIterator[Check]:
    """Measure each Docker host, by a sandbox of a task's image."""
    async with AsyncExitStack() as stack:
        try:
            fleet = await stack.enter_async_context(
                FleetBackend(
                    read_hosts(config.hosts or ""), base_image=config.base_image, runtime=config.sandbox_runtime
                )
            )
        except (SandboxError, ValueError) as error:
            yield Check("sandboxes", Status.WRONG, str(error))
            return
        for member in fleet.members:
            name = f"host {member.host.url}"
            try:
                image = await fleet.ensure_image(task.image, task.context)
                await fleet.provide(member, image)
                found = await measure(member.backend, image)
            except (SandboxError, OSError) as error:
                yield Check(name, Status.NOTE, f"can't be used for now: {error}")
                continue
            yield machine_check(name, found)


async def _check_nodes(config: SWEEnvConfig, engines: Sequence[EngineConfig], task: Task) -> AsyncIterator[Check]:
    """Measure each node of the Ray cluster."""
    try:
        check_workers(config)
        check_command_line(Redactor.of(os.environ, (secret for engine in engines for secret in engine.secrets)))
    except ValueError as error:
        yield Check("nodes", Status.WRONG, str(error))
        return
    async for check in examine_nodes(RAY_CLUSTER()(config.ray), config, engines, task):
        yield check


def _check_disk(config: SWEEnvConfig, *images: Path) -> Check:
    """Check the free space for images and results, as far as those places are on this machine, and that results can
    be written."""
    free, results = {}, Path(config.run_dir or "runs")
    for place in (*images, results):
        there = next((p for p in (place.absolute(), *place.absolute().parents) if p.exists()), Path("/"))
        free[str(place)] = shutil.disk_usage(there).free
    if not (there.is_dir() and os.access(there, os.W_OK)):  # the one for results
        return Check(
            "disk", Status.WRONG, f"{there} can't be written; results go there: give another --env.run_dir", free
        )
    least = min(free.values())
    text = ", ".join(f"{size / GIB:.0f} GiB free for {place}" for place, size in free.items())
    return Check("disk", Status.OK if least > 2 * GIB else Status.NOTE, text, free)
