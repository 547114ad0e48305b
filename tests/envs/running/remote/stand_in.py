"""Worker processes that are none, in this process: what goes to them and comes from them is pickled as on the way."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter

from envs.running.remote.messages import WorkerGoneError, WorkerUnreachableError
from envs.running.remote.process import WorkerProcess


class StandInLink:
    """The way to a worker. `lose` ends it; while it is `cut`, calls arrive but no answer comes back."""

    def __init__(self, process, node) -> None:
        self.process = process
        self.node = node
        self.cut = False
        self.calls = Counter()
        self._ended = asyncio.Event()

    async def call(self, method, *arguments):
        if self._ended.is_set():
            raise WorkerGoneError("it was killed")
        self.calls[method] += 1
        arguments = pickle.loads(pickle.dumps(arguments))
        calling = asyncio.ensure_future(getattr(self.process, method)(*arguments))
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({calling, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if not calling.done():
                calling.cancel()
        if self._ended.is_set():
            raise WorkerGoneError("it was killed")
        if method == "open" and calling.result() is None:
            self.process._env.node = self.node
        answer = pickle.loads(pickle.dumps(calling.result()))
        if self.cut:
            raise WorkerUnreachableError("the answer was lost")
        return answer

    async def lose(self) -> None:
        self._ended.set()
        await self.process.close()

    async def kill(self) -> None:
        await self.lose()


class StandInCluster:
    """Machines by name. `links`: to the worker that lives on each. opened: how often one was started there."""

    def __init__(self, *names, process=WorkerProcess) -> None:
        self.names = list(names)
        self.links: dict[str, StandInLink] = {}
        self.opened = Counter()
        self.closed = False
        self._process = process

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.closed = True

    async def nodes(self):
        return list(self.names)

    async def start(self, node):
        if node not in self.names:
            raise WorkerGoneError(f"{node} has left")
        self.opened[node] += 1
        self.links[node] = StandInLink(self._process(), node)
        return self.links[node]

    async def remove(self, node) -> None:
        """Let a machine end at once."""
        self.names.remove(node)
        await self.links[node].lose()
