"""Machines in network namespaces of their own: a Docker daemon each, reached over a cable that can be pulled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from own_daemon import copy_image, running


def sh(command: str) -> None:
    done = subprocess.run(["sh", "-ec", command], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Machine:
    """A network namespace with a cable to this one and a dockerd in it, whose storage has a size of its own.

    number: of this machine's, from 1 on. certificates: a folder with those of the daemon; None for a socket alone.
    """

    def __init__(self, folder: Path, number: int, *, certificates: Path | None = None, storage_mb: int = 1500) -> None:
        self.folder = folder
        self.name = f"atropos{number}"
        self.cable = f"atropos{number}c"
        self.here, self.address = f"10.213.{number}.1", f"10.213.{number}.2"
        self.socket = f"unix://{folder}/docker.sock"
        self.storage = folder / "data"
        self._storage_mb = storage_mb
        self._process: asyncio.subprocess.Process | None = None
        # `ip netns exec` would hide the cgroups.
        self._command = ["nsenter", f"--net=/run/netns/{self.name}", "dockerd"]
        self._command += [f"--data-root={self.storage}", f"--exec-root={folder}/exec", f"--host={self.socket}"]
        self._command += [f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false", "--ip-masq=false"]
        if certificates is not None:
            self._command += ["--tlsverify", f"--host=tcp://{self.address}:2376"]
            self._command += [f"--tls{name}={certificates}/{name}.pem" for name in ("cacert", "cert", "key")]

    async def start(self) -> None:
        self.folder.mkdir(parents=True)
        self.storage.mkdir()
        sh(
            f"ip netns add {self.name}; ip link add {self.cable} type veth peer name eth0 netns {self.name};"
            f"ip addr add {self.here}/24 dev {self.cable}; ip link set {self.cable} up;"
            f"ip -n {self.name} addr add {self.address}/24 dev eth0; ip -n {self.name} link set eth0 up;"
            f"ip -n {self.name} link set lo up;"
            f"truncate -s {self._storage_mb}M {self.folder}/disk; mkfs.ext4 -q {self.folder}/disk;"
            f"mount -o loop {self.folder}/disk {self.storage}"
        )
        await self.boot()

    async def boot(self) -> None:
        self._process = await running(self._command, self.folder, self.socket)

    async def kill(self) -> None:
        """End its Docker daemon and all containers, as if it had lost its power."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        for pid in self._inside():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in ("pid", "exec/containerd/containerd.pid"):
            (self.folder / name).unlink(missing_ok=True)

    def _inside(self) -> list[int]:
        """Its containers' and its containerd's processes."""
        found = subprocess.run(["pgrep", "-f", str(self.folder)], check=False, capture_output=True, text=True).stdout
        return [int(word) for word in found.split() if int(word) != os.getpid()]

    def pull_cable(self) -> None:
        sh(f"ip link set {self.cable} down")

    def plug_in(self) -> None:
        sh(f"ip link set {self.cable} up")

    def fill(self) -> None:
        """Leave no room in its storage."""
        subprocess.run(["dd", "if=/dev/zero", f"of={self.storage}/filling", "bs=1M"], check=False, capture_output=True)

    def clear(self) -> None:
        (self.storage / "filling").unlink()

    def has(self, image: str) -> None:
        copy_image(image, self.socket)

    def containers(self) -> list[str]:
        listed = ["docker", "-H", self.socket, "ps", "-aq"]
        return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()

    async def leave(self) -> None:
        """End it for good, also one that did not come up; nothing of it is left."""
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 60)
        await asyncio.to_thread(self._tidy_up)

    def _tidy_up(self) -> None:
        for pid in self._inside():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in reversed([place for place in places if place.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", place], check=False)
        for command in (["ip", "link", "del", self.cable], ["ip", "netns", "del", self.name]):
            subprocess.run(command, check=False, capture_output=True)


def authority(folder: Path) -> None:
    """Make a CA of the test's own."""
    folder.mkdir()
    sh(f"cd {folder}; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=ca")


def certificates(by: Path, folder: Path, name: str, *, server: str = "") -> None:
    """Make a key and a certificate. server: the address that it is for; else it is a client's."""
    folder.mkdir()
    use = f"extendedKeyUsage=serverAuth\\nsubjectAltName=IP:{server}" if server else "extendedKeyUsage=clientAuth"
    sh(
        f"cd {folder}; cp {by}/ca.pem ca.pem; cp {by}/ca.pem cacert.pem; printf '{use}\\n' > use;"
        f"openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request -subj /CN={name} 2>/dev/null;"
        f"openssl x509 -req -in request -CA {by}/ca.pem -CAkey {by}/ca-key.pem -CAcreateserial -out cert.pem -days 2 "
        "-extfile use 2>/dev/null"
    )
