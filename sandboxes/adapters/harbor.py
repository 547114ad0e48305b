"""Sandboxes for Harbor: `harbor run --env sandboxes.adapters.harbor:AtroposEnvironment`."""

from __future__ import annotations

import errno
import io
import math
import os
import posixpath
import tarfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import require_agent_environment_definition, should_use_prebuilt_docker_image
from harbor.models.task.config import NetworkMode

from sandboxes.adapters.background import background_loop
from sandboxes.base import Limits, Sandbox, SandboxSpec
from sandboxes.trees import pack

_MOST_OUTPUT = 16 * 2**20
_MOST_BYTES = 2**31
_MOST_LINKS = 40
"""As many as the kernel follows in a path."""


class AtroposEnvironment(BaseEnvironment):
    """One sandbox of a trial. backend: an option of the job's environment. Tasks of several containers are refused."""

    def __init__(self, *args: Any, backend: str = "docker", pids: int = 1024, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._backend = backend
        self._pids = pids
        self._open = AsyncExitStack()
        self._sandbox: Sandbox | None = None

    @staticmethod
    def type() -> str:
        return "atropos"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        kinds = (
            "hostnames",
            "wildcard_hostnames",
            *(f"ipv{v}_{what}" for v in (4, 6) for what in ("addresses", "cidrs")),
        )
        lists = {f"network_allowlist_{kind}": True for kind in kinds}
        return EnvironmentCapabilities(disable_internet=True, network_allowlist=True, **lists)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        image = self.task_env_config.docker_image
        require_agent_environment_definition(self.environment_dir, docker_image=image)
        if not image and not (self.environment_dir / "Dockerfile").exists():
            raise ValueError(f"{self.environment_dir} describes several containers; here a task has one")

    @property
    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the environment was not started, or was stopped")
        return self._sandbox

    def _limits(self) -> Limits:
        policy, known = self._network_policy, Limits()
        return Limits(
            cpus=self._effective_cpus or known.cpus,
            memory_mb=self._effective_memory_mb or known.memory_mb,
            disk_mb=self._effective_storage_mb or known.disk_mb,
            pids=self._pids,
            network=policy.network_mode == NetworkMode.PUBLIC,
            allowed_hosts=tuple(policy.allowed_hosts) if policy.network_mode == NetworkMode.ALLOWLIST else (),
        )

    async def start(self, force_build: bool) -> None:
        self._sandbox = await background_loop().run_async(self._open_sandbox(force_build))
        await self.ensure_dirs(["/logs/agent", "/logs/verifier", "/logs/artifacts"])
        await self._upload_environment_dir_after_start()

    async def _open_sandbox(self, force_build: bool) -> Sandbox:
        config, folder = self.task_env_config, self.environment_dir
        ready = should_use_prebuilt_docker_image(folder, docker_image=config.docker_image, force_build=force_build)
        backend = await background_loop().backend(self._backend)
        image = await backend.ensure_image(config.docker_image if ready else None, None if ready else folder)
        spec = SandboxSpec(image, config.workdir, self._startup_env(), limits=self._limits())
        return await self._open.enter_async_context(backend.open(spec))

    async def stop(self, delete: bool) -> None:
        self._sandbox = None
        await background_loop().run_async(self._open.aclose())

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        whose = self._resolve_user(user)
        work = self._running.exec(
            ["bash", "-c", command],
            timeout=timeout_sec or math.inf,
            cwd=cwd,
            env=self._merge_env(env),
            user=None if whose is None else str(whose),
            max_output=_MOST_OUTPUT,
            split=True,
        )
        ran = await background_loop().run_async(work)
        if ran.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr, return_code=ran.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        folder, name = posixpath.split(target_path)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(source_path, name, recursive=False, filter=_set_root_owner)
        await background_loop().run_async(self._running.upload(packed.getvalue(), folder or "."))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await background_loop().run_async(self._running.upload(pack(Path(source_dir)), target_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        _write(Path(target_path), await background_loop().run_async(_read_file(self._running, source_path)))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        archive = await background_loop().run_async(self._running.download(source_dir, max_bytes=_MOST_BYTES))
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(target_dir, filter=transfer_tar_filter)


async def _read_file(sandbox: Sandbox, path: str) -> bytes:
    """Return the content of a file, or of the one that a link leads to. Raises OSError, ValueError if it is neither."""
    try:
        await sandbox.download(posixpath.join(path, ""), max_bytes=0)
        is_folder = True
    except NotADirectoryError:
        is_folder = False
    except ValueError:  # it holds something
        is_folder = True
    if is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    for _ in range(_MOST_LINKS):
        archive = await sandbox.download(path, max_bytes=_MOST_BYTES)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            content = tar.extractfile(member) if member is not None and member.isreg() else None
            if content is not None:
                return content.read()
        if member is None or not member.issym():
            break
        path = posixpath.join(posixpath.dirname(path), member.linkname)
    raise ValueError(f"{path} is no regular file")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _set_root_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
