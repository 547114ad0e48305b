"""Requests to a cluster's API server. kubernetes_asyncio reads kubeconfigs and renews credentials; the requests are
aiohttp's."""

from __future__ import annotations

import asyncio
import binascii
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlencode

import aiohttp
import yaml

from sandboxes.base import DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.installing import install
from sandboxes.kubernetes.exec_stream import PROTOCOLS, ExecStream
from sandboxes.kubernetes.options import PodOptions
from sandboxes.remote.api import ANSWER_S, Api, Body, Conflict, describe_cause, header_value, message_of

if TYPE_CHECKING:
    from kubernetes_asyncio import client as kubernetes

logger = logging.getLogger(__name__)

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ENSURE_S = 60.0
_PING_S = 20.0
"""Load balancers cut streams that are silent for a minute or more."""


_REFUSAL: ContextVar[list[str]] = ContextVar("refusal")
"""Takes what the API server says when it opens no WebSocket, which aiohttp drops."""


def _refusal_trace() -> aiohttp.TraceConfig:
    async def ended(_session: object, _context: object, params: aiohttp.TraceRequestEndParams) -> None:
        if params.response.status >= 400 and "Upgrade" in params.headers:
            _REFUSAL.get().append(message_of(await params.response.text()))

    config = aiohttp.TraceConfig()
    config.on_request_end.append(ended)
    config.freeze()
    return config


class Cluster(Api):
    """An API server, and the namespace for our pods."""

    name: ClassVar[str] = "API server"
    remedy: ClassVar[str] = "give other credentials after HTTP 401, else grant it as docs/pods.md shows"
    address: ClassVar[str] = "`server` in the kubeconfig"
    authority: ClassVar[str] = "put its CA's certificate into `certificate-authority-data` in the kubeconfig"

    def __init__(self, api: kubernetes.ApiClient, namespace: str) -> None:
        self._configuration = api.configuration
        http = api.rest_client.pool_manager
        http.trace_configs.append(_refusal_trace())
        super().__init__(http, self._configuration.host, self._configuration.proxy or None)
        self.namespace = namespace

    @classmethod
    @asynccontextmanager
    async def connect(cls, options: PodOptions) -> AsyncIterator[Self]:
        """Read the kubeconfig, or in a pod its service account. Raises DaemonUnavailable if there is neither, and
        without the extra `kubernetes`."""
        library = await _library()
        configuration = library.client.Configuration()
        configuration.connection_pool_maxsize = 0
        configuration.disable_strict_ssl_verification = True  # as kubectl trusts clusters; Python 3.13 wants more
        try:
            found = await _configure(configuration, options, library.config)
            client = library.client.ApiClient(configuration)
        except (
            library.config.ConfigException,
            OSError,
            yaml.YAMLError,
            LookupError,
            AttributeError,
            TypeError,
            ValueError,
        ) as error:
            # The library takes a file that is no kubeconfig apart as if it were one.
            why = str(error).rstrip(".") if isinstance(error, library.config.ConfigException) else describe_cause(error)
            if isinstance(error, (ssl.SSLError, binascii.Error)):
                why = f"a certificate or key of the kubeconfig can't be read ({error})"
            raise DaemonUnavailable(
                f"no cluster: {why}; give --env.pods.kubeconfig FILE, or --env.pods.context"
            ) from error
        async with client as api:
            yield cls(api, options.namespace or found or "default")

    @property
    def url(self) -> str:
        return self._root

    def path(self, kind: str, name: str = "", group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def pod(self, name: str, uid: str) -> dict[str, Any] | None:
        """Return a pod's state; None if it is gone, even if another one has its name."""
        try:
            found = await self.request("GET", self.path("pods", name))
        except SandboxDied:
            return None
        return found if found["metadata"].get("uid") == uid else None

    async def watch(self, path: str, version: str, **params: str) -> AsyncIterator[dict[str, Any]]:
        """Yield events until the API server ends the watch. Raises Expired, DaemonUnavailable."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
        quiet = aiohttp.ClientTimeout(total=None, sock_read=300)
        try:
            async with self._http.get(
                self._url(path, query | params), headers=await self._headers(), proxy=self._proxy, timeout=quiet
            ) as answer:
                if answer.status >= 400:
                    raise self.failure(answer.status, message_of(await answer.text()), "watch")
                async for line in answer.content:
                    event: dict[str, Any] = json.loads(line)
                    if event["type"] == "ERROR":
                        raise self.failure(
                            event["object"].get("code", 500), event["object"].get("message", ""), "watch"
                        )
                    yield event
        except SandboxError:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise DaemonUnavailable(f"watch: the API server does not answer: {describe_cause(error)}") from error

    async def exec(self, pod: str, container: str, command: Sequence[str], *, stdin: bool = True) -> ExecStream:
        """Start a program in a container. Raises DaemonRefused, DaemonError."""
        doing, refusal = f"exec in {pod}", list[str]()
        _REFUSAL.set(refusal)
        query = [("container", container), ("stdout", "true"), ("stderr", "true"), ("stdin", str(stdin).lower())]
        query += [("command", word) for word in command]
        url = f"{self._url(self.path('pods', f'{pod}/exec'), {})}?{urlencode(query)}"
        try:
            async with asyncio.timeout(ANSWER_S):
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
            status, words = 503 if error.status == 404 else error.status, refusal[0] if refusal else error.message
            failure = self.failure(status, words, doing)
            self.note_failure(failure)
            raise failure from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DaemonUnavailable(f"{doing}: the API server does not answer: {describe_cause(error)}") from error
        return ExecStream(socket, self.note_failure)

    async def ensure(self, path: str, body: Body, **params: str) -> None:
        """Make an object of ours, or leave the one that is there. Raises SandboxError."""
        with suppress(Conflict):
            await self.retry(lambda: self.request("POST", path, body, **params), _ENSURE_S)

    async def _headers(self) -> dict[str, str]:
        settings = (await self._configuration.auth_settings()).values()
        given = {one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]}
        return {name: header_value(value, "the token of the kubeconfig's user") for name, value in given.items()}


async def _library() -> Any:
    """Import kubernetes_asyncio in a thread: its modules take a second."""
    try:
        return await asyncio.to_thread(import_module, "kubernetes_asyncio")
    except ImportError as error:
        raise DaemonUnavailable(
            f"the kubernetes backend needs its library ({error}): {install('kubernetes')}"
        ) from error


async def _configure(configuration: Any, options: PodOptions, config: Any) -> str | None:
    """Read the kubeconfig, or in a pod its service account. Returns the namespace of the context, or of this pod.

    config: the library's part for it. Its own `load_config` takes several files in KUBECONFIG for none."""
    files = options.kubeconfig or config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    if _some_exist(files):
        await config.load_kube_config(files, options.context or None, configuration)
        contexts, current = config.list_kube_config_contexts(files)
        chosen = next((one for one in contexts if one["name"] == options.context), current)
        found: str | None = (chosen.get("context") or {}).get("namespace")
        return found
    if options.kubeconfig:
        raise config.ConfigException(f"there is no kubeconfig {files}")
    namespace = _namespace_of_this_pod()
    if namespace is None:
        raise config.ConfigException(f"there is no kubeconfig {files}, and this is no pod")
    config.load_incluster_config(client_configuration=configuration)
    return namespace


def _namespace_of_this_pod() -> str | None:
    return _ACCOUNT.read_text(encoding="utf-8").strip() if _ACCOUNT.exists() else None


def _some_exist(files: str) -> bool:
    return any(Path(one).expanduser().exists() for one in files.split(os.pathsep) if one)
