"""Sandboxes on many Docker hosts, as if they were one."""

from sandboxes.fleet.backend import FleetBackend
from sandboxes.fleet.host import Host, read_hosts
from sandboxes.fleet.measure import HostFigures, measure

__all__ = ["FleetBackend", "Host", "HostFigures", "measure", "read_hosts"]
