"""Worker processes as Ray actors: one each, on its intended node, ended with the driver.

Only calls go through Ray, most of them small enough to go straight from process to process; its object store holds
folders of tasks on their way. No secret is in an actor's name, options, runtime environment or constructor: Ray's
dashboard or its tables show these.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from envs.config import RayOptions
from envs.running.remote.knock import HeadRefusesError, knock
from envs.running.remote.messages import Link, WorkerGoneError, WorkerUnreachableError
from envs.running.remote.process import WorkerProcess
from sandboxes.shielding import call_in_thread

CALLS = 100
"""Calls that an actor takes at the same time. None of them waits long but the one for news."""
_TOKEN = "if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH here, as on its nodes"


class RayCluster:
    """The nodes of a Ray cluster; see `Cluster`."""

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self._ids: dict[str, str] = {}
        self._ours = False

    async def __aenter__(self) -> Self:
        """Join the cluster. Raises ConnectionError with the remedy."""
        if not ray.is_initialized():
            await self._check_head_answers()
            await call_in_thread(self._join)  # it may take a minute, and holds up no end
            self._ours = True
            if threading.current_thread() is threading.main_thread():
                # Ray's own handler prints a stack before it calls ours.
                signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._ours:
            await asyncio.to_thread(ray.shutdown)

    async def _check_head_answers(self) -> None:
        """Find out whether a head listens, and with our settings: Ray would take minutes, and end the process."""
        host, _, port = self._options.address.rpartition(":")
        if not host:
            return
        try:
            await knock(host, port, os.environ)
        except HeadRefusesError as error:
            raise self._refused_error(error) from error
        except OSError as error:
            raise self._unreachable_error(error) from error

    def _unreachable_error(self, error: Exception) -> ConnectionError:
        return ConnectionError(
            f"no Ray cluster can be joined at {self._options.address} ({error}); start one with `ray start --head`, or "
            "set --env.ray.address."
        )

    def _refused_error(self, error: Exception) -> ConnectionError:
        return ConnectionError(f"the Ray cluster at {self._options.address} can't be joined: {error}")

    def _join(self) -> None:
        address = self._options.address
        try:
            # Without its handlers: logs are ours, and signals, of which it says so.
            logging.getLogger("ray").setLevel(logging.ERROR)
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (RayError, RuntimeError, ValueError) as error:  # these have the remedy
            raise self._refused_error(error) from error
        except ConnectionError as error:
            if ":" not in address:
                raise self._unreachable_error(error) from error
            raise self._refused_error(ConnectionError(f"{error}; {_TOKEN}")) from error

    async def nodes(self) -> Sequence[str]:
        """See `Cluster`."""
        found = await asyncio.to_thread(ray.nodes)
        able = [node for node in found if node["Alive"] and self._has_resources(node["Resources"])]
        self._ids = {f"{node['NodeManagerAddress']}/{node['NodeID'][:6]}": node["NodeID"] for node in able}
        return list(self._ids)

    def _has_resources(self, resources: dict[str, float]) -> bool:
        return all(resources.get(name, 0.0) >= amount for name, amount in self._options.resources.items())

    async def start(self, node: str) -> Link:
        """See `Cluster`."""
        return await self.place(node, WorkerProcess, self._options.resources)

    async def place(self, node: str, process: type, resources: Mapping[str, float]) -> Link:
        """Start a process on a node, made of a class with asynchronous methods. Raises WorkerGoneError."""
        if (node_id := self._ids.get(node)) is None:
            raise WorkerGoneError(f"{node} has left the cluster")
        link = RayLink(await asyncio.to_thread(self._start_actor, node_id, process, resources))
        async with AsyncExitStack() as undo:
            undo.push_async_callback(link.kill)
            await link.call("__ray_ready__")  # once it has begun
            undo.pop_all()
        return link

    def _start_actor(self, node_id: str, process: type, resources: Mapping[str, float]) -> Any:
        options = {
            "num_cpus": resources.get("CPU", 0),
            "num_gpus": resources.get("GPU", 0),
            "resources": {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")},
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
            "max_concurrency": CALLS,
            "max_restarts": 0,
            "max_task_retries": 0,
            "enable_task_events": False,
        }
        return ray.remote(**options)(process).remote()


class RayLink:
    """The way to an actor; see `Link`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def call(self, method: str, *arguments: Any) -> Any:
        """See `Link`."""
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ActorUnavailableError as error:
            raise WorkerUnreachableError(str(error)) from error
        except RayActorError as error:
            raise WorkerGoneError(str(error)) from error
        except RayTaskError:
            raise  # of the method itself
        except RayError as error:
            raise WorkerUnreachableError(str(error)) from error

    async def kill(self) -> None:
        """See `Link`."""
        await asyncio.to_thread(ray.kill, self._actor)
