"""The Docker hosts of a user: addresses on one line, or a YAML file with more on each."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

SCHEMES = ("unix", "ssh", "tcp")
CERTIFICATES = ("ca.pem", "cert.pem", "key.pem")
_FIELDS = ("url", "capacity", "certificates")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with a Docker daemon.

    url: the Docker daemon's address: unix:///path, ssh://[user@]host[:port][/path], tcp://host:port.
    capacity: the most open sandboxes there; None for as many as its processors and memory allow.
    certificates: folder with ca.pem, cert.pem and key.pem, by which both sides know each other; needed for tcp://.
    """

    url: str
    capacity: int | None = None
    certificates: Path | None = None


def read_hosts(text: str) -> list[Host]:
    """Return the hosts in "ssh://a,tcp://b:2376", or in the YAML file of this name. Raises ValueError."""
    path = Path(text).expanduser()
    entries: Sequence[Any] = text.split(",")
    if "://" not in text:
        entries = _entries(path)
    hosts, problems = [], []
    for number, entry in enumerate(entries, 1):
        try:
            hosts.append(_host(entry, path.parent))
        except ValueError as error:
            problems.append(f"host {number}: {error}")
    urls = [host.url for host in hosts]
    problems += [f"{url} is named twice" for url in sorted(set(urls)) if urls.count(url) > 1]
    if problems:
        raise ValueError("; ".join(problems))
    return hosts


def _entries(path: Path) -> Sequence[Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(
            f"{path} is neither addresses such as ssh://a,ssh://b nor a YAML file of hosts: {error}"
        ) from error
    if not isinstance(found, list) or not found:
        raise ValueError(f"{path} must hold a list of hosts, each an address or a mapping with {', '.join(_FIELDS)}")
    return found


def _host(entry: Any, folder: Path) -> Host:
    given: Mapping[str, Any] = {"url": entry} if isinstance(entry, str) else entry
    if not isinstance(given, Mapping) or not isinstance(given.get("url"), str):
        raise ValueError(f"{entry!r} has no url")
    if unknown := sorted(map(str, given.keys() - set(_FIELDS))):
        raise ValueError(f"{', '.join(unknown)}: there is no such field; a host has {', '.join(_FIELDS)}")
    url, capacity = given["url"].strip(), given.get("capacity")
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{url!r} must begin with {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    if capacity is not None and (not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1):
        raise ValueError(f"capacity of {url} must be a number of sandboxes, not {capacity!r}")
    certificates = None if given.get("certificates") is None else folder / Path(str(given["certificates"])).expanduser()
    if certificates is None and parts.scheme == "tcp" and not _is_loopback(parts.hostname):
        raise ValueError(
            f"{url} without certificates would be root for whoever is on the way; name a folder with "
            f"{', '.join(CERTIFICATES)} as `certificates`, or use ssh://"
        )
    if certificates is not None:
        missing = [name for name in CERTIFICATES if not (certificates / name).is_file()]
        if missing:
            raise ValueError(f"{certificates} of {url} lacks {', '.join(missing)}")
    return Host(url, capacity, certificates)


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
