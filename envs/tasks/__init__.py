"""Tasks: formats, adapters, the forge, and a run's selection."""
