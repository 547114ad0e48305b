"""Sandboxes in directories of this machine, without isolation."""
