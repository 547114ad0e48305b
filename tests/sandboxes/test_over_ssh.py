"""A Docker daemon behind ssh://: everything that talks to one goes through the same tunnel."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from uses import has_session_and_fork

from envs.checking.check import check_tasks
from envs.cli.checks import Status
from envs.swe import STARTER
from envs.swe.doctor import surroundings
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.tasks.harbor import load_tasks
from sandboxes.base import DaemonUnavailable, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.images.base_image import ensure_base_image

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("given", [True, False], ids=["by url", "by DOCKER_HOST"])
async def test_sandboxes_are_opened_and_used(over_ssh, base_image, monkeypatch, given):
    if given:
        monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    async with (
        DockerBackend(url=over_ssh if given else None, shortcut=False) as backend,
        backend.open(SandboxSpec(base_image, workdir="/app")) as box,
    ):
        await has_session_and_fork(box)


async def test_the_daemon_counts_as_one_of_another_machine(over_ssh):
    async with connect() as client:
        assert not client.here, "its directories are not looked for on this machine"
        async with client.clone() as other:
            assert (await other.version())["Arch"]
            assert not other.here


async def test_the_preflight_passes(over_ssh):
    await SWEEnv.preflight(SWEEnvConfig(tokenizer_name="unused"))


async def test_the_doctor_sees_it(over_ssh, tmp_path):
    checks = {check.name: check async for check in surroundings(SWEEnvConfig(run_dir=tmp_path))}
    assert checks["sandboxes"].status is Status.OK, checks["sandboxes"]


async def test_a_checked_task_tells_the_size_of_its_image(over_ssh, base_image):
    task = next(task for task in load_tasks(STARTER) if task.id == "create-notes")
    async with DockerBackend(base_image=base_image, shortcut=False) as backend:
        (result,) = await check_tasks(backend, [task])
    assert result.ok, result.problem
    assert result.image_mb > 1


async def test_the_base_image_is_found(over_ssh, base_image):
    assert await ensure_base_image() == base_image


def test_what_dead_owners_left_is_reaped(over_ssh):
    done = subprocess.run([sys.executable, "-m", "sandboxes", "reap"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "containers and images of dead owners" in done.stdout


@pytest.mark.parametrize("known", ["another", "unknown"])
def test_a_server_with_another_host_key_than_is_known_is_refused(over_ssh, monkeypatch, tmp_path, known):
    client = Path(shutil.which("ssh"))
    place = client.parent.parent
    if known == "another":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
        (tmp_path / "known").write_text(f"elsewhere {(tmp_path / 'key.pub').read_text()}")
    else:  # and ssh is as it comes: it would ask
        (tmp_path / "known").write_text("")
    config = (place / "ssh_config").read_text().replace(f"{place}/known_hosts", f"{tmp_path}/known")
    (tmp_path / "config").write_text(config.replace("StrictHostKeyChecking yes\n", ""))
    (tmp_path / "ssh").write_text(client.read_text().replace(f"{place}/ssh_config", f"{tmp_path}/config"))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    async def reach():
        async with connect(over_ssh):
            pass

    with pytest.raises(DaemonUnavailable, match=r"Host key verification failed.*has to work") as raised:
        asyncio.run(reach())
    assert "systemctl start docker" not in str(raised.value), "that is no remedy"
