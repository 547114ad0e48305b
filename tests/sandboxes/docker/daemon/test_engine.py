"""What engines say of themselves, and what containers are then asked for."""

import os
import resource

import pytest

from sandboxes.docker.daemon.engine import Engine, may_have_quotas, missing_limits


class Client:
    """An engine's answers."""

    def __init__(self, components, here=True, **info) -> None:
        self.here = here
        self.system = self
        self._components = components
        self._info = {"Driver": "overlay2", "DockerRootDir": "/nowhere", "NCPU": 1} | info

    async def info(self):
        return self._info

    async def version(self):
        return {"Arch": "amd64", "Components": [{"Name": name} for name in self._components]}


def test_a_daemon_that_cannot_limit_says_so():
    assert missing_limits({"MemoryLimit": True, "PidsLimit": True}) == []
    assert missing_limits({"MemoryLimit": False, "SwapLimit": True, "PidsLimit": False}) == ["memory", "processes"]


def test_quotas_are_asked_for_where_the_storage_may_have_them():
    for info, may in [
        ({"Driver": "btrfs"}, True),
        ({"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "xfs"]]}, True),
        ({"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]]}, False),
        ({"Driver": "overlay2", "DriverStatus": None}, False),
    ]:
        assert may_have_quotas(info) is may


async def test_the_limits_that_podman_would_raise_are_those_of_this_machine():
    engine = await Engine.of(Client(["Podman Engine"]))
    if os.geteuid() != 0:
        assert engine.raises == (), "one without root leaves them as they are"
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert {"Name": "nofile", "Soft": files, "Hard": files} in engine.adapt_config({"Memory": 1})["Ulimits"]


@pytest.mark.parametrize(("components", "here"), [(["Engine", "runc"], True), (["Podman Engine"], False)])
async def test_other_engines_are_asked_for_none(components, here):
    engine = await Engine.of(Client(components, here=here))
    assert engine.adapt_config({"Memory": 1}) == {"Memory": 1}


async def test_one_that_cannot_limit_the_cpu_is_not_asked_to():
    engine = await Engine.of(Client([], CpuCfsQuota=False))
    assert engine.adapt_config({"NanoCpus": 1, "Memory": 1}) == {"Memory": 1}


async def test_a_limit_above_the_machines_cpus_is_all_of_them():
    engine = await Engine.of(Client([], NCPU=2))
    assert [engine.adapt_config({"NanoCpus": cpus * 10**9})["NanoCpus"] for cpus in (1, 4)] == [10**9, 2 * 10**9]


async def test_its_storage_is_looked_for_on_its_own_machine_alone(tmp_path):
    for here, found in ((True, tmp_path), (False, None)):
        assert (await Engine.of(Client([], here=here, DockerRootDir=str(tmp_path)))).storage == found
