"""Sandboxes as temporary directories of this machine, without any isolation."""

from sandboxes.local.backend import LocalBackend

__all__ = ["LocalBackend"]
