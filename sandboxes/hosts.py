"""Which hosts a sandbox without a network may reach: the entries of `Limits.allowed_hosts`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENTRY = re.compile(r"(\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::(\d{1,5}))?", re.IGNORECASE)
_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class AllowList:
    """Names of hosts with a port each; None stands for 80 and 443. "*.name" is every host below a name."""

    entries: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, hosts: Sequence[str]) -> AllowList:
        """Parse entries such as "host.org", "*.host.org", "host:8080", "10.1.2.3:80". Raises ValueError."""
        entries = []
        for host in hosts:
            match = _ENTRY.fullmatch(host)
            if match is None:
                raise ValueError(f'{host!r} is no host; write for example "host.org", "*.host.org" or "host.org:8443"')
            name = f"[{ipaddress.IPv6Address(match[1][1:-1])}]" if match[1].startswith("[") else match[1].lower()
            entries.append((name, int(match[2]) if match[2] else None))
        return cls(tuple(entries))

    def has(self, host: str, port: int) -> bool:
        """Return whether a host may be reached by that name, or by that address."""
        return any(
            (host == name or (name.startswith("*.") and host.endswith(name[1:])))
            and (port == only if only is not None else port in _PORTS)
            for name, only in self.entries
        )

    def has_address(self, address: str, port: int) -> bool:
        """Return whether an address may be connected to: a public one, or one that is listed as such, not by a name."""
        ip = ipaddress.ip_address(address)
        return self.has(f"[{ip}]" if ip.version == 6 else str(ip), port) or (
            ip.is_global and not ip.is_multicast and not _leads_elsewhere(ip)
        )


def _leads_elsewhere(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an IPv6 address stands for an IPv4 one, or for a network that translates it to one."""
    return isinstance(ip, ipaddress.IPv6Address) and bool(
        ip.ipv4_mapped or ip.sixtofour or ip.teredo or ip not in ipaddress.ip_network("2000::/3")
    )
