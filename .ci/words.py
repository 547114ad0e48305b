#!/usr/bin/env python3
"""Counts the words that make a page hard to read: relative words in 1,000, and sentences that begin with one.

`.ci/words.py` names every page, package and `--help` over its bound, and ends with status 1 if there is one.
`.ci/words.py KIND…` looks at some of the kinds: pages, docstrings, help.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_RELATIVE = 20  # in 1,000 words
MOST_TURNED = 1  # in 100 sentences
RELATIVE = re.compile(r"\b(what|which|whose|where|that|who|whom)\b", re.IGNORECASE)
TURNED = re.compile(r"(What|Who|Whoever|Given|So (is|are|has|have)|Nor|Of)\b")
PACKAGES = ("atropos_agent", "envs", "sandboxes", "tools")


def pages() -> Iterator[tuple[str, str]]:
    """Give the name and the prose of each page."""
    for page in sorted([*Path().glob("*.md"), *Path("docs").glob("*.md")]):
        if page.name != "CHANGELOG.md":
            prose = re.sub(r"```.*?```", " ", page.read_text(), flags=re.DOTALL)
            yield str(page), "\n".join(line for line in prose.splitlines() if not line.startswith("|"))


def docstrings() -> Iterator[tuple[str, str]]:
    """Give the name and the docstrings of each package."""
    for package in PACKAGES:
        trees = [ast.parse(module.read_text()) for module in sorted(Path(package).rglob("*.py"))]
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]
        yield f"docstrings of {package}", "\n\n".join(ast.get_docstring(node) or "" for node in nodes)


def helps() -> Iterator[tuple[str, str]]:
    """Give the command line's help."""
    asked = subprocess.run(
        [sys.executable, "-m", "envs.swe", "serve", "--help"], check=True, capture_output=True, text=True
    )
    yield "serve --help", asked.stdout


def main() -> int:
    """Print each text over a bound. Returns the exit status."""
    kinds = {"pages": pages, "docstrings": docstrings, "help": helps}
    over = 0
    for name, text in (found for kind in sys.argv[1:] or kinds for found in kinds[kind]()):
        prose = re.sub(r"`[^`]*`", "x", text)
        words = len(re.findall(r"[A-Za-z]+", prose))
        sentences = [one for one in re.split(r"(?<=[.:!?])\s+", prose) if one.strip()]
        relative = 1000 * len(RELATIVE.findall(prose)) / max(1, words)
        turned = [one for one in sentences if TURNED.match(one.strip())]
        if relative > MOST_RELATIVE or len(turned) > max(1, len(sentences) * MOST_TURNED // 100):
            over += 1
            print(
                f"{name}: {relative:.0f} relative words in 1,000, {len(turned)} inverted of {len(sentences)} sentences"
            )
            print("".join(f"    {one[:100]!r}\n" for one in turned[:3]), end="")
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
