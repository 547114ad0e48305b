"""The tunnel to a Docker daemon behind ssh."""

import asyncio
import tempfile

import pytest

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon import ssh
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.ssh import ssh_tunnel


@pytest.mark.docker
@pytest.mark.parametrize(
    ("url", "expected"),
    [("ssh://nowhere.invalid", "no ssh connection"), ("ssh://elsewhere/no/such.sock", "not usable")],
)
async def test_what_cannot_be_reached_says_why(over_ssh, url, expected):
    with pytest.raises(DaemonUnavailable, match=expected):
        async with connect(url):
            pass


async def test_a_machine_without_ssh_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DaemonUnavailable, match="needs an ssh client"):
        async with connect("ssh://somewhere"):
            pass


def fake_ssh(monkeypatch, folder, script):
    ssh = folder / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


async def test_an_ssh_that_says_nothing_is_not_waited_for(monkeypatch, tmp_path):
    fake_ssh(monkeypatch, tmp_path, "exec sleep 600")
    monkeypatch.setattr(ssh, "_LIMIT_S", 0.2)
    with pytest.raises(DaemonUnavailable, match="no answer in time"):
        async with asyncio.timeout(60), ssh_tunnel("ssh://me@host"):
            pass


async def test_an_ssh_that_says_much_goes_on(monkeypatch, tmp_path):
    say = 'yes "channel 3: open failed: connect failed: Connection refused" | head -n 20000 >&2'
    script = f': > "${{11%%:*}}"; {say}; : > {tmp_path}/done; exec sleep 600'
    fake_ssh(monkeypatch, tmp_path, script)
    async with asyncio.timeout(60), ssh_tunnel("ssh://me@host"):
        while not (tmp_path / "done").exists():  # noqa: ASYNC110 - made by another process
            await asyncio.sleep(0.02)


async def test_what_ssh_says_is_passed_on_and_nothing_is_left(monkeypatch, tmp_path):
    fake_ssh(monkeypatch, tmp_path, 'echo "Permission denied for $*" >&2; exit 255')
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DaemonUnavailable, match=r"Permission denied .*:/run/docker.sock -- ssh://me@host:22; `ssh ssh"):
        async with ssh_tunnel("ssh://me@host:22/run/docker.sock"):
            pass
    assert list(tmp_path.glob("atropos-ssh-*")) == []
