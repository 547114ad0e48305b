"""Open the maker of a run's rollouts: this process, or worker processes on many machines."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

from envs.config import AgentEnvConfig
from envs.records.metrics import Metrics
from envs.records.redaction import Redactor
from envs.running.environment import Environment
from envs.running.remote.pool import Pool, start_message_of
from envs.running.waiting import retry_until_reachable
from envs.running.watchdog import LoopWatch
from envs.running.worker import LocalWorker, Worker
from envs.types import Failure
from sandboxes.installing import install
from sandboxes.naming import lazy_import

RAY_CLUSTER = lazy_import("envs.running.remote.on_ray:RayCluster")
"""Ray is an extra."""


def check_workers(config: AgentEnvConfig) -> None:
    """Raise ValueError, with the remedy, if worker processes are wanted and their starter is not installed."""
    if config.workers == "ray" and find_spec("ray") is None:
        raise ValueError(f"--env.workers ray needs Ray: {install('ray')}, here and on all nodes")


def check_command_line(redactor: Redactor) -> None:
    """Raise ValueError, with the remedy, if Ray would show a secret."""
    command = " ".join(sys.orig_argv)
    if redactor.text(command) != command:
        raise ValueError(
            "Ray's dashboard shows the command line, and this one holds a secret; put that into a --config file"
        )


@asynccontextmanager
async def open_worker(env: Environment, watch: LoopWatch, metrics: Metrics) -> AsyncIterator[Worker]:
    """Open the maker of rollouts, according to the options. watch: of this process. metrics: counts the workers that
    were lost. Raises the exceptions of the environment's `setup`, and ValueError with the remedy."""
    if env.config.workers == "process":
        opened = await retry_until_reachable(lambda: _set_up(env))
        async with opened:
            yield LocalWorker(env, env.config, watch)
        return
    check_command_line(env.redactor)

    def lost(rollouts: int) -> None:
        for _ in range(rollouts):
            metrics.count_failure(Failure.WORKER)

    def sampled(tokens: list[int]) -> None:
        for server, more in zip(env.servers, tokens, strict=True):
            server.sampled += more

    options = env.config.ray
    opening = await start_message_of(env)
    async with Pool(
        RAY_CLUSTER()(options), opening, each=options.workers, most=options.rollouts, lost=lost, sampled=sampled
    ) as pool:
        yield pool


async def _set_up(env: Environment) -> AsyncExitStack:
    """Return the resources of rollouts, opened. Nothing is left open if this fails."""
    async with AsyncExitStack() as stack:
        await env.setup(stack)
        return stack.pop_all()
