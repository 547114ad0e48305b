"""Images for pods: by name, by a builder that the user names, or a plain image with files."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from pathlib import Path

from sandboxes.base import ImageMissing, ImageUnbuildable
from sandboxes.kubernetes.options import PodOptions
from sandboxes.trees import pack

_SHOWN = 2000
_FILES = "+files-"


class PodImages:
    """Names of images, and the files that sandboxes of some of them begin with. base: the image for none's name."""

    def __init__(self, options: PodOptions, base: str) -> None:
        self._options = options
        self._base = base
        self._files: dict[str, bytes] = {}
        self._building: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, name: str | None, context: Path | None) -> str:
        """Return the name for a sandbox. Raises ImageMissing, with the remedy, or ImageUnbuildable."""
        if context is None or not await asyncio.to_thread(context.is_dir):
            if name is None:
                return self._base
            return name
        archive = await asyncio.to_thread(pack, context)
        digest = hashlib.sha256(archive).hexdigest()[:24]
        if not await asyncio.to_thread((context / "Dockerfile").is_file):
            image = f"{name or self._base}{_FILES}{digest}"
            self._files[image] = archive
            return image
        if not (self._options.builder and self._options.registry):
            raise ImageMissing(
                f"a cluster builds no images, and {context} has a Dockerfile: build it and push it to a registry, and "
                "name it as the task's docker_image; or name --env.pods.registry and --env.pods.builder, which do this"
            )
        image = f"{self._options.registry}:{digest}"
        if image not in self._building or (self._building[image].done() and self._building[image].exception()):
            command = self._options.builder.format(image=shlex.quote(image), context=shlex.quote(str(context)))
            self._building[image] = asyncio.create_task(_build(command, context), name=f"build {image}")
        await asyncio.shield(self._building[image])
        return image

    def parts(self, image: str) -> tuple[str, bytes | None]:
        """Return the image behind a name, and the files that are put into its working directory."""
        return image.partition(_FILES)[0], self._files.get(image)


async def _build(command: str, context: Path) -> None:
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        end = said[-_SHOWN:].decode(errors="replace")
        raise ImageUnbuildable(f"--env.pods.builder ended with {process.returncode} for {context}: {end}")
