"""Knock at the head of a Ray cluster: with other settings of TLS than the head's, Ray would try without end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from sandboxes.tls import explain_tls_failure, trust

KNOCK_S = 10.0
"""How long a connection to the head may take, in seconds."""
GREETING_S = 5.0
"""How long a head without TLS may take over its first bytes, in seconds; it sends them unasked."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons where the other side speaks no TLS."""
_VARIABLES = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")


class HeadRefusesError(ConnectionError):
    """The head is there, and can't be used with our settings; the message has the remedy."""


async def knock(host: str, port: str, environ: Mapping[str, str]) -> None:
    """Find out whether a head listens, and whether it and we agree on TLS. environ: has Ray's settings.

    Raises HeadRefusesError, and OSError if nobody answers."""
    if environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        await _knock_with_tls(host, port, environ)
        return
    if await _greeting(host, port) is None and await _speaks_tls(host, port):
        raise HeadRefusesError(f"it wants TLS; set RAY_USE_TLS=1, {', '.join(_VARIABLES)} here, as on its nodes")


async def _speaks_tls(host: str, port: str) -> bool:
    try:
        await _greeting(host, port, tls=_context())
    except ssl.SSLError as error:  # it may want our certificate
        return error.reason not in _NO_TLS
    except OSError:  # it may just be slow
        return False
    return True


async def _knock_with_tls(host: str, port: str, environ: Mapping[str, str]) -> None:
    try:
        authority, certificate, key = (environ[name] for name in _VARIABLES)
    except KeyError as error:
        raise HeadRefusesError(f"RAY_USE_TLS is set, and {error.args[0]} is not; name its file") from error
    try:
        tls = _context(authority)
        tls.load_cert_chain(certificate, key)
    except OSError as error:  # ssl's errors are some too, and name no file
        raise HeadRefusesError(f"the files of {', '.join(_VARIABLES)} can't be used: {error}") from error
    try:
        if await _greeting(host, port, tls=tls) != b"":
            return
        why = None
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            raise HeadRefusesError("it has no TLS; unset RAY_USE_TLS, or set it on its nodes, too") from error
        why = explain_tls_failure(error, "--env.ray.address", "name its CA's file in RAY_TLS_CA_CERT")
    raise HeadRefusesError(why or "it refuses our certificate; name one of its CA in RAY_TLS_SERVER_CERT")


async def _greeting(host: str, port: str, tls: ssl.SSLContext | None = None) -> bytes | None:
    """Return the first byte that a head sends, unasked; none if it hangs up, None if it waits. Raises OSError."""
    try:
        async with asyncio.timeout(KNOCK_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {KNOCK_S:g} s") from error
    try:
        async with asyncio.timeout(GREETING_S):
            return await reader.read(1)
    except TimeoutError:
        return None
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


def _context(authority: str | None = None) -> ssl.SSLContext:
    """Return the settings of a connection; without an authority's file for a look alone, at whichever server."""
    tls = ssl.create_default_context() if authority is None else trust(authority)
    tls.set_alpn_protocols(["h2"])  # else Ray's servers hang up
    if authority is None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls
