"""An ssh server of the test's own on loopback, through which a Docker daemon is reached as if on another machine."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon.startup import install

_SSHD = "/usr/sbin/sshd"
_SSH = "/usr/bin/ssh"
_NAME = "elsewhere"


class Sshd:
    """A server with a host key and an authorized key of its own.

    The client finds key, port and known host through `path`, a folder with an `ssh` that reads a configuration of the
    test's own: put it first on the PATH. Nothing of the user's is read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.url = f"ssh://{_NAME}"
        """Of the Docker daemon of this machine."""

    def __enter__(self) -> "Sshd":
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(key, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        public = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text(f"{_NAME} {public}")
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/user.pub\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n"
            f"PidFile {self.folder}/sshd.pid\n"
        )
        (self.folder / "ssh_config").write_text(
            f"Host {_NAME}\nHostName 127.0.0.1\nPort {port}\nUser root\nIdentityFile {self.folder}/user\n"
            f"IdentitiesOnly yes\nHostKeyAlias {_NAME}\nUserKnownHostsFile {self.folder}/known_hosts\n"
            "StrictHostKeyChecking yes\n"
        )
        self.path.mkdir()
        client = self.path / "ssh"
        client.write_text(f'#!/bin/sh\nexec {_SSH} -F {self.folder}/ssh_config "$@"\n')
        client.chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stderr=log)
        self._wait_for(port)
        return self

    def _wait_for(self, port: int) -> None:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except ConnectionRefusedError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.05)
            else:
                return
        pytest.fail((self.folder / "log").read_text()[-2000:])

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()


def need_sshd() -> None:
    """Install Debian's ssh server where that can be done, else skip the test."""
    if os.geteuid() != 0:
        pytest.skip("an ssh server of the test's own needs root")
    if not Path(_SSHD).exists() or shutil.which("ssh") is None:
        if Path("/run/systemd/system").exists():  # there the package would start a server that everybody can reach
            pytest.skip("no sshd on this machine; apt-get install openssh-server")
        try:
            asyncio.run(install("openssh-server", "openssh-client"))
        except DaemonUnavailable as error:
            pytest.skip(str(error))
