"""Read the weights behind a reply, and a server's program, from the answers of inference servers."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from atropos_agent.engines.errors import ODD
from atropos_agent.engines.http import HttpClient, NoAnswer

logger = logging.getLogger(__name__)

_MOST = 10**15
"""No step has so high a number."""
_LABEL = re.compile(r"(?:^|(?:^|[^a-z0-9])(?:(?:global_?)?step|checkpoint|version|v)[-_]?)(\d{1,15})/?$", re.IGNORECASE)


def version_of(label: Any) -> int | None:
    """Return the trainer's step that names some weights; None if a label names none.

    label: a number, "42", "step-000042", the folder of a checkpoint with such a name, or vLLM's list of
        `{version, start, end}`, whose oldest version counts (vllm/outputs.py, `WeightVersionSpan`).
    """
    if isinstance(label, bool):
        return None
    if isinstance(label, int):
        return label if 0 <= label < _MOST else None
    if isinstance(label, list):
        found = [version_of(span.get("version")) if isinstance(span, Mapping) else None for span in label]
        known = [version for version in found if version is not None]
        return min(known) if known and len(known) == len(found) else None
    match = _LABEL.search(label) if isinstance(label, str) else None
    return int(match[1]) if match else None


_PROGRAMS = ("/version", "/get_server_info", "/server_info", "/info")
"""Paths at which inference servers tell their own version: vLLM and ours, SGLang before and now,
text-generation-inference."""


async def program_version(http: HttpClient) -> str | None:
    """Return the version of an inference server's program; None if it does not tell, or does not answer."""
    for path in _PROGRAMS:
        try:
            response = await http.get(path, timeout=5.0)
            body = response.json() if response.status_code == 200 else None
        except NoAnswer:
            return None
        except ValueError:
            continue
        if isinstance(body, Mapping) and isinstance(body.get("version"), str):
            return str(body["version"])[:100]
    return None


class ServedAdapter:
    """The adapter that a server serves under a name: vLLM's `/v1/completions` does not name the weights behind a
    reply, but `/v1/models` names the adapter's folder."""

    believed_s = 2.0
    """Seconds for which an answer is believed."""

    def __init__(self, http: HttpClient, name: str) -> None:
        self._http = http
        self._name = name
        self._checked_at = -math.inf
        """When the last request was sent (`time.monotonic`)."""
        self._version: int | None = None
        self._first: asyncio.Future[int | None] | None = None
        """The first answer, for which all requests wait: later ones have an older version meanwhile."""

    async def version(self) -> int | None:
        """Return the step in the name of the adapter's folder, at most `believed_s` old; None without one."""
        if self._first is None:
            self._first = asyncio.ensure_future(self._look_up())
        if not self._first.done():
            return await asyncio.shield(self._first)
        return await self._look_up()

    async def _look_up(self) -> int | None:
        version = self._version
        if time.monotonic() - self._checked_at > self.believed_s:
            self._checked_at = time.monotonic()  # so that of many requests one asks
            try:
                models = (await self._http.get("/v1/models", timeout=5.0)).json()["data"]
                version = next(version_of(m.get("root")) for m in models if m["id"] == self._name)
                self._checked_at, self._version = time.monotonic(), version
            except (NoAnswer, *ODD, StopIteration) as error:
                logger.debug("the server does not say which adapter it serves as %s: %r", self._name, error)
        return version
