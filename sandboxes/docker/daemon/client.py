"""Connections to a Docker daemon, and its errors as ours."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiodocker
import aiohttp

from sandboxes.base import (
    DaemonError,
    DaemonRefused,
    DaemonUnavailable,
    ImageMissing,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
    StorageFull,
)
from sandboxes.docker.daemon.ssh import ssh_tunnel
from sandboxes.patience import patiently
from sandboxes.tls import explain_tls_failure, trust

PATIENCE_S = 60.0
"""How long a present Docker daemon may take over its first answer, as at its start with many containers."""
_REMIND_S = 5.0
_ANSWER_S = 60.0
"""How long an answer is waited for that is no stream and needs no long work."""
_SCHEMES = ("unix", "tcp", "http", "https", "ssh")
_TCP = re.compile(r"^(tcp|https?)://")
DAEMON_REMEDY = (
    "Start Docker (`systemctl start docker`, Docker Desktop), set DOCKER_HOST, or, as root on Debian or Ubuntu, "
    "run `python -m sandboxes setup`, which installs and starts one."
)


class DaemonSilent(DaemonUnavailable):
    """There is a Docker daemon, and it does not answer."""


_API = (1, 51)
"""The newest version of the Docker daemon's interface that is requested, that of Docker 28.5; from 1.52 on fields that
are read here are left out."""
_HEADER = 64 << 10
"""The most bytes of a header: with a tree an engine sends a link's target, up to 4 KB twice and encoded."""


class DaemonClient(aiodocker.Docker):
    """A client of one Docker daemon. `connect` makes the first one, so none goes past its tunnel.

    address: the address of its connections; None for the address of the Docker command line.
    here: whether the Docker daemon may be on this host, with its directories within sight.
    tls: how both sides know each other; None for no encryption, or as a context of the Docker command line says.
    """

    def __init__(
        self,
        address: str | None,
        *,
        here: bool = True,
        api_version: str = "auto",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, api_version=api_version, ssl_context=tls)
        self.session._max_field_size = _HEADER  # aiodocker makes the session
        self.address = address
        self._tls = tls
        self.here = here and self.docker_host.startswith("unix")

    def clone(self) -> DaemonClient:
        """Return a client of the same Docker daemon with connections of its own; the caller closes it."""
        return DaemonClient(self.address, here=self.here, api_version=self.api_version, tls=self._tls)


@asynccontextmanager
async def connect(url: str | None = None, certificates: Path | None = None) -> AsyncIterator[DaemonClient]:
    """Open a client of a Docker daemon after its first answer. This is the only way to one; ssh:// goes through a
    tunnel.

    url: unix://, tcp:// or ssh://; None takes DOCKER_HOST, else the address of the Docker command line.
    certificates: folder with ca.pem, cert.pem and key.pem, for tcp:// with TLS verified both ways; None for the one of
    DOCKER_CERT_PATH if DOCKER_TLS_VERIFY is set. A slow daemon gets `PATIENCE_S` at most.

    Raises DaemonUnavailable with the remedy, DaemonSilent for one without an answer, DaemonRefused for one closed to
    this user or not trusted, SandboxError for an invalid address or certificates: the last two are permanent.
    """
    _check_address(url or os.environ.get("DOCKER_HOST"))
    async with AsyncExitStack() as stack:
        try:
            address = _address(url)
            tunnelled = address is not None and address.startswith("ssh://")
            if address is not None and tunnelled:
                address = await stack.enter_async_context(ssh_tunnel(address))
            certificates = certificates or _certificates_folder(address)
            tls = None if certificates is None else _tls(certificates)
            if tls is not None and address is not None:
                address = _TCP.sub("https://", address)
            client = DaemonClient(address, here=not tunnelled, tls=tls)
        except SandboxError:  # ours already; some are standard errors, too
            raise
        # aiodocker asserts that it found a socket.
        except (AssertionError, ValueError, OSError, aiodocker.DockerContextError) as error:
            raise DaemonUnavailable(
                f"No Docker daemon found ({str(error) or 'no socket, no DOCKER_HOST'}). {DAEMON_REMEDY}"
            ) from error
        stack.push_async_callback(client.close)
        # aiodocker calls every socket `unix://localhost`.
        socket = client.connector.path if isinstance(client.connector, aiohttp.UnixConnector) else None
        where = f"The Docker daemon at {url or (f'unix://{socket}' if socket else client.docker_host)}"
        try:
            version = await patiently(client.version(), where, PATIENCE_S, _REMIND_S)
        except (aiodocker.DockerError, aiohttp.ClientError, OSError) as error:
            if (why := _explain_tls_failure(error, certificates or Path("~/.docker"))) is not None:
                raise DaemonRefused(f"{where} can't be used: {why}") from error
            if (remedy := _remedy_of_refusal(Path(socket or ""))) is not None:
                raise DaemonRefused(f"{where} may not be used by this user. {remedy}") from error
            kind = DaemonSilent if isinstance(error, TimeoutError) else DaemonUnavailable
            why = f"did not answer within {PATIENCE_S:g} s" if kind is DaemonSilent else str(error)
            raise kind(f"{where} is not usable: {why}. {DAEMON_REMEDY}") from error
        major, minor = min(_API, tuple(map(int, version["ApiVersion"].split("."))))
        client.api_version = f"v{major}.{minor}"
        yield client


def _remedy_of_refusal(socket: Path) -> str | None:
    """Return how to give this user write access to the Docker daemon's socket; None if the user has it, or if there
    is no socket."""
    if not socket.is_socket() or os.access(socket, os.R_OK | os.W_OK):
        return None
    with contextlib.suppress(KeyError):
        if (group := grp.getgrgid(socket.stat().st_gid).gr_name) != "root":
            return f"`sudo usermod -aG {group} $USER` allows it; then log in again, or run `newgrp {group}`."
    return "Run this as root, or set DOCKER_HOST to a Docker daemon of your own."


def sees_folder(path: Path) -> bool:
    """Return whether a folder is there, and is this user's to look at."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _explain_tls_failure(error: Exception, folder: Path) -> str | None:
    """Return why there is no TLS between both sides, with the remedy; None for an error with another cause."""
    if "HTTP request to an HTTPS server" in str(error):
        return "it wants TLS; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or give it `certificates` in --env.hosts"
    if alert := re.search(r"alert [a-z ]+[a-z]", str(error)):
        return f"it refuses our certificate ({alert[0]}); put one of its CA, and its key, into {folder}"
    return explain_tls_failure(error, "DOCKER_HOST or --env.hosts", f"put its CA's certificate into {folder}/ca.pem")


def _certificates_folder(address: str | None) -> Path | None:
    """Return the folder of certificates that the environment names for an address; None without one."""
    if address is None or not _TCP.match(address) or not os.environ.get("DOCKER_TLS_VERIFY"):
        return None
    return Path(os.environ.get("DOCKER_CERT_PATH") or "~/.docker").expanduser()


def _tls(certificates: Path) -> ssl.SSLContext:
    """Return the TLS context: it verifies the Docker daemon and identifies us. Raises SandboxError with the remedy."""
    try:
        tls = trust(str(certificates / "ca.pem"))
        tls.load_cert_chain(str(certificates / "cert.pem"), str(certificates / "key.pem"))
    except OSError as error:  # ssl's errors are some too, and name no file
        raise SandboxError(
            f"the certificates for a Docker daemon can't be used ({error}): {certificates} needs ca.pem of its CA, and "
            "cert.pem with key.pem of ours (DOCKER_CERT_PATH, or `certificates` in --env.hosts)"
        ) from error
    return tls


def _check_address(address: str | None) -> None:
    scheme, _, rest = (address or "unix:///").partition("://")
    if scheme not in _SCHEMES or not rest:
        raise SandboxError(
            f"{address!r} is no address of a Docker daemon; set DOCKER_HOST to one such as unix:///run/docker.sock, "
            "tcp://HOST:2375 or ssh://HOST, or unset it"
        )


def _address(url: str | None) -> str | None:
    """Return the address for a connection; None if aiodocker finds it itself, with the certificates of a context."""
    address = url or os.environ.get("DOCKER_HOST")
    if address:
        return address
    context = aiodocker.Docker._get_docker_context_endpoint()
    return context.host if context is not None and context.host.startswith("ssh://") else None


@asynccontextmanager
async def daemon_errors(doing: str, limit_s: float | None = _ANSWER_S) -> AsyncIterator[asyncio.Timeout]:
    """Turn the client's exceptions into ours, and a wait of more than `limit_s` into SandboxTimeout.

    doing: names the attempt. limit_s: None for no limit. Yields the time limit."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield limit
    except SandboxError:  # ours already; some are standard errors too, which are looked for below
        raise
    except aiodocker.DockerError as error:
        text = f"{doing}: {error.message} (HTTP {error.status})"
        if error.status == 404 and "image" in str(error.message).lower():
            raise ImageMissing(text) from error
        if error.status == 404 and "container" in str(error.message).lower():
            raise SandboxDied(text) from error
        if "no space left" in str(error.message).lower():
            raise StorageFull(text) from error
        # What the runtime refuses it refuses again, and old ones leave processes behind each time.
        if (error.status >= 500 and "oci runtime" not in str(error.message).lower()) or error.status == 409:
            raise DaemonError(text) from error
        raise SandboxError(text) from error
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise SandboxTimeout(f"{doing}: the Docker daemon did not answer in time") from error
    except (aiohttp.ClientConnectionError, ConnectionError) as error:
        raise DaemonUnavailable(f"{doing}: the Docker daemon is not reachable: {error}. {DAEMON_REMEDY}") from error
    except aiohttp.ClientError as error:
        raise SandboxError(f"{doing}: {str(error) or type(error).__name__}") from error
    except RuntimeError as error:
        if "Session is closed" not in str(error):
            raise
        raise SandboxDied(f"{doing}: its backend was left") from error


def image_remedy(name: str) -> str:
    """Return what to do about a missing image."""
    return (
        f"Image {name!r} is not on this host and could not be pulled. Either `docker load` it from a file, "
        "give the Docker daemon a registry that has it, or build from another base image (option base_image, in "
        "commands --env.base_image or --base-image; `python -m sandboxes setup` makes atropos-agent/base:debian12, "
        "which needs no registry)."
    )
