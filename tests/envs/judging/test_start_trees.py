"""The source trees of clean images."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from verifier_samples import (
    FailingBackend,
    task,
)

from envs.judging.areas import Start
from envs.judging.start_trees import StartTrees
from envs.types import InfraError
from sandboxes.base import SandboxError
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


async def test_trees_that_were_not_asked_for_for_long_are_read_again(tmp_path):
    opened = []

    class Backend:
        async def image_id(self, name):
            return name

        @asynccontextmanager
        async def open(self, spec):
            opened.append(spec.image)
            async with local.open(spec) as sandbox:
                await sandbox.exec("touch a b c")
                yield sandbox

    async with LocalBackend() as local:
        trees, sample = StartTrees(Backend(), most_paths=7), task(tmp_path, "")
        for image in ("one", "two", "one", "three", "one", "two"):
            assert len((await trees.get(sample, image)).tree) == 3
    assert opened == ["one", "two", "three", "two"]
