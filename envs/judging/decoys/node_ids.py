"""Tests by their node ids, files and decorators."""

import ast
import re
from collections.abc import Iterable

_DEPTH = 4
"""As many names of a path tell files apart."""
_A_TEST = re.compile(rb"^\s*(?:async )?def test", re.MULTILINE)


def expects_failure(decorator: ast.expr) -> bool:
    """Return whether a decorator is `pytest.mark.xfail`, without a condition or an expected exception, or
    `unittest.expectedFailure`."""
    if getattr(decorator, "attr", getattr(decorator, "id", "")) == "expectedFailure":
        return True
    if isinstance(decorator, ast.Call):
        if decorator.args or any(keyword.arg not in ("reason", "run", "strict") for keyword in decorator.keywords):
            return False
        decorator = decorator.func
    return isinstance(decorator, ast.Attribute) and decorator.attr == "xfail"


def failing_rows(decorator: ast.expr) -> int:
    """Return how many rows of a `parametrize` have a mark that expects them to fail, as `expects_failure` has it."""
    found = 0
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "param":
            marks = [keyword.value for keyword in node.keywords if keyword.arg == "marks"]
            marks = [one for mark in marks for one in getattr(mark, "elts", [mark])]
            found += any(expects_failure(mark) for mark in marks)
    return found


def is_test_module(name: str, data: bytes = b"") -> bool:
    """Return whether a file is named like modules of tests, or is Python with tests. data: its content."""
    if not name.endswith(".py"):
        return False
    return name.startswith("test") or name.endswith(("_test.py", "_tests.py")) or _A_TEST.search(data) is not None


class Files:
    """Files that may hold tests, known by the ends of their paths: there may be very many, of a hostile agent."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._ends: set[str] = set()
        self._short: set[str] = set()
        for path in paths:
            parts = path.strip("/").split("/")
            self._ends.update("/".join(parts[-count:]) for count in range(1, min(len(parts), _DEPTH) + 1))
            if len(parts) < _DEPTH:
                self._short.add("/".join(parts))

    def hold(self, test: str) -> bool:
        """Return whether a test is in one of them, by as much of their paths as both name."""
        parts = [part for part in test.partition("::")[0].split("/") if part not in ("", ".", "..")][-_DEPTH:]
        tails = ("/".join(parts[-count:]) for count in range(1, len(parts)))
        return "/".join(parts) in self._ends or any(tail in self._short for tail in tails)
