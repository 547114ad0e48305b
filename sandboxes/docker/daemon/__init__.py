"""The Docker daemon: its clients, its start, and containers started by it."""
