"""The source trees of clean images."""

import asyncio
import errno
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tree_samples import archive, member
from verifier_samples import REWARD, task, verdict_after

from envs.judging.start_trees import StartTrees
from envs.types import Failure, InfraError
from sandboxes.base import Sandbox, SandboxDied, SandboxError
from sandboxes.local import LocalBackend


@pytest.mark.docker
async def test_where_the_working_directory_is_the_root_named_paths_are_judged_and_no_systems_file(
    docker_backend, base_image, tmp_path
):
    checks = "[ $PWD = / ] && grep -q it /root/made && ! grep -q it /etc/passwd && [ ! -e /unnamed ]"
    one = task(tmp_path, f"{checks} && {REWARD.format(1)}", workdir="/", graded=("/root/made", "/etc"), watched=False)
    command = "echo it | tee /root/made /etc/passwd > /unnamed"
    assert (await verdict_after(docker_backend, base_image, one, command)).reward == 1


class Files(LocalBackend):
    """A backend with three files in each image. opened: the images. busy: the next one can't be opened."""

    def __init__(self):
        super().__init__()
        self.made, self.opened, self.busy = "1", [], False

    async def image_id(self, name):
        return f"{name} {self.made}"

    @asynccontextmanager
    async def open(self, spec):
        self.opened.append(spec.image)
        if self.busy:
            self.busy = False
            raise SandboxError("busy")
        async with super().open(spec) as sandbox:
            await sandbox.exec("touch a b c")
            yield sandbox


async def test_start_trees_are_read_once_and_again_after_a_failure(tmp_path):
    async with Files() as backend:
        backend.busy = True
        trees, sample = StartTrees(backend), task(tmp_path, "")
        with pytest.raises(InfraError):
            await trees.get(sample, "image")
        (first, *others) = await asyncio.gather(*(trees.get(sample, "image") for _ in range(5)))
        assert all(one is first for one in others)
        assert len(backend.opened) == 2
        backend.made = "2"  # it was pruned and built again, and may hold something else
        assert await trees.get(sample, "image") is not first
        assert len(backend.opened) == 3


async def test_trees_that_were_not_asked_for_for_long_are_read_again(tmp_path):
    async with Files() as backend:
        trees, sample = StartTrees(backend, most_paths=7), task(tmp_path, "")
        for image in ("one", "two", "one", "three", "one", "two"):
            assert len((await trees.get(sample, image)).tree) == 3
    assert backend.opened == ["one", "two", "three", "two"]


class OnceUnreadable(Sandbox):
    """The first sandbox can't be read, by no fault of the image's."""

    def __init__(self, error, path, workdir="/app"):
        self.errors, self.path, self.workdir = [error], path, workdir

    async def image_id(self, name):
        return name

    @asynccontextmanager
    async def open(self, spec):
        yield self

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


async def test_the_root_directory_is_no_source_tree(tmp_path):
    with pytest.raises(InfraError, match="name the source tree"):
        await StartTrees(OnceUnreadable(None, "/", "/")).get(task(tmp_path, ""), "image")
