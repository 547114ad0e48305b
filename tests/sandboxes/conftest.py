"""The backends, and sandboxes of them, for the conformance suite."""

import asyncio
import shutil
import zlib
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from backends import STARTERS, backend_of, is_own
from containers import Container
from images import made
from own_sshd import Sshd, need_sshd
from turns import turn

from sandboxes.base import NotSupported, SandboxSpec
from sandboxes.docker import DockerBackend

GVISOR = [pytest.param("runsc", marks=pytest.mark.docker)] if shutil.which("runsc") else []
KINDS = ["local", *STARTERS, *GVISOR]
SHARES = 4
"""Of the tests marked `any_starter`, on sandboxes that the Docker daemon starts."""


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        engine, image, used, own = map(metafunc.config.getoption, ("--engine", "--image", "--used", "--backend"))
        kinds = getattr(metafunc.module, "ONLY", KINDS)  # of a module that is about some of them
        if own:
            kinds = [own]
        elif engine:
            kinds = [pytest.param("runsc" if engine == "gvisor" else "docker", id=engine, marks=pytest.mark.docker)]
        elif image:
            kinds = [pytest.param(by, id=f"{image}, {by}", marks=pytest.mark.docker) for by in ("docker", "crun")]
        elif used:
            kinds = [pytest.param("used", marks=pytest.mark.docker)]
        elif metafunc.definition.get_closest_marker("any_starter"):
            kinds = [by_turns(kind, metafunc.definition.name) if kind in STARTERS[:1] else kind for kind in kinds]
        metafunc.parametrize("kind", kinds, indirect=True)


def by_turns(kind, test):
    """Return a parameter that is tried where it is the test's turn, and with `--all`."""
    late = zlib.crc32(test.encode()) % SHARES != turn(SHARES)
    return pytest.param(*kind.values, marks=[*kind.marks, *[pytest.mark.slow] * late])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip tests of what a backend of one's own says that it can't do."""
    try:
        return (yield)
    except NotSupported as error:
        if item.config.getoption("--backend") is None:
            raise
        pytest.skip(str(error))


@pytest.fixture
def kind(request) -> str:
    """A name of `KINDS`, or that of a backend of one's own.

    crun past the Docker daemon, and used: what others have had before. runsc is gVisor, tested where it is
    installed and the Docker daemon has it as a runtime."""
    return request.param


@pytest.fixture(scope="session")
def suites_image(base_image, request) -> str:
    """What the conformance suite's sandboxes are made of: the base image, or that of `--image`."""
    name = request.config.getoption("--image")
    return base_image if name is None else asyncio.run(made(name, base_image))


@pytest.fixture
def spec(kind, request) -> SandboxSpec:
    if is_own(kind):
        image = request.config.getoption("--image") or "none"
    else:
        image = "none" if kind == "local" else request.getfixturevalue("suites_image")
    return SandboxSpec(image, workdir="/app", env={"COLOUR": "green"})


@pytest.fixture(scope="session")
def make_backend():
    return backend_of


@pytest.fixture
async def backend(kind, spec):
    async with await backend_of(kind) as entered:
        yield entered


@pytest.fixture
async def box(backend, spec):
    async with backend.open(spec) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kept_containers():
    """By kind of backend, image and working directory."""
    async with AsyncExitStack() as stack:

        async def container(kind, spec):
            key = kind, spec.image, spec.workdir
            if key not in known:
                known[key] = await stack.enter_async_context(Container(await backend_of(kind), spec))
            return known[key]

        known = {}
        yield container


@pytest_asyncio.fixture(loop_scope="session")
async def backend_beside(kind, spec):
    """A backend like that of the kept box, in the same event loop."""
    async with await backend_of(kind) as entered:
        yield entered


@pytest_asyncio.fixture(loop_scope="session")
async def kept_box(kind, spec, kept_containers):
    """A box that was not made for the test alone, where to make one takes long. Its tests share an event loop."""
    if not (kind == "local" or is_own(kind)):
        yield await (await kept_containers(kind, spec)).emptied()
        return
    async with await backend_of(kind) as backend, backend.open(spec) as sandbox:
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


@pytest.fixture
async def docker_backend(base_image):
    """A Docker backend whose sandboxes the Docker daemon starts, whatever else could."""
    async with DockerBackend(base_image=base_image, starter="docker") as backend:
        yield backend
