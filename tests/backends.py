"""The backends that tests run on, by name."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sandboxes.docker import DockerBackend
from sandboxes.docker.crun.availability import Obstacle, find_crun
from sandboxes.docker.daemon.client import connect
from sandboxes.local import LocalBackend
from sandboxes.registry import load_backend

STARTERS = tuple(pytest.param(kind, marks=pytest.mark.docker) for kind in ("docker", "crun"))


class UsedSandboxes(DockerBackend):
    """A backend each of whose sandboxes somebody has had before."""

    @asynccontextmanager
    async def open(self, spec):
        spec = replace(spec, shared="tests")
        async with super().open(spec) as before:
            await (await before.session()).run("echo x >/tmp/x; (while :; do sleep 9; done) >/dev/null 2>&1 &")
            await before.stop()
        async with super().open(spec) as sandbox:
            if not spec.mounts:
                assert sandbox.id == before.id
            yield sandbox


def is_own(kind):
    """Tell whether a kind is a dotted path, of a backend that isn't ours."""
    return ":" in kind


async def backend_of(kind):
    """Return a backend that is not entered yet; skip where it can't be had."""
    if is_own(kind):
        return load_backend(kind)
    if kind == "local":
        return LocalBackend()
    if kind == "docker":
        return DockerBackend(starter="docker")
    async with connect() as daemon:
        info = await daemon.system.info()
        if kind in ("crun", "used"):
            found = find_crun(daemon, info)
            if isinstance(found, Obstacle):
                pytest.skip(found.why)
            return (DockerBackend if kind == "crun" else UsedSandboxes)(starter="crun")
        if kind not in info["Runtimes"]:
            pytest.skip(f"this Docker daemon has no runtime {kind}")
    return DockerBackend(runtime=kind)
