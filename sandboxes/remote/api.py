"""Requests to the server of somebody's sandboxes: its refusals as exceptions, patience through its outages."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

import aiohttp

from sandboxes.base import (
    DaemonError,
    DaemonRefused,
    DaemonUnavailable,
    SandboxDied,
    SandboxError,
    SandboxUnreachable,
)
from sandboxes.tls import AUTHORITY, explain_tls_failure

logger = logging.getLogger(__name__)

ANSWER_S = 60.0
_RIGHTS_S = 60.0
_LARGEST = 256 << 20
"""Bytes of the largest answer: a list of thousands of pods has a tenth."""
_PATCH = {"Content-Type": "application/merge-patch+json"}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_MOMENT_S, _CALM_S = 5.0, 60.0
"""How long an outage is not worth a word, and after how long without trouble another outage begins."""

Body = Mapping[str, Any]
T = TypeVar("T")


class Conflict(DaemonError):
    """An object of this name exists, or has changed meanwhile (HTTP 409)."""


class Expired(SandboxError):
    """The watch's place in history is gone (HTTP 410): list again."""


class QuotaExceeded(DaemonError):
    """The namespace's quota has no room for another pod (HTTP 403)."""


class Busy(DaemonError):
    """The server wants fewer requests, or failed by itself (HTTP 429, 5xx). after_s: its pause, if it named one."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


UNANSWERED = (SandboxError, AttributeError, LookupError, TypeError, ValueError)
"""Raised by work on an answer: a refusal or an outage; the others if somebody in the server's place answered it."""


def failure(status: int, message: str, doing: str, after_s: float = 0.0, remedy: str = "") -> SandboxError:
    """Return the exception for a server's answer. remedy: against missing rights."""
    text = f"{doing}: {message or 'no reason given'} (HTTP {status})"
    if status == 403 and "exceeded quota" in message:
        return QuotaExceeded(text)
    if status in (401, 403):
        return DaemonRefused(f"{text}; {remedy}" if remedy else text)
    if status == 429 or status >= 500:
        return Busy(text, after_s)
    kinds: Mapping[int, type[SandboxError]] = {404: SandboxDied, 409: Conflict, 410: Expired}
    return kinds.get(status, SandboxError)(text)


class _Outage:
    """Failures close to each other."""

    def __init__(self) -> None:
        self._since = self._last = -math.inf
        self._reported = False

    def should_report(self) -> bool:
        """Take note of a failure; return whether it is time to speak of the outage."""
        now = time.monotonic()
        if now > self._last + _CALM_S:
            self._since, self._reported = now, False
        self._last = now
        tells = not self._reported and now > self._since + _MOMENT_S
        self._reported = self._reported or tells
        return tells


class Api(ABC):
    """Requests with JSON to one server. name: for messages. remedy: against missing rights. address, authority: where
    the user gives the server's address, and its CA's certificate."""

    name: ClassVar[str]
    remedy: ClassVar[str]
    address: ClassVar[str]
    authority: ClassVar[str] = AUTHORITY

    def __init__(self, http: aiohttp.ClientSession, root: str, proxy: str | None = None) -> None:
        self._http = http
        self._root = root
        self._proxy = proxy
        self._away_at = -math.inf
        self._outage = _Outage()

    @abstractmethod
    async def _headers(self) -> dict[str, str]: ...

    def failure(self, status: int, message: str, doing: str, after_s: float = 0.0) -> SandboxError:
        return failure(status, message, doing, after_s, self.remedy)

    async def request(self, method: str, path: str, body: Body | None = None, **params: str) -> dict[str, Any]:
        """Return the server's answer; a list stands under `items`. Raises DaemonUnavailable, or as `failure` says."""
        doing = f"{method} {path}"
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._http.request(
                    *(method, self._url(path, params)),
                    json=body,
                    headers=await self._headers() | (_PATCH if method == "PATCH" else {}),
                    proxy=self._proxy,
                    allow_redirects=False,
                ) as answer,
            ):
                text = await text_of(answer)
                if answer.status < 300:
                    return self._parse_response(doing, text)
                if answer.status < 400:  # to follow it would give our key to whoever is there, and make a GET of a POST
                    raise DaemonRefused(
                        f"{doing}: {self._root} redirects to {answer.headers.get('Location')}; if the {self.name} is "
                        f"there, give its address as {self.address}"
                    )
                raise self.failure(answer.status, message_of(text), doing, _seconds(answer.headers.get("Retry-After")))
        except SandboxError:  # some are OSErrors as well
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if (why := explain_tls_failure(error, self.address, self.authority)) is not None:
                raise DaemonRefused(f"the {self.name} at {self._root} can't be used: {why}") from error
            raise DaemonUnavailable(f"{doing}: the {self.name} does not answer: {describe_cause(error)}") from error

    def _parse_response(self, doing: str, text: str) -> dict[str, Any]:
        """Take apart an answer. A proxy may give one in the server's place."""
        try:
            found = json.loads(text or "{}")
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        if isinstance(found, list) and all(isinstance(one, dict) for one in found):
            return {"items": found}
        raise DaemonUnavailable(f"{doing}: {self._root} answers, but not as the {self.name}: {text[:200]!r}")

    async def retry(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Repeat harmless work through outages and refusals that pass. Not for commands."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, _FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except (DaemonUnavailable, DaemonRefused, Busy) as error:
                if isinstance(error, DaemonRefused):
                    # A server that was just started knows nobody's rights yet.
                    until = min(until, self._away_at + _RIGHTS_S)
                else:
                    self._away_at = loop.time()
                if loop.time() > until:
                    raise
                self.note_failure(error)
                wanted = max(pause, error.after_s if isinstance(error, Busy) else 0.0)
                await asyncio.sleep(min(wanted, until - loop.time()))
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def retry_inside(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Repeat harmless work inside a sandbox. Raises SandboxUnreachable at the end of an outage."""
        try:
            return await self.retry(work, seconds)
        except (DaemonUnavailable, Busy) as error:
            raise SandboxUnreachable(f"the sandbox can't be reached: {error}") from error

    def note_failure(self, error: Exception) -> None:
        """Hear of a failure after which something is tried again: an outage is logged once, with the server's
        words."""
        logger.debug("again after %r", error)
        if self._outage.should_report():
            logger.warning("The %s has been failing for a while, and is asked again: %s", self.name, error)

    def _url(self, path: str, params: Mapping[str, str]) -> str:
        return f"{self._root}{path}" + (f"?{urlencode(params)}" if params else "")


async def text_of(answer: aiohttp.ClientResponse) -> str:
    """Return an answer's text, which is UTF-8 whatever a header says: some come from inside of a sandbox, and Python
    knows encodings that take hours. Raises ClientPayloadError for one without end."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > _LARGEST:
            raise aiohttp.ClientPayloadError(f"an answer of more than {_LARGEST} bytes")
    return body.decode(errors="replace")


def describe_cause(error: Exception) -> str:
    """Return an error of a connection in one short line."""
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


def message_of(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isascii() and text.isdigit() else 0.0


def header_value(text: str, what: str) -> str:
    """Return a text that a header can hold. what: its place, for the message. Raises DaemonRefused."""
    if not text.isprintable():
        raise DaemonRefused(f"{what} holds a line break or another character that no request can hold; take it away")
    return text
