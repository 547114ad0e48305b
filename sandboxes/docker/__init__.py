"""Sandboxes in Docker containers."""

from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.pool import PoolLimits

__all__ = ["DockerBackend", "PoolLimits"]
