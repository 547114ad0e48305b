"""Images: a present one, a pulled one, or one built from a directory with a Dockerfile."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
import re
import tarfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import aiodocker
from docker.utils.build import exclude_paths

from sandboxes.base import ImageMissing, ImageUnbuildable, SandboxError, StorageFull
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors, image_remedy
from sandboxes.docker.daemon.reap import remove_image
from sandboxes.docker.images import buildkit
from sandboxes.docker.images.buildkit import Builder
from sandboxes.docker.images.dockerfile import Dockerfile, DockerfileError
from sandboxes.docker.images.task_images import disk_usage, remove_names
from sandboxes.patience import build_limit
from sandboxes.shielding import stop
from sandboxes.trees import pack

logger = logging.getLogger(__name__)

_OURS = "atropos-task"
_FILES = "files"
_BASES = "atropos-agent.bases"
"""Label of an image of ours: the ids that the images of its Dockerfile had before its build, by name."""
_PROGRESS_S = 5.0
SILENT_S = 900.0
"""How long a pull may say nothing, as while the Docker daemon unpacks a large layer; a registry may never answer."""
LOOKS_S = 2.0
"""Seconds between looks for an image in the making."""
_CANNOT_PULL = re.compile(r"pull access denied|manifest|registry|dial tcp|lookup .* on|TLS|request canceled")
_WRONG = re.compile(
    r"COPY failed: |failed to (?:compute|calculate)[^\n]*not found|failed to create LLB definition|unknown flag|"
    r"parse error|unsupported mount type",
    re.IGNORECASE,
)
"""Builders' messages for a Dockerfile with a permanent mistake. A command in it may fail for want of a network."""
_STEP_MADE, _ID = " ---> ", re.compile(r"[0-9a-f]{12}\b")
_FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)", re.IGNORECASE | re.MULTILINE)


class ImageStore:
    """Provides each image once, however many ask for it at the same time.

    base_image: takes the place of the image in the last `FROM` of every Dockerfile, for machines that
    cannot pull this image.
    budget_mb: the limit for all images of the Docker daemon together; beyond it our unused ones are removed.
    makers: make the images of these names, if they are missing and can't be pulled.
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
        self._current: set[str] = set()
        """Tags whose images a run goes on with, whatever becomes of their bases."""
        self._wrong: dict[str, str] = {}
        """Why images can't be built, by tag."""
        self._left: list[str] = []
        """Ids of nameless images: of the steps of failed builds, and of those built again."""
        self._builder: Builder | None = None

    async def ensure(self, name: str | None, context: Path | None) -> str:
        if context is None:
            if name is None:
                raise ValueError("neither an image nor a build context was given")
            async with self._lock(name):
                if await self.look_up(name) is None:
                    await self._make_with_room(lambda: self._pull_or_make(name))
            return name
        files_alone = name is not None and not (context / "Dockerfile").is_file()
        archive, digest = await asyncio.to_thread(pack_context, context, self._base_image, name)
        tag = f"{_OURS}:{digest}"
        self._used.add(tag)
        async with self._lock(tag):
            if name is not None and not files_alone and await self.look_up(name) is not None:
                return name
            if tag in self._wrong:
                raise ImageUnbuildable(self._wrong[tag])
            dockerfile = Dockerfile.read(_read_dockerfile(archive))
            if not await self._is_current(tag, dockerfile.images):
                for needed in [name] if files_alone else self._makers.keys() & set(dockerfile.pulled):
                    await self.ensure(needed, None)
                try:
                    await self._make_with_room(lambda: self._build(tag, archive, context))
                except ImageUnbuildable as error:
                    self._wrong[tag] = str(error)
                    raise
            self._current.add(tag)
        return tag

    async def remove_leftovers(self) -> None:
        """Remove what failed builds have left: until then another try goes on from there."""
        for image in reversed(self._left):
            with suppress(SandboxError):
                if (seen := await self.look_up(image)) is not None and not seen["RepoTags"]:
                    await remove_image(self._client, image, force=False)
        self._left.clear()

    async def look_up(self, name: str) -> Mapping[str, Any] | None:
        """Return the Docker daemon's description of an image; None if it is not there."""
        try:
            async with daemon_errors(f"look for image {name}"):
                found: Mapping[str, Any] = await self._client.images.inspect(name)
        except ImageMissing:
            return None
        return found

    async def _is_current(self, tag: str, bases: Sequence[str]) -> bool:
        """Tell whether an image of ours is there, built of its bases as they are now."""
        if (seen := await self.look_up(tag)) is None:
            return False
        labels = (seen["Config"] or {}).get("Labels") or {}
        if tag in self._current or _BASES not in labels:
            return True
        built_of = json.loads(labels[_BASES])
        return all(built_of.get(name, id_) == id_ for name, id_ in (await self._ids(bases)).items())

    async def _ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of images that are here, by name."""
        return {name: seen["Id"] for name in names if (seen := await self.look_up(name)) is not None}

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _make_with_room(self, make: Callable[[], Awaitable[None]]) -> None:
        """Make an image; if the storage is full, once more after the removal of our unused ones."""
        try:
            await make()
        except StorageFull:
            await self.remove_leftovers()
            if not await self._remove_unused(0):
                raise
            await make()
        if self._budget_mb is not None:
            try:
                await self._remove_unused(self._budget_mb * 2**20)
            except SandboxError as error:  # the image is there; others look after the budget too
                logger.warning("images that nobody uses stay for now: %s", error)

    async def _remove_unused(self, budget: int) -> int:
        """Remove images of our own builds, the oldest first, until all images together take at most `budget`
        bytes. Images in use by this process or a container stay. Returns the number of removed images."""
        usage = await disk_usage(self._client)
        size, removed = int(usage["LayersSize"]), 0
        for image in sorted(usage["Images"] or [], key=lambda image: image["Created"]):
            if size <= budget:
                break
            tags = image["RepoTags"] or []
            if not tags or image["Containers"] > 0 or not all(t.startswith(_OURS + ":") for t in tags):
                continue
            if self._used.isdisjoint(tags) and await remove_names(self._client, tags):
                size -= max(0, image["Size"] - max(0, image["SharedSize"]))
                removed += 1
        if removed:
            logger.info("Removed %d images that were not in use", removed)
        return removed

    async def _pull(self, name: str) -> None:
        progress = _Progress(f"Pulling image {name}")
        try:
            async with daemon_errors(f"pull image {name}", SILENT_S) as silence:
                async for line in self._client.images.pull(name, stream=True):
                    silence.reschedule(asyncio.get_running_loop().time() + SILENT_S)
                    progress.note_step(
                        f"{line.get('id', '')} {line.get('status', '')} {line.get('progress', '')}".strip()
                    )
        except SandboxError as error:
            why = f"pull image {name}: nothing came for {SILENT_S:g} s" if silence.expired() else str(error)
            raise ImageMissing(f"{why}\n{image_remedy(name)}") from error
        progress.finish()

    async def _pull_or_make(self, name: str) -> None:
        """Pull an image, or make it, which may take minutes: until it is there, from here or from anybody else."""
        try:
            return await self._pull(name)
        except ImageMissing:
            if name not in self._makers:
                raise
        making = asyncio.ensure_future(self._makers[name]())
        try:
            while not (await asyncio.wait({making}, timeout=LOOKS_S))[0]:
                if await self.look_up(name) is not None:
                    return
            await making
        finally:
            await stop([making])

    async def _build(self, tag: str, archive: bytes, context: Path) -> None:
        progress = _Progress(f"Building image {tag[:24]} from {context}")
        log: deque[str] = deque(maxlen=1000)
        written = _read_dockerfile(archive)
        dockerfile = Dockerfile.read(written)
        builder = self._builder = self._builder or await Builder.of(self._client)
        if (why := builder.find_obstacle(dockerfile)) is not None:
            raise ImageUnbuildable(f"{context / 'Dockerfile'}: {why}")
        classic = not builder.needs_buildkit(dockerfile)
        if not classic:
            sent = builder.adapt_dockerfile(written, dockerfile)
            for image in Dockerfile.read(sent).pulled:  # as a build without a session has no way to
                await self.ensure(image, None)
            archive = _replace_member(archive, "Dockerfile", sent)
        steps_said: list[str] = []
        before = (await self._ids([tag])).values()
        labels = {_BASES: json.dumps(await self._ids(dockerfile.images))}
        async with (
            build_limit(context),
            daemon_errors(f"build image {tag} from {context}", None),
            aclosing(buildkit.build(self._client, archive, tag, labels, classic=classic)) as steps,
        ):
            try:
                async for line in steps:
                    log.append(line)
                    if line.startswith(("Step ", "[")):
                        progress.note_step(line.strip())
                    if line.startswith(("Step ", _STEP_MADE)):
                        steps_said.append(line)
            except aiodocker.DockerError as error:
                self._left += _built_ids(steps_said)
                text = f"building {context} failed: {error.message}\n{''.join(log)[-3000:]}".rstrip()
                if (failure := _build_error(error, text, dockerfile)) is not None:
                    raise failure from error
                raise
        self._left += before
        progress.finish()


def _built_ids(lines: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the images that the classic builder made, by its steps' lines; not those that it took."""
    taken = True
    for line in lines:
        if line.startswith("Step "):
            taken = " : FROM " in line.upper()
        elif "Using cache" in line:
            taken = True
        elif not taken and (found := _ID.match(line, len(_STEP_MADE))):
            yield found[0]


def _build_error(error: aiodocker.DockerError, text: str, dockerfile: Dockerfile) -> SandboxError | None:
    """Return the error behind a failed build; None if the Docker daemon failed beside it."""
    message = str(error.message)
    if "no space left" in text.lower():
        return StorageFull(text)
    if error.status == 400 or "dockerfile parse error" in message.lower():
        return ImageUnbuildable(text)
    if not isinstance(error, aiodocker.DockerStreamError):
        return None
    if _CANNOT_PULL.search(message):
        return ImageMissing(f"{text}\n{image_remedy(_missing_image(text, dockerfile))}")
    return ImageUnbuildable(text) if _WRONG.search(message) else SandboxError(text)


def _missing_image(text: str, dockerfile: Dockerfile) -> str:
    """Return the image that the last step of a failed build names; if it names none, that of the last stage."""
    step = text.rpartition("\nStep ")[2]
    named = [image for image in dockerfile.images if image in step]
    return max(named, key=len, default=dockerfile.stages[-1].base)


class _Progress:
    """A line in the log now and then for long work."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = self._last = time.monotonic()
        logger.info("%s", what)

    def note_step(self, step: str) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_S:
            self._last = now
            logger.info("%s, %.0f s: %s", self._what, now - self._start, step)

    def finish(self) -> None:
        logger.info("%s: done in %.1f s", self._what, time.monotonic() - self._start)


def pack_context(context: Path, base_image: str | None, image: str | None = None) -> tuple[bytes, str]:
    """Return the build context as a tar archive, and a digest of its names, modes, links and contents.

    image: gets the files in its working directory if there is no Dockerfile; None if a missing Dockerfile is a
    mistake.
    """
    context = context.resolve()  # where it is a link, it is what that leads to, as for `docker build`
    text = _dockerfile(context, image)
    if not (context / "Dockerfile").is_file():
        archive = _replace_member(pack(context), "Dockerfile", text, below=f"{_FILES}/")
    else:
        archive = pack(context, only=_included_paths(context))
        if base_image is not None or (context / "Dockerfile").is_symlink():
            archive = _replace_member(archive, "Dockerfile", replace_base(text, base_image) if base_image else text)
    try:
        needs = Dockerfile.read(text).needs
    except DockerfileError as error:
        raise ImageUnbuildable(f"{context / 'Dockerfile'}: {error}") from None
    # What the classic builder once made of such a file is another image.
    digest = hashlib.sha256(b"BuildKit" if needs else b"")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            head = (member.name, member.mode, member.type, member.linkname)
            digest.update(f"{head!r}{member.size}\n".encode())
            if file := tar.extractfile(member) if member.isreg() else None:
                digest.update(file.read())
    return archive, digest.hexdigest()


def _read_dockerfile(archive: bytes) -> str:
    """Return the Dockerfile of a build context."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile("Dockerfile")
        return "" if file is None else file.read().decode()


def _dockerfile(context: Path, image: str | None) -> str:
    """Return a context's Dockerfile, or one for a copy of its files into the working directory of `image`."""
    dockerfile = context / "Dockerfile"
    if dockerfile.is_file():
        try:
            return dockerfile.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ImageUnbuildable(f"{dockerfile} is not UTF-8 ({error}); save it as UTF-8") from None
    if image is None:
        raise SandboxError(f"{context} has no Dockerfile")
    return f"FROM {image}\nCOPY {_FILES}/ ./\n"


def _included_paths(context: Path) -> set[str] | None:
    """Return the paths in the context after `.dockerignore`; None for all."""
    ignore = context / ".dockerignore"
    if not ignore.is_file():
        return None
    lines = (line.strip() for line in ignore.read_text(encoding="utf-8").splitlines())
    return exclude_paths(str(context), [line for line in lines if line and not line.startswith("#")])


def replace_base(dockerfile: str, base_image: str) -> str:
    """Return the Dockerfile with another image in its last `FROM`."""
    matches = list(_FROM.finditer(dockerfile))
    if not matches:
        raise SandboxError("the Dockerfile has no FROM")
    start, end = matches[-1].span(2)
    return dockerfile[:start] + base_image + dockerfile[end:]


def _replace_member(archive: bytes, name: str, text: str, below: str = "") -> bytes:
    """Return an archive with another file of this name, and all else below a folder.

    The file is the first: BuildKit takes what begins with an extended header, as of a time with a fraction, for a
    Dockerfile."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=buffer, mode="w") as target:
        made = tarfile.TarInfo(name)
        made.size = len(text.encode())
        target.addfile(made, io.BytesIO(text.encode()))
        for member in source:
            member.name = below + member.name
            if member.islnk():
                member.linkname = below + member.linkname
            if member.name != name:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()
