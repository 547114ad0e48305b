"""Requests to a cluster's API server. kubernetes_asyncio reads kubeconfigs and renews credentials; the requests are
aiohttp's."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlencode

import aiohttp

from sandboxes.base import DaemonError, DaemonRefused, DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.kubernetes.exec_stream import PROTOCOLS, ExecStream
from sandboxes.kubernetes.options import PodOptions

if TYPE_CHECKING:
    from kubernetes_asyncio import client as kubernetes

logger = logging.getLogger(__name__)

_ANSWER_S = 60.0
_ENSURE_S = 60.0
_RIGHTS_S = 20.0
_PING_S = 20.0
"""Load balancers cut streams that are silent for a minute or more."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0

Body = Mapping[str, Any]
T = TypeVar("T")


class Conflict(DaemonError):
    """An object of this name exists, or has changed meanwhile (HTTP 409)."""


class Expired(SandboxError):
    """The watch's place in history is gone (HTTP 410): list again."""


class QuotaExceeded(DaemonError):
    """The namespace's quota has no room for another pod (HTTP 403)."""


class Busy(DaemonError):
    """The API server wants fewer requests, or failed by itself (HTTP 429, 5xx). after_s: its pause, if it named one."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


def failure(status: int, message: str, doing: str, after_s: float = 0.0) -> SandboxError:
    """Return the exception for an answer of the API server."""
    text = f"{doing}: {message or 'no reason given'} (HTTP {status})"
    if status == 403 and "exceeded quota" in message:
        return QuotaExceeded(text)
    if status in (401, 403):
        return DaemonRefused(f"{text}; grant it as docs/pods.md shows")
    if status == 429 or status >= 500:
        return Busy(text, after_s)
    kinds: Mapping[int, type[SandboxError]] = {404: SandboxDied, 409: Conflict, 410: Expired}
    return kinds.get(status, SandboxError)(text)


class Cluster:
    """An API server, and the namespace for our pods."""

    def __init__(self, api: kubernetes.ApiClient, namespace: str) -> None:
        self._api = api
        self._configuration = api.configuration
        self._http: aiohttp.ClientSession = api.rest_client.pool_manager
        self.namespace = namespace
        self._away_at = -math.inf

    @classmethod
    @asynccontextmanager
    async def connect(cls, options: PodOptions) -> AsyncIterator[Self]:
        """Read the kubeconfig, or in a pod its service account. Raises DaemonUnavailable if there is neither, and
        without the extra `kubernetes`."""
        library = await _library()
        configuration = library.client.Configuration()
        namespace: str | None = options.namespace
        try:
            namespace = namespace or _namespace(options, library.config)
            await library.config.load_config(
                client_configuration=configuration,
                **({"config_file": options.kubeconfig} if options.kubeconfig else {}),
                **({"context": options.context} if options.context else {}),
            )
        except (library.config.ConfigException, OSError) as error:
            raise DaemonUnavailable(
                f"no cluster: {error}; give --env.pods.kubeconfig FILE, or --env.pods.context"
            ) from error
        configuration.connection_pool_maxsize = 0
        async with library.client.ApiClient(configuration) as api:
            yield cls(api, namespace or "default")

    @property
    def url(self) -> str:
        return str(self._configuration.host)

    def path(self, kind: str, name: str = "", group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def request(self, method: str, path: str, body: Body | None = None, **params: str) -> dict[str, Any]:
        """Return the API server's answer. Raises DaemonUnavailable, or an exception of `failure`."""
        doing = f"{method} {path}"
        try:
            async with (
                asyncio.timeout(_ANSWER_S),
                self._http.request(
                    method, self._url(path, params), json=body, headers=await self._headers(), proxy=self._proxy
                ) as answer,
            ):
                text = await answer.text()
                if answer.status < 400:
                    return dict(json.loads(text))
                raise failure(answer.status, _message(text), doing, _seconds(answer.headers.get("Retry-After")))
        except SandboxError:  # some are OSErrors as well
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError) as error:
            raise DaemonUnavailable(f"{doing}: the API server does not answer: {error!r}") from error

    async def watch(self, path: str, version: str, **params: str) -> AsyncIterator[dict[str, Any]]:
        """Yield events until the API server ends the watch. Raises Expired, DaemonUnavailable."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
        quiet = aiohttp.ClientTimeout(total=None, sock_read=300)
        try:
            async with self._http.get(
                self._url(path, query | params), headers=await self._headers(), proxy=self._proxy, timeout=quiet
            ) as answer:
                if answer.status >= 400:
                    raise failure(answer.status, _message(await answer.text()), "watch")
                async for line in answer.content:
                    event: dict[str, Any] = json.loads(line)
                    if event["type"] == "ERROR":
                        raise failure(event["object"].get("code", 500), event["object"].get("message", ""), "watch")
                    yield event
        except SandboxError:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise DaemonUnavailable(f"watch: the API server does not answer: {error!r}") from error

    async def exec(self, pod: str, container: str, command: Sequence[str], *, stdin: bool = True) -> ExecStream:
        """Start a program in a container. Raises DaemonRefused, DaemonError."""
        doing = f"exec in {pod}"
        query = [("container", container), ("stdout", "true"), ("stderr", "true"), ("stdin", str(stdin).lower())]
        query += [("command", word) for word in command]
        url = f"{self._url(self.path('pods', f'{pod}/exec'), {})}?{urlencode(query)}"
        try:
            async with asyncio.timeout(_ANSWER_S):
                socket = await self._http.ws_connect(
                    *(url,),
                    protocols=PROTOCOLS,
                    headers=await self._headers(),
                    proxy=self._proxy,
                    heartbeat=_PING_S,
                    max_msg_size=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            # A kubelet that was just restarted says 404 of its own pods: only the API server knows which are there.
            raise failure(503 if error.status == 404 else error.status, error.message, doing) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DaemonUnavailable(f"{doing}: the API server does not answer: {error!r}") from error
        return ExecStream(socket)

    async def patiently(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Repeat harmless work through outages and refusals that pass. Not for commands."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, _FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except (DaemonUnavailable, DaemonRefused, Busy) as error:
                if isinstance(error, DaemonRefused):
                    # An API server that was just started knows nobody's rights yet.
                    until = min(until, self._away_at + _RIGHTS_S)
                else:
                    self._away_at = loop.time()
                if loop.time() > until:
                    raise
                logger.debug("again after %r", error)
                await asyncio.sleep(max(pause, error.after_s if isinstance(error, Busy) else 0.0))
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def ensure(self, path: str, body: Body, **params: str) -> None:
        """Make an object of ours, or leave the one that is there. Raises SandboxError."""
        with suppress(Conflict):
            await self.patiently(lambda: self.request("POST", path, body, **params), _ENSURE_S)

    @property
    def _proxy(self) -> str | None:
        return self._configuration.proxy or None

    def _url(self, path: str, params: Mapping[str, str]) -> str:
        return f"{self._configuration.host}{path}" + (f"?{urlencode(params)}" if params else "")

    async def _headers(self) -> dict[str, str]:
        settings = (await self._configuration.auth_settings()).values()
        return {one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]}


async def _library() -> Any:
    """Import kubernetes_asyncio in a thread: its modules take a second."""
    try:
        return await asyncio.to_thread(import_module, "kubernetes_asyncio")
    except ImportError as error:
        raise DaemonUnavailable(
            f"--env.sandbox kubernetes: {error}; pip install 'atropos-agent[kubernetes]'"
        ) from error


def _namespace(options: PodOptions, kubeconfig: Any) -> str | None:
    """Return the namespace of the kubeconfig's context, or of this pod."""
    try:
        contexts, current = kubeconfig.list_kube_config_contexts(options.kubeconfig or None)
    except (kubeconfig.ConfigException, OSError):
        try:
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:  # noqa: PTH123
                return file.read().strip()
        except OSError:
            return None
    chosen = next((one for one in contexts if one["name"] == options.context), current)
    found: str | None = (chosen.get("context") or {}).get("namespace")
    return found


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0
