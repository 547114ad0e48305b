"""The environment's proxies: none stands between this process and its own machine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from urllib.request import getproxies

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def bypass_proxies_for_loopback() -> None:
    """Leave loopback out of the environment's proxies, for this process and its children: no proxy has our gateway.

    Go's programs and browsers do so by themselves, Python's ask a proxy for `localhost`, too."""
    proxies = getproxies()
    if not proxies.keys() - {"no"}:
        return
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"  # the first wins in Python
    named = [host for host in os.environ.get(name, "").split(",") if host.strip()]
    if "*" not in named:
        os.environ[name] = ",".join([*named, *(host for host in _LOOPBACK if host not in named)])


def lacks_socks() -> bool:
    """Tell whether the environment names a SOCKS proxy and httpx lacks the package for it: then each client fails that
    httpx makes by its defaults, for whatever host."""
    named = any(proxy.startswith("socks") for proxy in getproxies().values())
    return named and find_spec("socksio") is None
