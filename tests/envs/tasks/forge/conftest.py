"""Fixtures of the forge's tests."""

from pathlib import Path

import pytest
from forge_samples import LIBRARY, MORE_TESTS, TESTS


@pytest.fixture
def library(tmp_path) -> Path:
    root = tmp_path / "shapes"
    for path, text in {
        "src/shapes.py": LIBRARY,
        "tests/test_area.py": TESTS,
        "tests/test_halves.py": MORE_TESTS,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--no-such-option"\n')
    return root
