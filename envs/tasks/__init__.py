"""Tasks: formats, adapters, the forge, and which of them a run uses."""
