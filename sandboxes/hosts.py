"""The hosts within reach of a sandbox without a network: the entries of `Limits.allowed_hosts`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ENTRY = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?")
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class AllowList:
    """Names of hosts, and ranges of addresses, with a port each; None stands for 80 and 443. "*.name" is every host
    below a name. A single address is a range of one."""

    names: tuple[tuple[str, int | None], ...]
    ranges: tuple[tuple[Network, int | None], ...]

    @classmethod
    def of(cls, hosts: Sequence[str]) -> AllowList:
        """Parse entries such as "host.org", "*.host.org", "host:8080", "10.1.2.3:80", "10.1.0.0/16", "2001:db8::1" and
        "[2001:db8::1]:80". Raises ValueError."""
        names, ranges = [], []
        for host in hosts:
            entry = host.strip().lower()
            # An IPv6 address without brackets is full of colons, and has no port.
            match = _ENTRY.fullmatch(entry) if _network(entry) is None else None
            name = match[1] if match else entry
            port = int(match[2]) if match and match[2] else None
            if (network := _network(name.strip("[]"))) is not None:
                ranges.append((network, port))
            elif _NAME.fullmatch(name := name.rstrip(".")):
                names.append((name, port))
            else:
                raise ValueError(
                    f'{host!r} is no host; write for example "host.org", "*.host.org", "host.org:8443" or "10.1.0.0/16"'
                )
        return cls(tuple(names), tuple(ranges))

    def has(self, host: str, port: int) -> bool:
        """Return whether a host may be reached by this name, or by this address (IPv6: with or without brackets)."""
        if (network := _network(host.strip("[]"))) is not None:
            return network.num_addresses == 1 and self._listed(network.network_address, port)
        return any(
            (host == name or (name.startswith("*.") and host.endswith(name[1:]))) and _is(port, only)
            for name, only in self.names
        )

    def has_address(self, address: str, port: int) -> bool:
        """Return whether an address may be connected to: a public one, or one listed as an address, not by a name."""
        ip = ipaddress.ip_address(address)
        return _is_public(ip) or self._listed(ip, port)

    def _listed(self, ip: Address, port: int) -> bool:
        """Return whether a range holds an address. A range of the internet (0.0.0.0/0) holds no private address."""
        return any(
            ip in network and _is(port, only) and (network.num_addresses == 1 or network.is_private or _is_public(ip))
            for network, only in self.ranges
        )


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text) if "%" not in text else None
    except ValueError:
        return None


def _is(port: int, only: int | None) -> bool:
    return port == only if only is not None else port in _PORTS


def _is_public(ip: Address) -> bool:
    return ip.is_global and not ip.is_multicast and not _embeds_other_address(ip)


def _embeds_other_address(ip: Address) -> bool:
    """Return whether an IPv6 address stands for an IPv4 one, or for a network that translates it to one."""
    return isinstance(ip, ipaddress.IPv6Address) and bool(
        ip.ipv4_mapped or ip.sixtofour or ip.teredo or ip not in ipaddress.ip_network("2000::/3")
    )
