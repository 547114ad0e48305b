"""One watch over all pods."""

import asyncio

import pytest
from waiting import until

from sandboxes.docker.executor.container import Kind
from sandboxes.kubernetes.watch import PodWatch

pytestmark = pytest.mark.docker


async def test_the_watch_goes_on_after_its_place_is_gone(make, server, spec):
    async with make() as backend:
        server.gone_before = 10**9
        opening = asyncio.create_task(backend._acquire(Kind.of(spec), spec))
        await until(lambda: server.expired)
        server.gone_before = 0
        await (await opening).discard()


def shown(number):
    return {"metadata": {"name": f"pod-{number}", "resourceVersion": str(number)}}


class Scripted:
    """A cluster whose pods are deleted one after another, but for the last; then nothing happens."""

    def __init__(self, pods):
        self.pods = pods
        self.over = asyncio.Event()

    async def request(self, method, path, **query):
        return {"items": [shown(0), shown(1)], "metadata": {"resourceVersion": "1"}}

    async def watch(self, path, version, **query):
        for number in range(self.pods):
            yield {"type": "MODIFIED", "object": shown(number)}
            if number < self.pods - 1:
                yield {"type": "DELETED", "object": shown(number)}
        self.over.set()
        await asyncio.Event().wait()


async def test_the_watch_forgets_pods_that_were_deleted_long_ago(monkeypatch):
    monkeypatch.setattr("sandboxes.kubernetes.watch._DELETED", 3)
    cluster = Scripted(10)
    watch = PodWatch(cluster, "owner=me", "pods")
    following = asyncio.create_task(watch.run())
    await cluster.over.wait()
    assert watch._pods == {"pod-6": None, "pod-7": None, "pod-8": None, "pod-9": shown(9)}
    assert await watch.wait_for("pod-8", lambda pod: pod is None or None), "who asks late is told"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_the_watch_goes_on_after_an_answer_that_is_not_the_servers(monkeypatch):
    monkeypatch.setattr("sandboxes.kubernetes.watch._PAUSE_S", 0.01)

    class Proxied(Scripted):
        """One whose first answer and first event somebody else has given."""

        def __init__(self):
            super().__init__(1)
            self.lists = [{}, {"items": [shown(0)], "metadata": {"resourceVersion": "1"}}]
            self.events = [{"type": "MODIFIED", "object": None}]

        async def request(self, *_, **__):
            return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]

        async def watch(self, *_, **__):
            if self.events:
                yield self.events.pop()
            yield {"type": "MODIFIED", "object": shown(5)}
            await asyncio.Event().wait()

    watch = PodWatch(Proxied(), "owner=me", "pods")
    following = asyncio.create_task(watch.run())
    async with asyncio.timeout(5):
        assert await watch.wait_for("pod-5", lambda pod: pod) == shown(5)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
