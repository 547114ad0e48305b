"""Requests to one inference server over kept connections, at a price that does not grow with their number."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
import orjson

KEPT_S = 4.0
"""How long an unused connection is kept, in seconds: uvicorn closes one after 5, and a request at this moment is
lost."""
CONNECT_S = 10.0
"""How long opening a connection may take, in seconds."""
LARGEST = 256 << 20
"""Bytes of the largest answer, unpacked. A million tokens with their logprobs take some 50 MB."""
MOST_VALUES = 16_000_000
"""Values of the largest answer, each up to 100 bytes of Python's: twenty likely tokens at each place of 128,000 tokens
are ten million."""
_LARGE = 1 << 20


def has_more_values(body: bytes | bytearray, most: int) -> bool:
    """Tell whether JSON may hold more values than `most`, before it is read: `[],` takes 20 times its bytes then."""
    return sum(body.count(mark) for mark in b",[{") > most


def split_address(url: str, *paths: str) -> tuple[str, str]:
    """Return a server's URL and its query, with "?" if it has one. paths: ends of the URL to cut off, in this order."""
    address, mark, query = url.partition("?")
    address = address.rstrip("/")
    for path in paths:
        address = address.removesuffix(path)
    return address, mark + query


class NoAnswer(Exception):
    """No whole answer came: no connection, one that broke, none in time, or one without end."""


class NotHttp(NoAnswer):
    """The other side speaks another protocol than the address says, or has an untrusted certificate."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer, whatever its status."""

    status_code: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Found by name in any case, in responses from a server."""

    @property
    def text(self) -> str:
        """Return the body as text; undecodable bytes become U+FFFD.

        It is UTF-8, whatever a header says: Python knows encodings that take hours for a megabyte."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Return the body's JSON value. Raises ValueError when it is none."""
        try:
            return orjson.loads(self.content)
        except ValueError:
            try:
                return json.loads(self.text)  # which also takes NaN, infinities and halves of surrogate pairs
            except RecursionError as error:
                raise ValueError("it is nested too deeply") from error


def dump_json(value: Any) -> bytes:
    """Return a value as JSON, with "?" for halves of surrogate pairs, which have no UTF-8."""
    try:
        return orjson.dumps(value)
    except TypeError:  # such halves, integers of more than 64 bits, more than 254 levels
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class HttpClient:
    """Connections to one server, opened on demand. Close it in the end.

    url: the server's, with the common beginning of every path. query: of every request, with its "?".
    timeout_s: how long the server may be silent, in seconds.

    Proxies and certificates are those of the environment (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`).
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float, query: str = ""
    ) -> None:
        self._url, self._query = url, query
        self._headers = dict(headers or {})
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def get(
        self, path: str, *, timeout: float | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Ask for a path. timeout: seconds in all. headers: of this request. Raises NoAnswer."""
        return await self._request("GET", path, None, timeout, headers)

    async def post(
        self, path: str, *, json: Any, timeout: float | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send `json` to a path. timeout: seconds in all. headers: of this request. Raises NoAnswer."""
        return await self._request("POST", path, dump_json(json), timeout, headers)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        # In one piece, a large body would hold up the event loop.
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE else body
        query = self._query.replace("?", "&", 1) if "?" in path else self._query
        limits = self._timeout if timeout is None else aiohttp.ClientTimeout(total=timeout)
        try:
            if self._session is None:
                self._session = self._open()
            async with self._session.request(
                method,
                self._url + path + query,
                data=data,
                timeout=limits,
                allow_redirects=False,
                headers=headers,
            ) as answer:
                return Response(answer.status, await _body(answer), answer.headers)
        # The second where a connection breaks, the last where a header or the URL is nonsense.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = _short(error)
            other = isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientSSLError)
            raise (NotHttp if other else NoAnswer)(reason + _proxy_note(self._url)) from error

    def _open(self) -> aiohttp.ClientSession:
        parts = urlsplit(self._url)
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=KEPT_S, ssl=httpx.create_ssl_context() if parts.scheme == "https" else True
        )
        headers = {"Content-Type": "application/json", **self._headers}
        proxy = proxy_of(self._url)
        if proxy is not None and not proxy.startswith(("http://", "https://")):
            raise NoAnswer("a proxy is given as http://HOST:PORT" + _proxy_note(self._url))
        if parts.username is not None:  # which stands for the key
            headers.pop("Authorization", None)
        return aiohttp.ClientSession(connector=connector, headers=headers, proxy=proxy)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > LARGEST:
            raise NoAnswer(f"it answered with more than {LARGEST} bytes")
    return whole(body)


def whole(body: bytearray) -> bytes:
    """Return the body of an answer. Raises NoAnswer for one of too many values."""
    if has_more_values(body, MOST_VALUES):
        raise NoAnswer(f"it answered with more than {MOST_VALUES} values")
    return bytes(body)


def _short(error: Exception) -> str:
    """Return why a request failed. What aiohttp says of a host that it can't reach repeats the URL."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        cause = error.os_error
        # asyncio puts the address in place of the reason; errors of names have numbers of their own.
        return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _proxy_note(url: str) -> str:
    """Return a message's words on the proxy for a URL, without its password; "" without a proxy."""
    proxy = proxy_of(url)
    if proxy is None:
        return ""
    named = proxy.rpartition("@")[2]
    return f", asked by way of the proxy {named} that the environment names; NO_PROXY leaves hosts out"


def needs_environment(url: str) -> bool:
    """Tell whether httpx needs proxies or certificates of the environment for a URL (`trust_env`).

    It opens every proxy that is named there as it is made, also one that none of its requests goes by: a SOCKS proxy
    needs a package more."""
    return not url.lower().startswith("http://") or proxy_of(url) is not None


def client_of(url: str, **options: Any) -> httpx.AsyncClient:
    """Return httpx's client of one server, which reads no more of the environment than it needs. options: httpx's."""
    hooks = {"response": [_refuse_packed_twice]}
    return httpx.AsyncClient(base_url=url, trust_env=needs_environment(url), event_hooks=hooks, **options)


def is_packed_twice(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer is compressed several times: httpx unpacks each piece of it at once, and 600 bytes are
    300 MB then."""
    return "," in headers.get("content-encoding", "")


async def _refuse_packed_twice(response: httpx.Response) -> None:
    if is_packed_twice(response.headers):
        raise httpx.DecodingError("the answer is compressed several times", request=response.request)


def proxy_of(url: str) -> str | None:
    """Return the environment's proxy for a URL, None for none, or for an invalid URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    proxies = getproxies()
    host = re.sub(r"[\[\]]", "", parts.netloc.rpartition("@")[2])  # NO_PROXY has IPv6 without them
    if not proxies or (parts.hostname and proxy_bypass(host)):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
