"""The folder, mounts and process of one sandbox: what is left when it ends, and when it does not begin."""

import os
from pathlib import Path

import pytest

from sandboxes.base import SandboxError, SandboxSpec
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.cgroups import Cgroup
from sandboxes.docker.crun.starter import describe

pytestmark = pytest.mark.docker


async def test_nothing_is_left_of_one_that_has_ended(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image)) as sandbox:
        box = sandbox.container.bundle
        pids = [box.process.pid, box.process.first]
        assert box.folder.is_dir() and box.cgroup.processes() == pids[1:]
        assert str(box.folder) not in Path("/proc/mounts").read_text()
        assert {path.name for path in box.folder.iterdir()} == {"config.json", "log", "root", "upper-1", "work-1"}
    assert not box.folder.exists()
    assert not any(folder.exists() for folder in box.cgroup.folders())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert box.root == -1 and not list(box.directory.state.glob(f"{box.name}*"))


async def test_where_crun_was_killed_as_well_nothing_is_left(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image)) as sandbox:
        box = sandbox.container.bundle
        os.kill(box.process.pid, 9)
        await box.process.wait(10)
        assert (await sandbox.exec("echo fine")).output == "fine\n", "it is not crun that runs it"
    assert not box.folder.exists()
    assert not any(folder.exists() for folder in box.cgroup.folders())
    assert not (box.directory.state / box.name).exists()


async def test_what_crun_complains_of_is_told_and_nothing_is_left(crun_backend, base_image, monkeypatch):
    async with crun_backend.open(SandboxSpec(base_image)) as sandbox:
        home = sandbox.container.bundle.directory
    before = sorted(home.path.iterdir())

    def broken(template, *rest):
        return describe(template | {"process": template["process"] | {"args": ["/nowhere"]}}, *rest)

    monkeypatch.setattr("sandboxes.docker.crun.starter.describe", broken)
    with pytest.raises(SandboxError, match=r"ended at once: .*/nowhere"):
        async with crun_backend.open(SandboxSpec(base_image)):
            pass
    assert sorted(home.path.iterdir()) == before


def test_one_that_was_not_started_says_so(tmp_path):
    class Nowhere:
        path = tmp_path

    box = Bundle(Nowhere(), None, "x-1", Cgroup("x", True), {"mounts": []})
    with pytest.raises(SandboxError, match="was not started"):
        box.process.kill()
    assert box.log() == ""
