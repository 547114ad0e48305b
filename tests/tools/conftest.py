"""A sandbox for each tool test: the local one always, a container where Docker answers.

Those of a worker share the container, and so an event loop.
"""

import functools
import shutil
from pathlib import Path

import pytest
import pytest_asyncio
from containers import Container

from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.local import LocalBackend

IMAGE = "atropos-agent/base:debian12"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith("tests/tools/") and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def container(base_image):
    async with Container(DockerBackend(), SandboxSpec(base_image, workdir="/app")) as container:
        yield container


@pytest_asyncio.fixture(loop_scope="session")
async def local_backend():
    async with LocalBackend() as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="session")
async def docker_sandbox(container):
    return await container.emptied()


@pytest_asyncio.fixture(loop_scope="session")
async def local_sandbox(local_backend):
    async with local_backend.open(SandboxSpec(IMAGE, workdir="/app")) as sandbox:
        yield sandbox


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def sandbox(request):
    return request.getfixturevalue(f"{request.param}_sandbox")


@pytest.fixture(scope="session")
def path_with_shell(tmp_path_factory):
    """A directory with every program of this machine, but no other shell than the one that is asked for."""

    @functools.cache
    def make(shell: str) -> Path:
        folder = tmp_path_factory.mktemp(shell)
        programs = {file.name: file for place in ("/bin", "/usr/bin") for file in Path(place).iterdir()}
        for name in programs.keys() - {"bash", "sh"}:
            (folder / name).symlink_to(programs[name])
        (folder / "sh").symlink_to(shutil.which(shell))
        return folder

    return make


@pytest_asyncio.fixture(loop_scope="session")
async def one_shell_sandbox(local_backend, shell, path_with_shell):
    """A local sandbox whose only shell is the one named."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    env = {} if shell == "bash" else {"PATH": str(path_with_shell(shell))}
    async with local_backend.open(SandboxSpec(IMAGE, workdir="/app", env=env)) as sandbox:
        yield sandbox


@pytest.fixture(params=["bash", "dash", "busybox", pytest.param("docker", marks=pytest.mark.docker)])
def shell(request):
    return request.param


@pytest.fixture
def shell_sandbox(shell, request):
    return request.getfixturevalue("docker_sandbox" if shell == "docker" else "one_shell_sandbox")


@pytest_asyncio.fixture(loop_scope="session")
async def busybox_sandbox(local_backend, tmp_path):
    """A sandbox whose only programs are busybox's."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox on this machine")
    for applet in ("sh", "cat", "find", "grep", "printf", "mkdir"):
        (tmp_path / applet).symlink_to(busybox)
    async with local_backend.open(SandboxSpec(IMAGE, workdir="/app", env={"PATH": str(tmp_path)})) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox_without(local_backend, tmp_path):
    """Open a sandbox that lacks a program of POSIX."""

    def opened(missing: str):
        for name in {"sh", "find", "grep", "printf"} - {missing}:
            (tmp_path / name).symlink_to(shutil.which(name))
        return local_backend.open(SandboxSpec(IMAGE, workdir="/app", env={"PATH": str(tmp_path)}))

    return opened
