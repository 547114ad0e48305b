"""Open the page's loopback address, and make the key at the beginning of its path."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from pathlib import Path

KEY_FILE = "page.key"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on a loopback address. port: 0 for a free one. Raises OSError."""
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(64)
    except OSError:
        found.close()
        raise
    return found


def address(listening: socket.socket, key: str) -> str:
    """Return the page's address."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{key}/"


def key_of(directory: Path) -> str:
    """Return the key of a run's page. It stays the same, so links do; a new one if it can't be kept."""
    path = directory / KEY_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = path.read_text("ascii").strip()
        if len(found) >= 20 and found.replace("-", "").replace("_", "").isalnum():
            return found
    except (OSError, ValueError):
        pass
    key = secrets.token_urlsafe(18)
    try:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key)
    except OSError:
        pass
    return key
