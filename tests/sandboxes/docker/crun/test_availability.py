"""Where crun can start sandboxes, and what is said where it can't."""

import shutil

import pytest

from sandboxes.base import SandboxError
from sandboxes.docker import DockerBackend
from sandboxes.docker.crun import availability
from sandboxes.docker.crun.availability import Obstacle, find_crun


class Client:
    here = True


@pytest.fixture
def info(tmp_path, monkeypatch):
    (tmp_path / "overlay2").mkdir()
    monkeypatch.setattr(availability.os, "geteuid", lambda: 0)
    monkeypatch.setattr(availability.shutil, "which", lambda program: f"/bin/{program}")
    return {"DockerRootDir": str(tmp_path), "Driver": "overlay2", "SecurityOptions": ["name=seccomp,profile=default"]}


def test_crun_is_found_where_nothing_is_in_the_way(info):
    assert str(find_crun(Client(), info)) == "/bin/crun"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Driver": "btrfs"}, "storage driver is btrfs"),
        ({"DockerRootDir": "/nowhere"}, "not on this host"),
        ({"SecurityOptions": ["name=seccomp", "name=userns"]}, "isolates with userns"),
        ({"SecurityOptions": ["name=seccomp", "name=selinux"]}, "isolates with selinux"),
        ({"SecurityOptions": None}, "no seccomp profile"),
    ],
)
def test_what_is_in_the_way_is_told(info, changed, why):
    assert why in find_crun(Client(), info | changed).why


def test_a_runtime_that_was_asked_for_is_the_docker_daemons_affair(info):
    assert "runsc" in find_crun(Client(), info, "runsc").why


def test_another_machines_daemon_and_who_is_not_root_are_told(info, monkeypatch):
    class Elsewhere:
        here = False

    assert "not on this host" in find_crun(Elsewhere(), info).why
    monkeypatch.setattr(availability.os, "geteuid", lambda: 1000)
    assert "not root" in find_crun(Client(), info).why


def test_what_is_missing_is_told_with_the_remedy(info, monkeypatch):
    monkeypatch.setattr(availability.shutil, "which", lambda program: None)
    found = find_crun(Client(), info)
    assert isinstance(found, Obstacle) and "python -m sandboxes setup" in found.why
    assert found.missing == "crun"


@pytest.mark.docker
async def test_what_starts_sandboxes_is_logged_and_can_be_forced(base_image, monkeypatch, caplog):
    which = shutil.which
    monkeypatch.setattr(availability.shutil, "which", lambda program: None if program == "crun" else which(program))
    caplog.set_level("INFO")
    async with DockerBackend():
        pass
    assert "The Docker daemon starts sandboxes: " in caplog.text
    with pytest.raises(SandboxError, match="crun can't start sandboxes here"):
        async with DockerBackend(starter="crun"):
            pass
    with pytest.raises(ValueError, match="choose one of docker, crun"):
        DockerBackend(starter="podman")


@pytest.mark.docker
@pytest.mark.parametrize("starter", [None, "crun"])
async def test_where_mounts_are_refused_the_docker_daemon_starts_sandboxes(with_crun, monkeypatch, caplog, starter):
    def refuse(flags):
        raise PermissionError("no mounts of its own")

    monkeypatch.setattr(availability.kernel, "unshare", refuse)
    if starter is None:
        async with DockerBackend():
            pass
        assert "no mounts of its own" in caplog.text
    else:
        with pytest.raises(SandboxError, match="no mounts of its own"):
            async with DockerBackend(starter=starter):
                pass
