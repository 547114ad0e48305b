"""Build images by the Docker daemon's builders, and find the Dockerfiles for its BuildKit.

A build goes by the daemon's API with the context in the request, and without a session.
So a build can't ask its client for keys (`RUN --mount=type=secret`, `type=ssh`), and images are pulled before it.
Source: https://docs.docker.com/reference/api/engine (`POST /build?version=2`), api/services/control/control.proto of
moby/buildkit (`StatusResponse`).
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiodocker
import aiohttp

from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.docker.images.dockerfile import BUILDKIT, Dockerfile, Need, Version, drop_syntax


@dataclass(frozen=True, slots=True)
class Builder:
    """A Docker daemon's builder of images. version: the daemon's; None for Podman, whose one builder does all."""

    version: Version | None

    @classmethod
    async def of(cls, client: DaemonClient) -> Builder:
        """Ask a Docker daemon. Raises SandboxError."""
        async with daemon_errors("ask the Docker daemon for its version"):
            version = await client.version()
        if any("Podman" in str(part.get("Name")) for part in version.get("Components") or []):
            return cls(None)
        found = re.match(r"(\d+)\.(\d+)", str(version.get("Version")))
        return cls((int(found[1]), int(found[2])) if found else BUILDKIT)

    def find_obstacle(self, dockerfile: Dockerfile) -> str | None:
        """Return why a Dockerfile can't be built here, and the remedy; None if it can."""
        if self.version is None or self._can_use_frontend(dockerfile):
            return None
        missing = self._missing_features(dockerfile)
        if not missing:
            return None
        own = f"{self.version[0]}.{self.version[1]}"
        return (
            f"{missing[0].description}, and this Docker daemon is {own}: update Docker, or write the Dockerfile "
            "without it (a file and COPY in place of a here-document, RUN with && in place of options)"
        )

    def needs_buildkit(self, dockerfile: Dockerfile) -> bool:
        """Tell whether a Dockerfile must not reach the classic builder, which may build something else from it."""
        return self.version is not None and bool(dockerfile.needs)

    def adapt_dockerfile(self, text: str, dockerfile: Dockerfile) -> str:
        """Return the Dockerfile in its form for BuildKit: without a frontend from elsewhere, if it needs none."""
        if dockerfile.syntax is None or dockerfile.has_foreign_frontend or self._missing_features(dockerfile):
            return text
        return drop_syntax(text, dockerfile.syntax[0])

    def _missing_features(self, dockerfile: Dockerfile) -> list[Need]:
        """Return the needs beyond the daemon's own frontend."""
        return [need for need in dockerfile.needs if self.version is not None and need.since > self.version]

    def _can_use_frontend(self, dockerfile: Dockerfile) -> bool:
        """Tell whether a frontend named in the Dockerfile can read it here."""
        return dockerfile.syntax is not None and self.version is not None and self.version >= BUILDKIT


async def build(
    client: DaemonClient, archive: bytes, tag: str, labels: Mapping[str, str], *, classic: bool
) -> AsyncGenerator[str]:
    """Build an image, and yield its steps and output. The Docker daemon ends the build when the iterator is closed or
    cancelled. Raises DockerError, and DockerStreamError if the build itself fails."""
    shown: set[str] = set()
    version = {} if classic else {"version": "2"}
    async with client._query(
        "build",
        "POST",
        params={"t": tag, "rm": "1", "forcerm": "1", "labels": json.dumps(labels), **version},
        headers={"Content-Type": "application/x-tar"},
        data=io.BytesIO(archive),  # sent in pieces: other work goes on
        timeout=aiohttp.ClientTimeout(total=None),
    ) as response:
        try:
            async for line in _lines(response):
                entry = json.loads(line)
                if "error" in entry or "errorDetail" in entry:
                    detail = entry.get("errorDetail") or {}
                    message = str(detail.get("message") or entry.get("error"))
                    raise aiodocker.DockerStreamError(message, error_detail=detail)
                if "stream" in entry:
                    yield entry["stream"]
                elif entry.get("id") == "moby.buildkit.trace":
                    for step, text in _trace(base64.b64decode(entry["aux"])):
                        if not step or text not in shown:
                            yield text
                        shown.update([text] if step else [])
        finally:
            response.close()


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a response, however long they are."""
    kept = b""
    async for chunk in response.content.iter_any():
        *whole, kept = (kept + chunk).split(b"\n")
        for line in filter(bytes.strip, whole):
            yield line
    if kept.strip():
        yield kept


def _trace(message: bytes) -> Iterator[tuple[bool, str]]:
    """Yield the steps' names, and their output, of a `StatusResponse`; with each whether it is a name."""
    for number, value in _fields(message):
        inner = dict(_fields(value)) if number in (1, 3) and isinstance(value, bytes) else {}
        text = inner.get(3 if number == 1 else 4)
        if isinstance(text, bytes) and text:
            yield number == 1, text.decode("utf-8", "replace") + ("\n" if number == 1 else "")


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a Protocol Buffers message's fields, as far as it can be read."""
    at = 0
    try:
        while at < len(message):
            key, at = _varint(message, at)
            if key & 7 == 0:
                value, at = _varint(message, at)
                yield key >> 3, value
                continue
            size, at = _varint(message, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            yield key >> 3, message[at : at + size]
            at += size
    except (IndexError, KeyError):
        return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not message[at - 1] & 0x80:
            return value, at
