"""A sandbox for each tool test: the local one always, a container where Docker answers."""

import functools
import shutil
from pathlib import Path

import pytest

from sandboxes.base import SandboxSpec
from sandboxes.local import LocalBackend

IMAGE = "atropos-agent/base:debian12"


@pytest.fixture
async def local_backend():
    async with LocalBackend() as backend:
        yield backend


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def backend(request):
    return request.getfixturevalue(f"{request.param}_backend")


@pytest.fixture
async def sandbox(backend):
    async with backend.open(SandboxSpec(IMAGE, workdir="/app")) as sandbox:
        yield sandbox


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


@pytest.fixture(params=["bash", "dash", "busybox", pytest.param("docker", marks=pytest.mark.docker)])
def shell_spec(request, path_with_shell):
    """The backend's name and a spec for a sandbox whose only shell is the one named."""
    if request.param in ("bash", "docker"):
        return "docker" if request.param == "docker" else "local", SandboxSpec(IMAGE, workdir="/app")
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} on this machine")
    return "local", SandboxSpec(IMAGE, workdir="/app", env={"PATH": str(path_with_shell(request.param))})


@pytest.fixture
def shell_backend(request, shell_spec):
    return request.getfixturevalue(f"{shell_spec[0]}_backend")


@pytest.fixture
async def shell_sandbox(shell_backend, shell_spec):
    async with shell_backend.open(shell_spec[1]) as sandbox:
        yield sandbox


@pytest.fixture
async def busybox_sandbox(local_backend, tmp_path):
    """A sandbox whose only programs are busybox's."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox on this machine")
    for applet in ("sh", "cat", "find", "grep", "printf", "mkdir"):
        (tmp_path / applet).symlink_to(busybox)
    async with local_backend.open(SandboxSpec(IMAGE, workdir="/app", env={"PATH": str(tmp_path)})) as sandbox:
        yield sandbox
