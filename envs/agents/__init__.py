"""Agents that others made, unmodified, in a sandbox: one file each, how it is installed and how it is started."""
