"""The tests of modules, as they are written."""

from __future__ import annotations

import ast
import collections
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeGuard

from envs.judging.decoys.literals import dotted, last_name, walk
from envs.judging.decoys.names import FUNCTIONS, Function, is_fixture, stored
from envs.judging.decoys.node_ids import expects_failure, failing_rows


class SourceTests:
    """The modules of tests. trees: their syntax, by path, if it is this Python's. sources: their texts."""

    def __init__(self, trees: Mapping[str, ast.Module], sources: Mapping[str, bytes]) -> None:
        self.trees, self.sources = trees, sources
        self._functions = {path: dict(tests(tree)) for path, tree in trees.items()}
        self._paths: dict[str, list[str]] = collections.defaultdict(list)
        for path, functions in self._functions.items():
            for name in functions:
                self._paths[name].append(path)

    def functions(self, path: str) -> Mapping[str, Function]:
        """Return the tests of a module, {name: syntax}."""
        return self._functions.get(path, {})

    def counts(self, test: str) -> bool:
        """Return whether a test that no list names has to pass. If there are hidden modules, tests of other
        modules need not: the agent's, or tests that run in a place of their own."""
        file = test.partition("::")[0].rpartition("/")[2]
        return not self.trees or not file.endswith(".py") or any(path.endswith("/" + file) for path in self.trees)

    def may_fail(self, name: str) -> bool:
        """Return whether a mark of the test, without a condition, expects it to fail: no code can break it."""
        node = self._function(name)
        return node is not None and any(expects_failure(decorator) for decorator in node.decorator_list)

    def failing_rows(self, name: str) -> int:
        """Return how many rows of a parametrised test have such a mark."""
        node = self._function(name)
        return 0 if node is None else sum(map(failing_rows, node.decorator_list))

    def may_skip(self, name: str, where: object) -> bool:
        """Return whether a test that was reported as skipped speaks of skipping, or code beside it does.

        where: the file of the skip, perhaps a copy that test.sh made."""
        file = where.rpartition("/")[2] if isinstance(where, str) else ""
        path = next((path for path in self.trees if path.endswith("/" + file)), None) if file else None
        if path is None:
            return False
        functions = self.functions(path).items()
        mine = {id(node) for found, node in functions if (path, found) in self.of(name)}
        others = {id(node) for _, node in functions} - mine
        return _speaks_of_skipping(self.trees[path], others)

    def rely_on(self, name: str) -> bool:
        """Return whether the tests rely on what code under test has replaced, such as `time.time`: they do not replace
        it themselves, and read it if it is a clock."""
        module, _, attribute = (part.encode() for part in name.rpartition("."))
        told = rb"\b(setattr|patch[.\w]*)\([^\n]*\b%s\b|\b%s\.%s\s*=[^=]" % (attribute, module, attribute)
        frozen = rb"|freeze_time|time_machine" if module == b"time" else b""
        read = module != b"time" or any(re.search(rb"\b%s\(" % attribute, one) for one in self.sources.values())
        return read and not any(re.search(told + frozen, source) for source in self.sources.values())

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
        """Return the tests without a report, or with too few rows in it, of modules with some tests that ran."""
        ran: collections.Counter[tuple[str, str]] = collections.Counter()
        for test in outcome:
            ran.update(self.of(test))
        modules = {path for path, _ in ran}
        return [
            name for path in modules for name, node in self.functions(path).items() if ran[path, name] < _rows(node)
        ]

    def _function(self, test: str) -> Function | None:
        """Return the syntax of a test; None if it isn't found."""
        return next((self._functions[path][name] for path, name in self.of(test)), None)


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
    classes: dict[str, ast.ClassDef | None] = {}
    for node in tree.body:
        left = getattr(node, "name", None) not in taken_away
        if isinstance(node, ast.ClassDef):
            for name, method in _methods(node, classes) if left and _is_collected(node, classes) else ():
                yield node.name + "::" + name, method
            classes[node.name] = None if node.name in classes else node
        elif left and is_test(node):
            yield node.name, node


def _is_collected(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef | None]) -> bool:
    """Return whether pytest or unittest looks for tests in a class: by its name, or by its bases."""
    for base in node.bases:
        name = last_name(base)
        known = classes.get(name)
        if name.endswith("TestCase") or (
            known is not None
            and known is not node
            and not known.name.startswith("Test")
            and _is_collected(known, classes)
        ):
            return True
    return node.name.startswith("Test")


def _methods(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef | None]) -> Iterator[tuple[str, Function]]:
    """Yield the tests of a class: (`name` or `Nested::name`, node). classes: those before it in the module, None for a
    name with several."""
    if any(map(_is_no_test, node.body)):
        return
    for method in node.body:
        if is_test(method):
            yield method.name, method
        elif isinstance(method, ast.ClassDef) and not node.bases and not method.bases:
            for name, nested in _methods(method, {}):
                yield method.name + "::" + name, nested
    for name, method in _inherited(node, classes).items():
        yield name, method


def _inherited(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef | None]) -> dict[str, Function]:
    """Return the tests that a class has of its bases, by name; none if it is uncertain."""
    bases = _bases(node, classes)
    if node.keywords or any(".mark." not in f".{dotted(one) or ''}" for one in node.decorator_list):
        return {}
    if any(_is_no_test(one) for base in bases for one in base.body):
        return {}
    own = {name for statement in node.body for one in walk(statement) for name in stored(one)}
    found: dict[str, Function] = {}
    for base in bases:
        for name, method in _methods(base, {known: one for known, one in classes.items() if one is not base}):
            if "::" not in name and name not in own:
                found.setdefault(name, method)
    return found


def _bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef | None]) -> list[ast.ClassDef]:
    """Return the classes of the module that a class takes tests from; none if one of their names stands for several."""
    found: list[ast.ClassDef] = []
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            known = classes[base.id]
            if known is None:
                return []
            found.append(known)
        elif not last_name(base).endswith(("TestCase", "object", "ABC")):
            break
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
