"""Images for pods: by name, by a builder that the user names, or a plain image with files."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from pathlib import Path

from sandboxes.base import ImageUnbuildable
from sandboxes.kubernetes.options import PodOptions
from sandboxes.patience import build_limit
from sandboxes.remote.images import NamedImages
from sandboxes.shielding import await_shared

_SHOWN = 2000


class PodImages(NamedImages):
    """Images that nodes pull when a pod starts."""

    def __init__(self, options: PodOptions, base: str) -> None:
        super().__init__(base)
        self._options = options
        self._building: dict[str, asyncio.Task[None]] = {}

    def unbuildable(self, context: Path) -> str | None:
        if self._options.builder and self._options.registry:
            return None
        return (
            f"a cluster builds no images, and {context} has a Dockerfile: build it and push it to a registry, and "
            "name it as the task's docker_image; or name --env.pods.registry and --env.pods.builder, which do this"
        )

    async def build(self, context: Path, digest: str) -> str:
        image = f"{self._options.registry}:{digest}"
        if image not in self._building or (self._building[image].done() and self._building[image].exception()):
            command = self._options.builder.format(image=shlex.quote(image), context=shlex.quote(str(context)))
            self._building[image] = asyncio.create_task(_build(command, context), name=f"build {image}")
        await await_shared(self._building[image])
        return image


async def _build(command: str, context: Path) -> None:
    # A file, since a program that outlives the builder may hold a pipe open.
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_shell(
            command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            async with build_limit(context):
                await process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _SHOWN))
            end = output.read().decode(errors="replace")
            raise ImageUnbuildable(f"--env.pods.builder ended with {process.returncode} for {context}: {end}")
