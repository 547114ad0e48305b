"""Shared by the backends on somebody else's server: its API, its images, sandboxes with the executor in each."""
