"""Images of pods."""

import asyncio
from contextlib import nullcontext

import pytest

from sandboxes.base import (
    ImageUnbuildable,
    SandboxSpec,
)

pytestmark = pytest.mark.docker


async def test_a_dockerfile_is_refused_by_name_or_built_by_the_users_builder(make, base_image, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\n")
    async with make() as backend:
        with pytest.raises(ImageUnbuildable, match="push it to a registry"):
            await backend.ensure_image(None, tmp_path)
    async with make(
        registry="r.example.org/t", builder="echo {image} {context} > " + str(tmp_path / "said")
    ) as backend:
        built = await backend.ensure_image(None, tmp_path)
        assert (tmp_path / "said").read_text() == f"{built} {tmp_path}\n"
        assert built.startswith("r.example.org/t:")


async def test_a_users_builder_that_does_not_end_is_ended(make, base_image, tmp_path, monkeypatch):
    monkeypatch.setattr("sandboxes.patience.BUILD_S", 1.0)
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\n")
    builder = f"exec 9>{tmp_path}/held; flock 9; sleep 123; : {{image}} {{context}}"
    async with make(registry="r.example.org/t", builder=builder) as backend:
        with pytest.raises(ImageUnbuildable, match="did not end within 1 s"):
            await backend.ensure_image(None, tmp_path)
    free = await asyncio.create_subprocess_exec("flock", "-w", "5", tmp_path / "held", "true")
    assert await free.wait() == 0


@pytest.mark.parametrize("status", [0, 3])
async def test_a_users_builder_ends_though_what_it_started_goes_on(make, base_image, tmp_path, monkeypatch, status):
    monkeypatch.setattr("sandboxes.patience.BUILD_S", 5.0)
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\n")
    builder = f"sleep 20 & echo hello; exit {status}; : {{image}} {{context}}"
    async with make(registry="r.example.org/t", builder=builder) as backend:
        ended = pytest.raises(ImageUnbuildable, match=r"ended with 3 for .*: hello") if status else nullcontext()
        with ended:
            await backend.ensure_image(None, tmp_path)


async def test_files_of_a_task_without_a_dockerfile_are_there(make, base_image, tmp_path):
    (tmp_path / "readme").write_text("hello")
    async with make() as backend:
        image = await backend.ensure_image(base_image, tmp_path)
        async with backend.open(SandboxSpec(image)) as box:
            assert await box.read_file("readme") == b"hello"
            await box.write_file("readme", b"changed")
            await box.reset()
            assert await box.read_file("readme") == b"hello"
