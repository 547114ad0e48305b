"""What the next task needs is made while the first one's rollouts run."""

import asyncio

from envs.judging.prefetch import Prefetch
from envs.types import Hidden, Task
from sandboxes.base import ImageMissing
from sandboxes.local import LocalBackend


class Slow(LocalBackend):
    """Its images take as long as `there` is not set, and are missing where it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = []
        self.there = asyncio.Event()

    async def ensure_image(self, name, context=None):
        self.asked.append(name)
        await self.there.wait()
        if name == "missing":
            raise ImageMissing("no such image")
        return name


async def as_it_is(spec):
    return spec


async def test_an_image_is_asked_for_once_at_a_time_and_its_failure_is_the_rollouts_matter():
    backend = Slow()
    async with Prefetch(backend, 2, as_it_is) as prefetch:
        for image in ("one", "missing", "one"):
            prefetch.begin(Task(image, "", image=image))
        await asyncio.sleep(0)
        assert backend.asked == ["one", "missing"]
        backend.there.set()
        await asyncio.sleep(0.01)
        prefetch.begin(Task("one", "", image="one"))
        await asyncio.sleep(0)
        assert backend.asked == ["one", "missing", "one"]


async def test_no_sandbox_waits_for_work_that_is_judged_in_place(monkeypatch):
    prepared = []
    monkeypatch.setattr(LocalBackend, "prepare", lambda self, spec, count: prepared.append(spec.image), raising=False)
    backend = Slow()
    backend.there.set()
    async with Prefetch(backend, 2, as_it_is) as prefetch:
        prefetch.begin(Task("one", "", image="one"))
        prefetch.begin(Task("two", "", image="two", hidden=Hidden(in_place=True)))
        await asyncio.sleep(0.01)
    assert prepared == ["one", "one"]


async def test_leaving_it_does_not_wait_for_an_image():
    async with asyncio.timeout(5), Prefetch(Slow(), 0, as_it_is) as prefetch:
        prefetch.begin(Task("one", "", image="one"))
        await asyncio.sleep(0)
