"""Sandboxes for mini-swe-agent: `environment_class: sandboxes.adapters.mini_swe_agent.AtroposEnvironment`."""

from __future__ import annotations

import weakref
from contextlib import AsyncExitStack
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from sandboxes.adapters.background import background_loop
from sandboxes.base import Limits, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.images.base_image import BASE_IMAGE

_SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class AtroposEnvironmentConfig(BaseModel):
    """image: a name. cwd: None takes the image's own. timeout: of a command, in seconds."""

    image: str = BASE_IMAGE
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout: float = 30.0
    user: str | None = None
    backend: str = "docker"
    cpus: float = 1.0
    memory_mb: int = 1024
    pids: int = 256
    disk_mb: int = 2048
    network: bool = False
    interpreter: list[str] = ["bash", "-lc"]


class AtroposEnvironment:
    """One sandbox, opened here and removed by `cleanup`, or with the process."""

    def __init__(self, **options: Any) -> None:
        self.config = AtroposEnvironmentConfig(**options)
        self._open = open_ = AsyncExitStack()
        self._sandbox = background_loop().run(self._open_sandbox())
        # Not every run of mini-swe-agent cleans up.
        weakref.finalize(self, lambda: background_loop().submit(open_.aclose())).atexit = False

    async def _open_sandbox(self) -> Sandbox:
        config = self.config
        backend = await background_loop().backend(config.backend)
        limits = {name: getattr(config, name) for name in ("cpus", "memory_mb", "pids", "disk_mb", "network")}
        image = await backend.ensure_image(config.image)
        spec = SandboxSpec(image, config.cwd, config.env, config.user, Limits(**limits))
        return await self._open.enter_async_context(backend.open(spec))

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run an action's command. Raises Submitted if its output says that the task is done."""
        command = [*self.config.interpreter, action.get("command", "")]
        seconds = timeout or self.config.timeout
        try:
            ran = background_loop().run(self._sandbox.exec(command, cwd=cwd or None, timeout=seconds))
        except (SandboxError, OSError, ValueError) as error:
            return _failure("", f"An error occurred while executing the command: {error}", error)
        if ran.timed_out:
            late = TimeoutError(f"the command did not end within {seconds:g} s")
            return _failure(ran.output, f"An error occurred while executing the command: {late}", late)
        first, _, rest = ran.output.lstrip().partition("\n")
        if ran.ok and first.strip() == _SUBMITTED:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})
        return {"output": ran.output, "returncode": ran.exit_code, "exception_info": ""}

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        uname = background_loop().run(self._sandbox.exec("uname -s; uname -r; uname -v; uname -m")).output.splitlines()
        machine = dict(zip(("system", "release", "version", "machine"), uname, strict=False))
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), machine, more)
        return merged

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        """Remove the sandbox."""
        background_loop().run(self._open.aclose())


def _failure(output: str, why: str, error: Exception) -> dict[str, Any]:
    extra = {"exception_type": type(error).__name__, "exception": str(error)}
    return {"output": output, "returncode": -1, "exception_info": why, "extra": extra}
