"""A backend on a small E2B server of its own, for the conformance suite: `--backend on_server:factory`."""

import os
import shutil
import subprocess
from contextlib import AsyncExitStack

import pytest
from e2b_server import KEY, TEMPLATE, E2BServer

from sandboxes.docker.images.base_image import BASE_IMAGE
from sandboxes.e2b.backend import E2BBackend


def serving():
    return E2BServer(BASE_IMAGE, bubblewrap()).serving()


def bubblewrap() -> list[str]:
    """Return the mounts that put this machine's bubblewrap into a container of the base image."""
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("this machine has no bubblewrap: apt-get install bubblewrap")
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    needed = [line.split()[2] for line in said.splitlines() if "=>" in line and "libc.so" not in line]
    return [f"{program}:/usr/bin/bwrap:ro", *(f"{path}:{path}:ro" for path in needed)]


class OnServer(E2BBackend):
    """A backend with the server that it is on."""

    def __init__(self) -> None:
        self._servers = AsyncExitStack()
        super().__init__()

    async def __aenter__(self):
        os.environ["E2B_API_KEY"] = KEY
        server = await self._servers.enter_async_context(serving())
        super().__init__(e2b={"api_url": server.url, "sandbox_url": server.url}, base_image=TEMPLATE)
        return await super().__aenter__()

    async def __aexit__(self, *exc):
        await super().__aexit__(*exc)
        await self._servers.aclose()


def factory():
    return OnServer()
