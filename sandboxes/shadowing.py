"""Find packages of the user's that hide ours: `tools` and `envs` are common names."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder of our packages."""


def check_packages(*names: str) -> None:
    """Raise ImportError, with the culprit and the remedy, if an import would find something else than our
    packages of these names."""
    for name in names:
        try:
            spec = find_spec(name)
        except ValueError:  # it is there and says nothing of itself
            continue
        places = [] if spec is None else [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        if places and not any(Path(place).resolve().is_relative_to(ROOT / name) for place in places if place):
            raise ImportError(
                f"{places[0]} hides the package {name!r} of atropos-agent ({ROOT / name}), because its folder comes "
                f"first on Python's path ({sys.path[0] or 'the working directory'}); rename it, or start Python in "
                "another folder",
                name=name,
            )
