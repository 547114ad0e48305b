"""One watch over all pods of an owner, or over its claims, resumed after outages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.faults import Pod
from sandboxes.remote.api import UNANSWERED, Expired

logger = logging.getLogger(__name__)

_PAUSE_S = 1.0
_DELETED = 1000
"""How many deleted pods are remembered, for those who ask late."""
_UNKNOWN: Pod = {}
T = TypeVar("T")


class PodWatch:
    """The last known state of each pod with a label; a pod that was deleted is None. path: of other objects than
    pods."""

    def __init__(self, cluster: Cluster, selector: str, path: str = "") -> None:
        self._cluster = cluster
        self._path = path or cluster.path("pods")
        self._selector = selector
        self._pods: dict[str, Pod | None] = {}
        self._deleted: deque[str] = deque()
        self._news = asyncio.Event()
        self._version = ""

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except Expired:
                self._version = ""
            except UNANSWERED as error:
                logger.debug("the watch goes on in a moment: %r", error)
                await asyncio.sleep(_PAUSE_S)

    async def _list(self) -> None:
        answer = await self._cluster.request("GET", self._path, labelSelector=self._selector)
        found = {one["metadata"]["name"]: one for one in answer["items"]}
        for name in {*self._pods, *found}:
            self._note(name, found.get(name))
        self._version = answer["metadata"]["resourceVersion"]
        self._notify()

    async def _follow(self) -> None:
        events = self._cluster.watch(self._path, self._version, labelSelector=self._selector)
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                pod = event["object"]
                self._version = pod["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._note(pod["metadata"]["name"], None if event["type"] == "DELETED" else pod)
                    self._notify()

    def _note(self, name: str, pod: Pod | None) -> None:
        if pod is None and self._pods.get(name, _UNKNOWN) is not None:
            self._deleted.append(name)
        self._pods[name] = pod
        if len(self._deleted) > _DELETED and self._pods.get(old := self._deleted.popleft(), _UNKNOWN) is None:
            del self._pods[old]

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def forget(self, name: str) -> None:
        self._pods.pop(name, None)

    def last_state(self, name: str) -> Pod | None:
        """Return a pod's last known state; None for a deleted one, and for one that is yet unknown."""
        return self._pods.get(name)

    async def wait_for(self, name: str, done: Callable[[Pod | None], T | None]) -> T:
        """Wait until `done` returns something for the pod, or raises."""
        while True:
            news = self._news
            if name in self._pods and (found := done(self._pods[name])) is not None:
                return found
            await news.wait()
