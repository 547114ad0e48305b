"""The source trees of clean images."""

import asyncio
import errno
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tree_samples import archive, member
from verifier_samples import (
    FailingBackend,
    task,
)

from envs.judging import start_trees
from envs.judging.areas import Start
from envs.judging.start_trees import StartTrees
from envs.types import Failure, InfraError
from sandboxes.base import SandboxDied, SandboxError
from sandboxes.local import LocalBackend


@pytest.mark.docker
async def test_the_root_directory_is_no_source_tree(docker_backend, base_image, tmp_path):
    with pytest.raises(InfraError, match="name the source tree"):
        await StartTrees(docker_backend).get(task(tmp_path, "", workdir="/"), base_image)


async def test_start_trees_are_read_once_and_again_after_a_failure(tmp_path):
    class Backend:
        made = "1"

        def __init__(self):
            self.opened = 0

        async def image_id(self, name):
            return f"{name} {self.made}"

        def open(self, spec):
            self.opened += 1
            if self.opened == 1:
                return FailingBackend(SandboxError("busy")).open(spec)
            return local.open(spec)

    async with LocalBackend() as local:
        backend = Backend()
        trees, sample = StartTrees(backend), task(tmp_path, "")
        with pytest.raises(InfraError):
            await trees.get(sample, "image")
        assert await asyncio.gather(*(trees.get(sample, "image") for _ in range(5))) == [Start({})] * 5
        assert backend.opened == 2
        backend.made = "2"  # it was pruned and built again, and may hold something else
        assert await trees.get(sample, "image") == Start({})
        assert backend.opened == 3


async def test_the_trees_that_were_asked_for_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(start_trees, "_KEPT", 2)
    async with LocalBackend() as backend:
        trees, sample = StartTrees(backend), task(tmp_path, "")
        first, second = await trees.get(sample, "1"), await trees.get(sample, "2")
        assert await trees.get(sample, "1") is first
        await trees.get(sample, "3")
        assert await trees.get(sample, "1") is first
        assert await trees.get(sample, "2") is not second


class OnceUnreadable:
    """The first sandbox can't be read, by no fault of the image's."""

    def __init__(self, error, path):
        self.errors, self.path = [error], path

    async def image_id(self, name):
        return name

    @asynccontextmanager
    async def open(self, spec):
        yield self

    workdir = "/app"

    async def download(self, path, *, max_bytes):
        if path == self.path and self.errors:
            raise self.errors.pop()
        return archive(member("a"))


@pytest.mark.parametrize("path", ["/app", "/srv"])
@pytest.mark.parametrize("error", [SandboxDied("gone"), OSError(errno.EMFILE, "too many open files")])
async def test_what_can_not_be_read_for_a_failure_of_ours_is_judged_all_the_same(tmp_path, error, path):
    sample = task(tmp_path, "")
    sample = replace(sample, hidden=replace(sample.hidden, graded=("/srv",)))
    trees = StartTrees(OnceUnreadable(error, path))
    with pytest.raises(InfraError) as raised:
        await trees.get(sample, "image")
    assert raised.value.kind is Failure.SANDBOX
    assert "/srv" in (await trees.get(sample, "image")).elsewhere
