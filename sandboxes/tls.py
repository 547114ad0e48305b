"""Which certificates are trusted, and why a TLS connection was refused, in a sentence with the remedy."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

AUTHORITY = "set SSL_CERT_FILE to the file of its CA's certificate"
"""The remedy where the environment names the CAs."""
_TIMES = (9, 10)
_NAMES = (62, 64)
_STRICT = range(80, 94)
"""OpenSSL's codes of certificates outside of their time, for another name or address, and unlike RFC 5280's."""


def trust(authority: str) -> ssl.SSLContext:
    """Return the settings of connections to servers that the CAs of a file vouch for.

    From Python 3.13 on the default ones also want extensions that `openssl req -x509`, which Docker's manual makes a
    CA with, leaves out."""
    tls = ssl.create_default_context(cafile=authority)
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def explain_tls_failure(error: BaseException, address: str, authority: str = AUTHORITY) -> str | None:
    """Return why a server's certificate is not trusted, with the remedy; None for an error with another cause.

    address: where the user gives the server's address. authority: how to name the CA's certificate."""
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:
        chain.append(found)
        found = found.__cause__ or found.__context__
    # aiohttp's own has no code.
    refusals = [one for one in chain if isinstance(one, ssl.SSLCertVerificationError) and hasattr(one, "verify_code")]
    if not refusals:
        return missing_authority() if any(isinstance(one, FileNotFoundError) for one in chain) else None
    refusal = refusals[0]
    if refusal.verify_code in _TIMES:
        remedy = "renew it there, or set this machine's clock"
    elif refusal.verify_code in _NAMES:
        remedy = f"name it in {address} as the certificate does"
    elif refusal.verify_code in _STRICT:
        remedy = "make that certificate again as RFC 5280 wants it, or use Python 3.12, which does not ask for it"
    else:
        remedy = missing_authority() or authority
    return f"its certificate is not trusted ({refusal.verify_message.rstrip('.')}); {remedy}"


def missing_authority() -> str | None:
    """Return the remedy if SSL_CERT_FILE names no file: Python's error, if there is one, names none either."""
    named = os.environ.get("SSL_CERT_FILE")
    return (
        f"SSL_CERT_FILE names {named}, which is not there; correct or unset it"
        if named and not Path(named).exists()
        else None
    )
