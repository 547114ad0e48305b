"""The tests of modules, as they are written."""

from __future__ import annotations

import ast
import collections
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeGuard

from envs.judging.decoys.literals import dotted, last_name
from envs.judging.decoys.names import FUNCTIONS, Function, is_fixture, runs_as_written, stored
from envs.judging.decoys.node_ids import expects_failure, failing_rows

_PLAIN = ("TestCase", "object", "ABC")
"""Ends of the names of bases without tests."""


class SourceTests:
    """The modules of tests. trees: their syntax, by path, if it is this Python's. sources: their texts."""

    def __init__(self, trees: Mapping[str, ast.Module], sources: Mapping[str, bytes]) -> None:
        self.trees, self.sources = trees, sources
        self._functions = {path: dict(tests(tree)) for path, tree in trees.items()}
        self._skipping: dict[tuple[str, frozenset[int]], bool] = {}
        self._files: dict[str, str] = {}
        self._hidden = {path.rpartition("/")[2] for path in sources}
        self._paths: dict[str, list[str]] = collections.defaultdict(list)
        for path, functions in self._functions.items():
            self._files.setdefault(path.rpartition("/")[2], path)
            for name in functions:
                self._paths[name].append(path)

    def counts(self, test: str) -> bool:
        """Return whether a test that no list names has to pass. If there are hidden modules, tests of other
        modules need not: the agent's, or tests that run in a place of their own. A hidden module may be of a Python
        that this one can't read."""
        file = test.partition("::")[0].rpartition("/")[2]
        return not self._hidden or not file.endswith(".py") or file in self._hidden

    def may_fail(self, name: str) -> bool:
        """Return whether a mark of the test, without a condition, expects it to fail: no code can break it."""
        return any(map(expects_failure, self._decorators(name)))

    def failing_rows(self, name: str) -> int:
        """Return how many rows of a parametrised test have such a mark."""
        return sum(map(failing_rows, self._decorators(name)))

    def may_skip(self, name: str, reported: object) -> bool:
        """Return whether a test that was reported as skipped speaks of skipping, or code beside it does.

        reported: the file of the skip, perhaps a copy that test.sh made."""
        path = self._files.get(reported.rpartition("/")[2]) if isinstance(reported, str) else None
        if path is None:
            return False
        functions = self._functions[path]
        mine = frozenset(id(functions[found]) for where, found in self.of(name) if where == path)
        if (path, mine) not in self._skipping:  # there may be very many reports, of few tests
            others = {id(node) for node in functions.values()} - mine
            self._skipping[path, mine] = _speaks_of_skipping(self.trees[path], others)
        return self._skipping[path, mine]

    def rely_on(self, name: str) -> bool:
        """Return whether the tests rely on what code under test has replaced, such as `time.time`: they do not replace
        it themselves, and read it if it is a clock."""
        module, _, attribute = (re.escape(part.encode("utf-8", "replace")) for part in name.rpartition("."))
        assigned = rb"\b(setattr|patch[.\w]*)\([^\n]*\b%s\b|\b%s\.%s\s*=[^=]" % (attribute, module, attribute)
        frozen = rb"|freeze_time|time_machine" if module == b"time" else b""
        read = module != b"time" or any(re.search(rb"\b%s\(" % attribute, one) for one in self.sources.values())
        return read and not any(re.search(assigned + frozen, source) for source in self.sources.values())

    def of(self, test: str) -> list[tuple[str, str]]:
        """Return the tests that a node id may stand for: (path, name), with or without its case.

        The file of the id may be a copy of the module: of modules of its name those count whose paths have most in
        common with it. unittest names no file, and pytest 7 names none for one outside of its root directory
        (`::test_it`).
        """
        base = test.split("[", maxsplit=1)[0]
        file, _, rest = base.partition("::") if "::" in base else ("", "", base)
        paths = self._paths.get(rest, [])
        if file:
            parts = [part for part in file.split("/") if part not in ("", ".", "..")]
            likeness = {path: _in_common(path.split("/"), parts) for path in paths}
            most = max(likeness.values(), default=0)
            paths = [path for path in paths if likeness[path] == most > 0]
        return [(path, rest) for path in paths]

    def unseen(self, outcome: Collection[str]) -> list[str]:
        """Return the tests without a report, or with too few rows in it, of modules with some tests that ran. Of one
        with another decorator, as `ddt` has, others may have been made."""
        ran: collections.Counter[tuple[str, str]] = collections.Counter()
        for test in outcome:
            ran.update(self.of(test))
        return [
            name
            for path in {path for path, _ in ran}
            for name, node in self._functions[path].items()
            if ran[path, name] < _rows(node) and all(map(runs_as_written, self._decorators_of(path, name)))
        ]

    def _decorators(self, test: str) -> Sequence[ast.expr]:
        """Return the decorators and marks of a test, of its classes and of its module; none if it isn't found."""
        for found in self.of(test):
            return self._decorators_of(*found)
        return []

    def _decorators_of(self, path: str, name: str) -> Sequence[ast.expr]:
        above = _marks_above(self.trees[path], name.split("::")[:-1])
        return [*self._functions[path][name].decorator_list, *above]


def _marks_above(above: ast.Module | ast.ClassDef, classes: Sequence[str]) -> Iterator[ast.expr]:
    """Yield the marks of a module or class, and of the classes in it with these names, one in the other."""
    yield from getattr(above, "decorator_list", [])
    for node in above.body:
        if isinstance(node, ast.Assign) and any(dotted(target) == "pytestmark" for target in node.targets):
            yield from getattr(node.value, "elts", [node.value])
        elif classes and isinstance(node, ast.ClassDef) and node.name == classes[0]:
            yield from _marks_above(node, classes[1:])


def _in_common(path: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts the ends of two paths have in common."""
    pairs = zip(reversed(path), reversed(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _rows(node: Function) -> int:
    """Return how often a test is run at least: once for each row of its `parametrize` that is written out. Older
    versions of pytest leave out class methods."""
    found = int(all(last_name(one) != "classmethod" for one in node.decorator_list))
    for one in node.decorator_list:
        if isinstance(one, ast.Call) and _has_rows(one):
            found *= sum(not isinstance(row, ast.Starred) for row in getattr(one.args[1], "elts", ()))
    return found


def tests(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the tests of a module: (`name`, `Class::name` or `Class::Nested::name`, node). A class has those of its
    bases, too, if they are classes of the module."""
    taken_away = set(_taken_away(tree))
    known: dict[str, Mapping[str, Function]] = {}
    cases: set[str] = set()
    for node in tree.body:
        left = getattr(node, "name", None) not in taken_away
        if isinstance(node, ast.ClassDef):
            known[node.name] = _methods(node, known)
            if any(last_name(base).endswith("TestCase") or last_name(base) in cases for base in node.bases):
                cases.add(node.name)
            if left and (node.name in cases or node.name.startswith("Test")):
                yield from ((f"{node.name}::{name}", method) for name, method in known[node.name].items())
        elif left and is_test(node):
            yield node.name, node


def _methods(node: ast.ClassDef, known: Mapping[str, Mapping[str, Function]]) -> dict[str, Function]:
    """Return the tests of a class, by `name` or `Nested::name`. known: those of the classes before it in the module."""
    if any(map(_is_no_test, node.body)):
        return {}
    found: dict[str, Function] = {}
    if not node.keywords and all(".mark." in f".{dotted(one) or ''}" for one in node.decorator_list):
        own = {name for statement in node.body for one in ast.walk(statement) for name in stored(one)}
        names = itertools.takewhile(lambda name: name in known or name.endswith(_PLAIN), map(last_name, node.bases))
        for base in reversed([known[name] for name in names if name in known]):
            found |= {name: method for name, method in base.items() if "::" not in name and name not in own}
    for method in node.body:
        if is_test(method):
            found[method.name] = method
        elif isinstance(method, ast.ClassDef) and not node.bases and not method.bases:
            found |= {f"{method.name}::{name}": nested for name, nested in _methods(method, {}).items()}
    return found


def _taken_away(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module deletes again, or declares to be no tests (`name.__test__ = …`)."""
    for node in tree.body:
        for target in getattr(node, "targets", []):
            name = dotted(target)
            if name and (isinstance(node, ast.Delete) or getattr(target, "attr", None) == "__test__"):
                yield name.partition(".")[0]


def is_test(node: ast.AST) -> TypeGuard[Function]:
    """Return whether a node is the function of a test, by its name and its decorators."""
    if not isinstance(node, FUNCTIONS) or not node.name.startswith("test") or is_fixture(node):
        return False
    return not any("nottest" in (dotted(one) or "").lower().replace("_", "") for one in node.decorator_list)


def _is_no_test(node: ast.stmt) -> bool:
    """Return whether a statement of a class says that it holds no tests, or makes them impossible."""
    if isinstance(node, ast.Assign):
        return any(dotted(target) == "__test__" for target in node.targets)
    return isinstance(node, FUNCTIONS) and node.name in ("__init__", "__new__")


def _has_rows(call: ast.Call) -> bool:
    """Return whether a call is a `parametrize` with rows that are written out. One without rows
    doesn't count: pytest skips it."""
    rows = call.args[1] if getattr(call.func, "attr", "") == "parametrize" and len(call.args) > 1 else None
    return isinstance(rows, ast.List | ast.Tuple) and any(not isinstance(one, ast.Starred) for one in rows.elts)


def _speaks_of_skipping(tree: ast.AST, others: set[int]) -> bool:
    """Return whether a module may skip a test. others: ids of the nodes of its other tests."""
    rows = [*tree.args, *tree.keywords] if isinstance(tree, ast.Call) and _has_rows(tree) else None
    for node in rows or ast.iter_child_nodes(tree):
        word = getattr(node, "attr", getattr(node, "id", None))
        if isinstance(word, str) and ("skip" in word.lower() or word == "parametrize"):
            return True
        if id(node) not in others and _speaks_of_skipping(node, others):
            return True
    return False
