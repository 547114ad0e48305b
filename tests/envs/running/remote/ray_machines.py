"""A Ray cluster of machines in network namespaces: each has a Docker daemon and a Ray node, and a cable."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from machines import Machine, sh
from pids import lives

HEAD = "10.213.0.1"
"""The head's address, on no cable."""
_OPTIONS = ("--object-store-memory=80000000", "--disable-usage-stats", "--block")
_BIN = Path(sys.executable).parent


class Head:
    """The cluster's head, which makes no rollouts. Used as `with`.

    folder: short, as it is in the names of sockets.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Head:
        sh(f"ip addr add {HEAD}/32 dev lo")
        with socket.create_server((HEAD, 0)) as free:
            self.address = f"{HEAD}:{free.getsockname()[1]}"
        ray = [_BIN / "ray", "start", "--head", f"--node-ip-address={HEAD}", f"--port={self.address.split(':')[1]}"]
        more = ["--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self._folder}/ray", *_OPTIONS]
        with (self._folder / "ray.log").open("wb") as log:
            self._process = subprocess.Popen([*ray, *more], stdout=log, stderr=log, start_new_session=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
        sh(f"ip addr del {HEAD}/32 dev lo")


class RayMachine(Machine):
    """A machine with a Ray node, whose workers find its Docker daemon by DOCKER_HOST."""

    async def start(self) -> None:
        self._node = None
        self._rays = self.folder.with_name(f"ray{self.address.split('.')[2]}")  # not what is the Docker daemon's
        await super().start()
        sh(f"ip -n {self.name} route add default via {self.here}")

    def join(self, head: Head) -> None:
        """Start its Ray node."""
        command = ["nsenter", f"--net=/run/netns/{self.name}", _BIN / "ray", "start", f"--address={head.address}"]
        command += [f"--node-ip-address={self.address}", "--num-cpus=1", f"--temp-dir={self._rays}", *_OPTIONS]
        paths = os.pathsep.join(path for path in sys.path if path)
        own = {"DOCKER_HOST": self.socket, "PYTHONPATH": paths, "RAY_ENABLE_METRICS_COLLECTION": "0"}
        with (self.folder / "ray.log").open("ab") as log:
            self._node = subprocess.Popen(
                command, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
            )

    def node_ends(self, seconds: float) -> None:
        """Wait until its Ray node has ended by itself."""
        self._node.wait(seconds)

    async def power_off(self) -> None:
        """End everything on it at once."""
        while pids := self._alive() - {self._process.pid}:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
        self._node.wait()
        await self.kill()

    def left(self) -> list[str]:
        """What of sandboxes is on it."""
        ground = self.storage / "atropos-agent"
        return [*self.containers(), *(found.name for found in (ground.iterdir() if ground.is_dir() else ()))]

    async def leave(self) -> None:
        if self._node is not None:
            self._node.terminate()
            await asyncio.to_thread(self._node.wait)
        await super().leave()

    def _alive(self) -> set[int]:
        """Processes in its network."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True).stdout
        return {int(pid) for pid in found.split() if lives(int(pid))}
