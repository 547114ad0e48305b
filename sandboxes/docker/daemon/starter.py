"""From a description to a running container with a greeting from its executor, and its removal."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiodocker
import aiodocker.containers
from tenacity import (
    AsyncRetrying,
    before_sleep_log,
    retry_if_exception_type,
    stop_after_attempt,
    wait_chain,
    wait_fixed,
)

from sandboxes.base import (
    DaemonError,
    DaemonUnavailable,
    Door,
    ImageMissing,
    Limits,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
)
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors, image_remedy, sees_folder
from sandboxes.docker.daemon.container import DaemonContainer
from sandboxes.docker.daemon.engine import Engine
from sandboxes.docker.daemon.mounts import Mounts
from sandboxes.docker.daemon.network import ensure_network
from sandboxes.docker.daemon.reap import remove
from sandboxes.docker.daemon.stream import AttachedStream
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.connection import Connection
from sandboxes.docker.executor.container import Kind, Starter
from sandboxes.docker.executor.disk_usage import HostPaths
from sandboxes.docker.executor.program import (
    CAPABILITIES,
    EXECUTOR,
    archive_of,
    executor_arguments,
    hosts_of,
    program_for,
    root_capabilities,
)
from sandboxes.docker.executor.proxy import tunnels_of
from sandboxes.docker.kernel_log import KernelLog
from sandboxes.docker.slots import Slots
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/proc/1"]
"""Docker's own, and process 1: else a user with write access to all files could have the memory killer take it
first."""
_GVISOR_THREADS = 32
"""A process's price in the host's count of them under gVisor, with gVisor's own threads (up to 16 each were seen);
beyond it gVisor ends."""
_REMOVAL_S = 120.0
"""How long a removal may take, with its turn; then leaving the backend tries again, or a later start."""
_INITIAL = "-init/diff"
"""The end of the path of the layer with a container's `/etc/hosts` and the like, by the overlay drivers."""
_HOLDING = Limits(cpus=0.1, memory_mb=32, pids=16)
"""Limits of a container that does nothing."""
_SHM = 64 * 2**20
_IMAGES_KNOWN = 1000
_RETRIES_S = (0.5, 2.0, 5.0)
_NO_QUOTA = ("storage-opt", "storage opt", "pquota", "quota")


class DaemonStarter(Starter):
    """Starts and removes containers, a few at a time, so the Docker daemon keeps answering.

    shortcut: past the Docker daemon if this process is root on its machine (see `Connection.bypass_daemon`).
    """

    def __init__(
        self,
        client: DaemonClient,
        owner: Owner,
        engine: Engine,
        *,
        max_starts: int,
        timeout_s: float,
        runtime: str | None,
        shortcut: bool,
    ) -> None:
        self.client = client
        self.owner = owner
        self._engine = engine
        self._mounts = Mounts(client, owner.labels())
        self.executor = program_for(engine.architecture)
        self._slots = Slots(max_starts)
        self._log = KernelLog()
        self.max_starts = max_starts
        self.timeout_s = timeout_s
        self._runtime = runtime
        self._numbers = itertools.count(1)
        self._shortcut = shortcut
        self._images: dict[str, Mapping[str, Any]] = {}
        self.quota = engine.quotas  # whether it really has them is found out with the first container

    @property
    def busy(self) -> bool:
        """Return whether a start would have to wait."""
        return self._slots.is_full

    async def launch(self, kind: Kind) -> DaemonContainer:
        """Start a container; retries while the Docker daemon has temporary trouble.

        Raises ImageMissing, SandboxTimeout, DaemonUnavailable, SandboxError; then nothing is left.
        """
        container: DaemonContainer = await retrying()(self._launch, kind)
        return container

    async def _launch(self, kind: Kind) -> DaemonContainer:
        name = f"atropos-{self.owner.id}-{next(self._numbers)}"
        async with AsyncExitStack() as stack:
            # By name and before it exists: also a container whose creation was cut short is removed.
            stack.push_async_callback(lambda: finish(self._remove(name)))
            async with self._slots:
                try:
                    async with asyncio.timeout(self.timeout_s), daemon_errors(f"start sandbox {name}", None):
                        container = await self._create(name, kind)
                        image = await self._place_files(container, kind)
                        channel = await self._attach_and_start(stack, container, name, kind)
                except ImageMissing as error:
                    raise ImageMissing(image_remedy(kind.image)) from error
                except TimeoutError as error:
                    if isinstance(error, SandboxError):
                        raise
                    raise SandboxTimeout(f"sandbox {name} did not start within {self.timeout_s:g} s") from error
            host_paths = _host_paths(container) if self._shortcut else None
            return DaemonContainer(
                *(kind, name, container, channel, image, stack.pop_all()),
                client=self.client,
                labels=self.owner.labels(),
                log=self._log,
                host_paths=host_paths,
                quota=self.quota,
            )

    async def start_holder(self, image: str, name: str) -> None:
        """Start a container that keeps the image with this id, by doing nothing. Raises SandboxError.

        It has to run: `docker system prune` removes stopped ones first, with their images then."""
        kind = Kind(image, _HOLDING, switch_users=False)
        config = container_config(kind, self.owner.labels(), runtime=self._runtime)
        # Its stream never ends, nor does its lease: it goes with its owner, whose containers are removed.
        config |= {"Cmd": ["lease=0"], "StdinOnce": False}
        config["HostConfig"] = self._engine.adapt_config(config["HostConfig"])
        async with self._slots, daemon_errors(f"hold image {image}", self.timeout_s):
            creating = self.client.containers.create(config, name=name)
            container = await finish(asyncio.wait_for(creating, self.timeout_s))
            await self._place_files(container, kind)
            await container.start()

    async def close(self) -> None:
        """Wait for all running starts; no new one begins, and nothing is removed one by one."""
        await self._slots.close()
        self._log.close()

    async def _image(self, found: str) -> Mapping[str, Any]:
        """Return the configuration of the image with this id. It never changes, so it is read once."""
        if found not in self._images:
            if len(self._images) >= _IMAGES_KNOWN:
                self._images.clear()
            self._images[found] = (await self.client.images.inspect(found))["Config"]
        return self._images[found]

    async def _create(self, name: str, kind: Kind) -> aiodocker.containers.DockerContainer:
        network = await ensure_network(self.client, self._runtime) if kind.limits.network else "bridge"
        config = container_config(kind, self.owner.labels(), runtime=self._runtime, quota=self.quota, network=network)
        config["HostConfig"] = self._engine.adapt_config(config["HostConfig"])
        config["HostConfig"]["Mounts"] = await self._mounts.describe(kind.mounts, kind.image)
        try:
            # Shielded, because a request that is dropped half way can still make a container later.
            creating = self.client.containers.create(config, name=name)
            container = await finish(asyncio.wait_for(creating, self.timeout_s))
        except aiodocker.DockerError as error:
            if not self.quota or not any(word in str(error.message).lower() for word in _NO_QUOTA):
                raise
            logger.info("This Docker daemon's storage has no quotas; what sandboxes write is watched instead")
            self.quota = False
            return await self._create(name, kind)
        return container

    async def _place_files(self, container: aiodocker.containers.DockerContainer, kind: Kind) -> Mapping[str, Any]:
        """Put the executor into a container before its start, and the names of hosts, which the Docker daemon writes
        for those with a network alone. Returns its image's configuration."""
        shown = await container.show()
        files = {EXECUTOR: (self.executor, 0o755)}
        if not kind.limits.network:
            files["etc/hosts"] = (hosts_of(shown["Config"]["Hostname"]), 0o644)
        if not (self._shortcut and await self._write_files(shown, files)):
            await container.put_archive("/", archive_of(files))  # type: ignore[no-untyped-call]  # aiodocker's gap
        return await self._image(shown["Image"])

    async def _write_files(self, shown: Mapping[str, Any], files: Mapping[str, tuple[bytes, int]]) -> bool:
        """Write files into the container's layers, which spares a process. Returns whether they are on this machine."""
        layers = (shown.get("GraphDriver") or {}).get("Data") or {}
        try:
            await asyncio.to_thread(_write, layers, files)
        except OSError as error:
            logger.debug("the executor takes the Docker daemon's way: %r", error)
            return False
        return True

    async def _attach_and_start(
        self, stack: AsyncExitStack, container: aiodocker.containers.DockerContainer, name: str, kind: Kind
    ) -> Channel:
        # A client of its own: a client's pool of connections is limited.
        own = self.client.clone()
        stack.push_async_callback(own.close)

        async def attach() -> AttachedStream:
            async with daemon_errors(f"attach to sandbox {name}"):
                stream = _Attachable(own, id=container.id).attach(stdin=True, stdout=True, stderr=True)
                await stream._init()
            return AttachedStream(stream)

        async def is_running() -> bool:
            async with daemon_errors(f"look for sandbox {name}"):
                return bool((await container.show())["State"]["Running"])

        doors: dict[int, Door] = {}
        connection = Connection(name, attach, is_running, tunnels_of(kind.limits, doors))
        stack.push_async_callback(connection.close)
        await connection.attach()  # the Docker daemon must be attached before the executor speaks
        await container.start()
        try:
            await connection.greet(self.timeout_s)
        except SandboxDied as error:
            state = (await container.show())["State"]
            raise SandboxError(f"sandbox {name} ended at once: {state.get('Error') or state['ExitCode']}") from error
        if self._shortcut:
            pid = (await container.show())["State"]["Pid"]
            if await connection.bypass_daemon(pid, self.timeout_s):
                await own.close()
        return Channel(connection, doors)

    async def _remove(self, name: str) -> None:
        if self._slots.closed:
            return  # the backend was left first and removes everything
        try:
            async with daemon_errors(f"remove sandbox {name}", _REMOVAL_S), self._slots.turn:
                await remove(self.client, name)
        except SandboxError as error:
            # What was done in the sandbox counts all the same; leaving the backend tries once more.
            logger.warning("%s", error)


class _Attachable(aiodocker.containers.DockerContainer):
    """A container of ours without a terminal; to attach, aiodocker would ask whether it has one."""

    async def show(self, **_: Any) -> dict[str, Any]:
        return {"Config": {"Tty": False}}


def retrying() -> AsyncRetrying:
    """Return the retries of a start during temporary trouble of the Docker daemon."""
    return AsyncRetrying(
        retry=retry_if_exception_type((DaemonError, DaemonUnavailable)),
        wait=wait_chain(*map(wait_fixed, _RETRIES_S)),
        stop=stop_after_attempt(len(_RETRIES_S) + 1),
        before_sleep=before_sleep_log(logger, logging.INFO),
        reraise=True,
    )


def container_config(
    kind: Kind, labels: Mapping[str, str], *, runtime: str | None = None, quota: bool = False, network: str = "bridge"
) -> dict[str, Any]:
    """Return the Docker daemon's description of a container; `network` is for one that may have a network."""
    limits = kind.limits
    return {
        "Image": kind.image,
        "Entrypoint": ["/" + EXECUTOR],
        "Cmd": list(executor_arguments(kind)),
        "User": "0:0",  # the executor's; commands run as the spec or the image says
        "Labels": dict(labels),
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,  # when the owner dies its stream ends, and with that the executor
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": not limits.network,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(kind, runtime, quota, network),
    }


def _host_config(kind: Kind, runtime: str | None, quota: bool, network: str) -> dict[str, Any]:
    """Return the host's part of this description: isolation and limits."""
    limits = kind.limits
    host: dict[str, Any] = {
        "NetworkMode": network if limits.network else "none",
        "CapDrop": ["ALL"],
        "CapAdd": sorted({*CAPABILITIES, *root_capabilities(kind)}),
        "ReadonlyPaths": _READ_ONLY,
        "SecurityOpt": ["no-new-privileges:true"],
        "PidsLimit": limits.pids * (_GVISOR_THREADS if runtime == "runsc" else 1),
        "Memory": limits.memory_mb * 2**20,
        "MemorySwap": limits.memory_mb * 2**20,
        "NanoCpus": int(limits.cpus * 1e9),
        "LogConfig": {"Type": "none"},  # else the Docker daemon writes every frame to a file
        "Init": False,
        "IpcMode": "private",
        "ShmSize": min(_SHM, limits.memory_mb * 2**19),  # full, it leaves memory for the command that empties it
    }
    if runtime is not None:
        host["Runtime"] = runtime
    if quota:
        host["StorageOpt"] = {"size": f"{limits.disk_mb}M"}
    return host


def _host_paths(shown: aiodocker.containers.DockerContainer) -> HostPaths | None:
    """Return the places on this host of a container just inspected; None if they can't be seen."""
    try:
        driver = shown["GraphDriver"] or {}
    except KeyError:  # of containerd's image store, from Docker 29 on
        driver = {}
    layer = Path((driver.get("Data") or {}).get("UpperDir") or "/nowhere")
    volumes = [Path(mount["Source"]) for mount in shown["Mounts"] if mount["Type"] == "volume" and mount["RW"]]
    # With a network, files of the Docker daemon's folder for the container stand in /etc, for root to write.
    names = [Path(shown["HostsPath"]).parent] if shown["HostsPath"] else []
    if not all(map(sees_folder, (layer, *volumes, *names))):
        return None
    return HostPaths((layer, *volumes, *names), shown["State"]["Pid"])


def _write(layers: Mapping[str, str], files: Mapping[str, tuple[bytes, int]]) -> None:
    """Write files at the top of a container's own layer. Those below its top are in the layer that the Docker daemon
    made for it with an owner of its own, who is not this process's in namespaces of users: such a file is there, and
    empty."""
    own, below = layers.get("UpperDir") or "/nowhere", (layers.get("LowerDir") or "").partition(":")[0]
    for name, (data, mode) in files.items():
        if "/" not in name:
            path = Path(own, name)
            path.write_bytes(data)
            path.chmod(mode)
        elif below.endswith(_INITIAL):
            with os.fdopen(os.open(Path(below, name), os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:
                file.write(data)
        else:
            raise FileNotFoundError(name)
