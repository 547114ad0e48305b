"""The software engineering environment."""

from pathlib import Path

STARTER = Path(__file__).parent / "starter"
"""The starter pack in the package, as Harbor task directories."""
