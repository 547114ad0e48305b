"""Images: one that is present, one that can be pulled, or one built from a directory with a Dockerfile."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import re
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiodocker
from docker.utils.build import exclude_paths

from sandboxes.base import DaemonError, ImageMissing, SandboxError, StorageFull
from sandboxes.docker.daemon import DaemonClient, daemon_errors
from sandboxes.docker.reap import remove_image
from sandboxes.trees import pack

logger = logging.getLogger(__name__)

_OURS = "atropos-task"
_FILES = "files"
_PROGRESS_S = 5.0
_CANNOT_PULL = re.compile(r"pull access denied|manifest|registry|dial tcp|lookup .* on|TLS|request canceled")
_FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)", re.IGNORECASE | re.MULTILINE)


class ImageStore:
    """Provides each image once, however many ask for it at the same time.

    base_image: takes the place of the image in the last `FROM` of every Dockerfile, for machines that
    cannot pull what it names.
    budget_mb: what all images of the Docker daemon together may take before ours that are unused are removed.
    makers: make the images of these names, where they are not there and can't be pulled.
    """

    def __init__(
        self,
        client: DaemonClient,
        base_image: str | None,
        budget_mb: int | None = None,
        makers: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        self._client = client
        self._base_image = base_image
        self._budget_mb = budget_mb
        self._makers = makers or {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._used: set[str] = set()
        self._measuring = asyncio.Lock()

    async def ensure(self, name: str | None, context: Path | None) -> str:
        if context is None:
            if name is None:
                raise ValueError("neither an image nor a build context was given")
            async with self._lock(name):
                if not await self.present(name):
                    await self._with_room(lambda: self._pull_or_make(name))
            return name
        files_alone = name is not None and not (context / "Dockerfile").is_file()
        archive, digest = await asyncio.to_thread(pack_context, context, self._base_image, name)
        tag = f"{_OURS}:{digest}"
        self._used.add(tag)
        async with self._lock(tag):
            if name is not None and not files_alone and await self.present(name):
                return name
            if not await self.present(tag):
                text = await asyncio.to_thread(_dockerfile, context, name)
                based_on = {self._base_image, *(image for _, image in _FROM.findall(text))}
                for needed in [name] if files_alone else self._makers.keys() & based_on:
                    await self.ensure(needed, None)
                await self._with_room(lambda: self._build(tag, archive, context, name))
        return tag

    async def present(self, name: str) -> bool:
        try:
            async with daemon_errors(f"look for image {name}"):
                await self._client.images.inspect(name)
        except ImageMissing:
            return False
        return True

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _with_room(self, make: Callable[[], Awaitable[None]]) -> None:
        """Make an image; when the storage is full, once more after ours that nobody uses are gone."""
        try:
            await make()
        except StorageFull:
            if not await self._remove_unused(0):
                raise
            await make()
        if self._budget_mb is not None:
            try:
                await self._remove_unused(self._budget_mb * 2**20)
            except DaemonError as error:  # the image is there; others look after the budget too
                logger.warning("images that nobody uses stay for now: %s", error)

    async def _remove_unused(self, budget: int) -> int:
        """Remove images that we built, the oldest first, until all images together take at most `budget`
        bytes. What this process or a container uses stays. Returns how many were removed."""
        # One at a time: the Docker daemon refuses to measure its storage twice at once.
        async with self._measuring, daemon_errors("measure the images"):
            usage = await self._client._query_json("system/df")
        size, removed = int(usage["LayersSize"]), 0
        for image in sorted(usage["Images"] or [], key=lambda image: image["Created"]):
            if size <= budget:
                break
            tags = image["RepoTags"] or []
            if not tags or image["Containers"] > 0 or not all(t.startswith(_OURS + ":") for t in tags):
                continue
            if self._used.isdisjoint(tags):
                await remove_image(self._client, image["Id"], force=False)
                size -= max(0, image["Size"] - max(0, image["SharedSize"]))
                removed += 1
        if removed:
            logger.info("Removed %d images that were not in use", removed)
        return removed

    async def _pull(self, name: str) -> None:
        progress = _Progress(f"Pulling image {name}")
        try:
            async with daemon_errors(f"pull image {name}"):
                async for line in self._client.images.pull(name, stream=True):
                    progress.saw(f"{line.get('id', '')} {line.get('status', '')} {line.get('progress', '')}".strip())
        except SandboxError as error:
            raise ImageMissing(f"{error}\n{remedy(name)}") from error
        progress.ended()

    async def _pull_or_make(self, name: str) -> None:
        try:
            await self._pull(name)
        except ImageMissing:
            if name not in self._makers:
                raise
            await self._makers[name]()

    async def _build(self, tag: str, archive: bytes, context: Path, name: str | None) -> None:
        progress = _Progress(f"Building image {tag[:24]} from {context}")
        log: list[str] = []
        async with daemon_errors(f"build image {tag} from {context}"):
            build = self._client.images.build(
                fileobj=io.BytesIO(archive), encoding="identity", tag=tag, rm=True, forcerm=True, stream=True
            )
            try:
                async for line in build:
                    log.append(line.get("stream", ""))
                    if log[-1].startswith("Step "):
                        progress.saw(log[-1].strip())
            except aiodocker.DockerStreamError as error:
                text = f"building {context} failed: {error.message}\n{''.join(log)[-3000:]}"
                if "no space left" in text.lower():
                    raise StorageFull(text) from error
                if _CANNOT_PULL.search(str(error.message)):
                    image = _FROM.findall(_dockerfile(context, name))[-1][1]
                    raise ImageMissing(f"{text}\n{remedy(image)}") from error
                raise SandboxError(text) from error
        progress.ended()


class _Progress:
    """A line in the log now and then for what takes long."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = self._last = time.monotonic()
        logger.info("%s", what)

    def saw(self, step: str) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_S:
            self._last = now
            logger.info("%s, %.0f s: %s", self._what, now - self._start, step)

    def ended(self) -> None:
        logger.info("%s: done in %.1f s", self._what, time.monotonic() - self._start)


def remedy(name: str) -> str:
    return (
        f"Image {name!r} is not on this machine and could not be pulled. Either `docker load` it from a file, "
        "give the Docker daemon a registry that has it, or build from another base image (option base_image; "
        "`python -m sandboxes setup` makes atropos-agent/base:debian12, which needs no registry)."
    )


def pack_context(context: Path, base_image: str | None, image: str | None = None) -> tuple[bytes, str]:
    """Return the build context as a tar archive, and a digest of its names, modes, links and contents.

    image: into whose working directory the files are copied where there is no Dockerfile; None where that is a mistake.
    """
    text = _dockerfile(context, image)
    if not (context / "Dockerfile").is_file():
        archive = _with(pack(context), "Dockerfile", text, below=f"{_FILES}/")
    else:
        archive = pack(context, only=_not_ignored(context))
        if base_image is not None:
            archive = _with(archive, "Dockerfile", with_base(text, base_image))
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            head = (member.name, member.mode, member.type, member.linkname)
            digest.update(f"{head!r}{member.size}\n".encode())
            if file := tar.extractfile(member) if member.isreg() else None:
                digest.update(file.read())
    return archive, digest.hexdigest()


def _dockerfile(context: Path, image: str | None) -> str:
    """Return a context's Dockerfile, or one that copies its files into the working directory of `image`."""
    dockerfile = context / "Dockerfile"
    if dockerfile.is_file():
        return dockerfile.read_text(encoding="utf-8")
    if image is None:
        raise SandboxError(f"{context} has no Dockerfile")
    return f"FROM {image}\nCOPY {_FILES}/ ./\n"


def _not_ignored(context: Path) -> set[str] | None:
    """Return the paths that `.dockerignore` leaves in the context; None for all."""
    ignore = context / ".dockerignore"
    if not ignore.is_file():
        return None
    lines = (line.strip() for line in ignore.read_text(encoding="utf-8").splitlines())
    return exclude_paths(str(context), [line for line in lines if line and not line.startswith("#")])


def with_base(dockerfile: str, base_image: str) -> str:
    """Return the Dockerfile with another image in its last `FROM`."""
    matches = list(_FROM.finditer(dockerfile))
    if not matches:
        raise SandboxError("the Dockerfile has no FROM")
    start, end = matches[-1].span(2)
    return dockerfile[:start] + base_image + dockerfile[end:]


def _with(archive: bytes, name: str, text: str, below: str = "") -> bytes:
    """Return an archive with another file of that name, and all else below a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=buffer, mode="w") as target:
        for member in source:
            member.name = below + member.name
            if member.islnk():
                member.linkname = below + member.linkname
            if member.name != name:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
        made = tarfile.TarInfo(name)
        made.size = len(text.encode())
        target.addfile(made, io.BytesIO(text.encode()))
    return buffer.getvalue()
