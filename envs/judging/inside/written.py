"""The tests of modules, as they are written.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast
import re

from literals import dotted, last_name, walk
from names import FUNCTIONS, is_fixture, stored
from node_ids import expects_failure, failing_rows, is_id


class Written:
    """The modules of tests.

    files: their paths. sources: what is in them, by path. trees: their syntax, by path; of one that is no Python the
    error.
    """

    def __init__(self, files):
        self.files, self.sources, self.trees = files, {}, {}
        for path in files:
            with open(path, "rb") as file:
                self.sources[path] = file.read()
            try:
                self.trees[path] = ast.parse(self.sources[path], path)
            except (SyntaxError, ValueError) as error:
                self.trees[path] = str(error)

    def functions(self, path):
        """Return the tests of a module, {name: syntax}."""
        tree = self.trees[path]
        return {} if isinstance(tree, str) else dict(tests(tree))

    def may_fail(self, name):
        """Return whether a mark of the test, without a condition, expects it to fail: no code can break it."""
        node = self._function(name)
        return node is not None and any(expects_failure(decorator) for decorator in node.decorator_list)

    def failing_rows(self, name):
        """Return how many rows of a parametrised test have such a mark."""
        node = self._function(name)
        return 0 if node is None else sum(map(failing_rows, node.decorator_list))

    def may_skip(self, name, where):
        """Return whether a test that is said to have been skipped speaks of that, or what it shares does."""
        tree = self.trees.get(where) if isinstance(where, str) else None
        if tree is None or isinstance(tree, str):
            return False
        base = name.split("[")[0]
        functions = self.functions(where).items()
        mine = {id(node) for found, node in functions if is_id(base, where, found)}
        others = {id(node) for _, node in functions} - mine
        return _speaks_of_skipping(tree, others)

    def replaces(self, name):
        """Return whether the tests themselves put something in place of what others rely on, such as `time.time`."""
        module, _, attribute = (part.encode() for part in name.rpartition("."))
        told = rb"\b%s\.%s\s*=[^=]|setattr\(\s*['\"]?%s\b.{0,9}\b%s\b" % (module, attribute, module, attribute)
        frozen = rb"|freeze_time|time_machine" if module == b"time" else b""
        return any(re.search(told + frozen, source) for source in self.sources.values())

    def _function(self, test):
        """Return the syntax of a test; None where it isn't found."""
        name = test.split("[")[0]
        for path in self.files:
            for found, node in self.functions(path).items():
                if is_id(name, path, found):
                    return node
        return None


def tests(tree):
    """Yield the tests of a module: (`name`, `Class::name` or `Class::Nested::name`, node). A class has those of its
    bases, too, where they are classes of the module."""
    taken_away, classes = set(_taken_away(tree)), {}
    for node in tree.body:
        left = getattr(node, "name", None) not in taken_away
        if isinstance(node, ast.ClassDef):
            for name, method in _methods(node, classes) if left else ():
                yield node.name + "::" + name, method
            classes[node.name] = None if node.name in classes else node
        elif left and is_test(node):
            yield node.name, node


def _methods(node, classes):
    """Yield the tests of a class: (`name` or `Nested::name`, node). classes: those before it in the module, None for a
    name that has several."""
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


def _inherited(node, classes):
    """Return the tests that a class has of its bases, by name; none where that is uncertain."""
    found, own, bases = {}, set(), []
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            bases.append(classes[base.id])
        elif not last_name(base).endswith(("TestCase", "object", "ABC")):
            break
    if node.keywords or None in bases or any(".mark." not in "." + (dotted(one) or "") for one in node.decorator_list):
        return {}
    for statement in node.body if bases else ():
        if isinstance(statement, FUNCTIONS + (ast.ClassDef,)):
            own.add(statement.name)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass)):
            own |= {name for one in walk(statement) for name in stored(one)}
        else:
            return {}
    for base in bases:
        if any(map(_is_no_test, base.body)):
            return {}
        for name, method in _methods(base, {known: one for known, one in classes.items() if one is not base}):
            if "::" not in name and name not in own:
                found.setdefault(name, method)
    return found


def cases_of(tree, *ends):
    """Return the names of the classes of tests that unittest runs, and of none that they share. ends: of the names of
    their bases; without one these are unittest's own."""
    found = set()
    for node in getattr(tree, "body", ()):
        bases = map(last_name, node.bases) if isinstance(node, ast.ClassDef) else ()
        if any(base.endswith(ends) if ends else base in ("TestCase", "IsolatedAsyncioTestCase") for base in bases):
            found.add(node.name)
    return found if ends else found - {"TestCase", "IsolatedAsyncioTestCase"}


def _taken_away(tree):
    """Yield the names that a module deletes again, or of which it says that they are no tests (`name.__test__ = …`)."""
    for node in tree.body:
        for target in getattr(node, "targets", []):
            if isinstance(node, ast.Delete) or getattr(target, "attr", None) == "__test__":
                yield dotted(target).split(".")[0] if dotted(target) else None


def is_test(node):
    """Return whether a node is the function of a test, by its name and what it is decorated with."""
    if not isinstance(node, FUNCTIONS) or not node.name.startswith("test") or is_fixture(node):
        return False
    return not any("nottest" in (dotted(one) or "").lower().replace("_", "") for one in node.decorator_list)


def _is_no_test(node):
    """Return whether a statement of a class says that it holds no tests, or makes them impossible."""
    if isinstance(node, ast.Assign):
        return any(dotted(target) == "__test__" for target in node.targets)
    return isinstance(node, FUNCTIONS) and node.name in ("__init__", "__new__")


def _has_rows(node):
    """Return whether a node is a `parametrize` with rows that are written out: none of nothing, which is skipped."""
    named = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1
    rows = node.args[1] if named else None
    return isinstance(rows, (ast.List, ast.Tuple)) and any(not isinstance(one, ast.Starred) for one in rows.elts)


def rows(node):
    """Return how often a test is run at least: once for each row of its `parametrize` that is written out."""
    found = 1
    for one in filter(_has_rows, node.decorator_list):
        found *= sum(not isinstance(row, ast.Starred) for row in one.args[1].elts)
    return found


def lacks(told, path, name, node):
    """Return whether fewer runs of a test were told of than are written. told: how often, by ids without cases."""
    return sum(count for test, count in told.items() if is_id(test, path, name)) < rows(node)


def _speaks_of_skipping(tree, others):
    """Return whether a module may skip a test. others: ids of the nodes of its other tests."""
    for node in [*tree.args, *tree.keywords] if _has_rows(tree) else ast.iter_child_nodes(tree):
        word = getattr(node, "attr", getattr(node, "id", None))
        if isinstance(word, str) and ("skip" in word.lower() or word == "parametrize"):
            return True
        if id(node) not in others and _speaks_of_skipping(node, others):
            return True
    return False
