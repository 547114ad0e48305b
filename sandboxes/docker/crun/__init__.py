"""Containers started past the Docker daemon, by crun, from the daemon's images and with its isolation."""
