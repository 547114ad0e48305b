"""A sandbox backend of one's own: the Docker one, which logs every command of the agent and of the verifier.

python -m envs.swe serve --env.sandbox sandbox_backend:LoggingBackend        (in this folder)
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sandboxes.base import ExecResult, Sandbox, SandboxSpec, Session
from sandboxes.docker import DockerBackend
from sandboxes.wrapped import WrappedSandbox, WrappedSession


def logged(command: str | Sequence[str], result: ExecResult) -> ExecResult:
    logging.getLogger("commands").warning("%s ended with %d: %s", command, result.exit_code, result.output[:80])
    return result


class LoggedSession(WrappedSession):
    async def run(self, command: str, **options: Any) -> ExecResult:
        return logged(command, await super().run(command, **options))


class LoggedSandbox(WrappedSandbox):
    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return logged(command, await super().exec(command, **options))

    async def session(self, **options: Any) -> Session:
        return LoggedSession(await super().session(**options))


class LoggingBackend(DockerBackend):
    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        async with super().open(spec) as sandbox:
            yield LoggedSandbox(sandbox)
