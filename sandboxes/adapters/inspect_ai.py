"""Sandboxes for inspect_ai: `sandbox="atropos"`, or `("atropos", "path/of/a/Dockerfile")`.

`SandboxEnvironmentSpec("atropos", AtroposConfig(...))` says the rest. inspect finds this module by the package's entry
point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from sandboxes.base import Backend, Limits, NoSuchUser, Sandbox, SandboxSpec
from sandboxes.docker.images.base_image import BASE_IMAGE
from sandboxes.registry import load_backend

_CANNOT_RUN = 126


class AtroposConfig(BaseModel):
    """The ingredients of a sample's sandbox. image: a name; else dockerfile: a path; else our base image."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = None
    dockerfile: str | None = None
    backend: str = "docker"
    workdir: str | None = None
    user: str | None = None
    cpus: float = 1.0
    memory_mb: int = 1024
    pids: int = 256
    disk_mb: int = 2048
    network: bool = False
    allowed_hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: SandboxEnvironmentConfigType | None) -> AtroposConfig:
        if isinstance(config, cls):
            return config
        return cls(dockerfile=None if config is None else str(config))

    def spec(self, image: str) -> SandboxSpec:
        limits = {name: getattr(self, name) for name in ("cpus", "memory_mb", "pids", "disk_mb", "network")}
        return SandboxSpec(
            image, self.workdir, user=self.user, limits=Limits(**limits, allowed_hosts=self.allowed_hosts)
        )


@sandboxenv(name="atropos")
class AtroposSandbox(SandboxEnvironment):
    """One sandbox of a sample. Made by `sample_init`."""

    _opened: ClassVar[dict[str, tuple[Backend, AsyncExitStack, int]]] = {}
    """The backends in use by tasks, by name, and how many tasks use each: inspect calls the class, for several tasks
    at once."""

    def __init__(self, sandbox: Sandbox, open_: AsyncExitStack) -> None:
        self.sandbox = sandbox
        self._open = open_

    @classmethod
    def config_files(cls) -> list[str]:
        return ["Dockerfile"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return AtroposConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        name = AtroposConfig.of(config).backend
        if name not in cls._opened:
            stack = AsyncExitStack()
            cls._opened[name] = await stack.enter_async_context(load_backend(name)), stack, 0
        backend, stack, users = cls._opened[name]
        cls._opened[name] = backend, stack, users + 1

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        name = AtroposConfig.of(config).backend
        backend, stack, users = cls._opened.pop(name)
        if users > 1:
            cls._opened[name] = backend, stack, users - 1
        else:
            await stack.aclose()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        wanted = AtroposConfig.of(config)
        backend = cls._opened[wanted.backend][0]
        context = None if wanted.dockerfile is None else Path(wanted.dockerfile).parent
        image = await backend.ensure_image(wanted.image or (BASE_IMAGE if context is None else None), context)
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(backend.open(wanted.spec(image)))
            return {"default": cls(sandbox, stack.pop_all())}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls)._open.aclose()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        stdin = input.encode() if isinstance(input, str) else input or b""
        try:
            ran = await self.sandbox.exec(
                cmd,
                timeout=math.inf if timeout is None else timeout,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                max_output=most,
                split=True,
            )
        except NoSuchUser:
            why = f"unable to find user {user}: no matching entries in passwd file"
            return ExecResult(False, _CANNOT_RUN, why, "")
        if ran.timed_out:
            raise TimeoutError(f"the command did not end within {timeout} s")
        out, err = ran.raw_stdout or b"", ran.raw_stderr or b""
        for text in (out, err):
            if len(text) > most:
                excerpt = text[:most].decode(errors="replace")
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, excerpt)
        if ran.exit_code == _CANNOT_RUN and b"permission denied" in (out + err)[-1000:].lower():
            raise PermissionError(f"{cmd[0]} can't be run: {(out + err).decode(errors='replace')}")
        return ExecResult(ran.ok, ran.exit_code, out.decode(), err.decode())

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self.sandbox.write_file(file, contents.encode() if isinstance(contents, str) else contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        try:
            data = await self.sandbox.read_file(file, max_bytes=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except ValueError as error:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return data.decode() if text else data
