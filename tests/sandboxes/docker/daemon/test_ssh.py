"""The tunnel to a Docker daemon behind ssh."""

import tempfile

import pytest

from sandboxes.base import DaemonUnavailable
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


async def test_what_ssh_says_is_passed_on_and_nothing_is_left(monkeypatch, tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "Permission denied for $*" >&2\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DaemonUnavailable, match=r"Permission denied .*:/run/docker.sock -- ssh://me@host:22; `ssh ssh"):
        async with ssh_tunnel("ssh://me@host:22/run/docker.sock"):
            pass
    assert list(tmp_path.glob("atropos-ssh-*")) == []
