"""The pages: what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_is_named_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it names what was there as well")
    named = re.findall(
        r"`((?:envs|atropos_agent|tools|sandboxes|tests/\w+|examples|benchmarks)/[\w/.-]+\.\w+)`", page.read_text()
    )
    assert [path for path in named if not (ROOT / path).exists()] == []
