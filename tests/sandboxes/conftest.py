"""The backends, and sandboxes of them, for the conformance suite."""

import aiodocker
import pytest
from own_sshd import Sshd, need_sshd

from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.local import LocalBackend

KINDS = ["local", *(pytest.param(kind, marks=pytest.mark.docker) for kind in ("docker", "runsc"))]


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    """runsc is gVisor, tested where the Docker daemon has it as a runtime."""
    return request.param


@pytest.fixture
def spec(kind, request) -> SandboxSpec:
    image = "none" if kind == "local" else request.getfixturevalue("base_image")
    return SandboxSpec(image, workdir="/app", env={"COLOUR": "green"})


@pytest.fixture
async def backend(kind, spec):
    if kind == "local":
        made = LocalBackend()
    elif kind == "docker":
        made = DockerBackend()
    else:
        async with aiodocker.Docker() as daemon:
            if kind not in (await daemon.system.info())["Runtimes"]:
                pytest.skip(f"this Docker daemon has no runtime {kind}")
        made = DockerBackend(runtime=kind)
    async with made as entered:
        yield entered


@pytest.fixture
async def box(backend, spec):
    async with backend.open(spec) as sandbox:
        yield sandbox


@pytest.fixture
async def docker_box(docker_backend, base_image):
    async with docker_backend.open(SandboxSpec(base_image, workdir="/app")) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """An ssh server that leads to this machine. `over_ssh` makes it the way to the Docker daemon."""
    need_sshd()
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def over_ssh(sshd, base_image, monkeypatch) -> str:
    """The address of the Docker daemon by way of the ssh server; DOCKER_HOST holds it too."""
    monkeypatch.setenv("PATH", str(sshd.path), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", sshd.url)
    return sshd.url
