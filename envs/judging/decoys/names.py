"""The names of a module of tests: their meanings, contexts that may catch a failing assert, rows of `parametrize`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from envs.judging.decoys.literals import Names, constant, dotted, last_name

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
AGAIN = re.compile("xfail|flaky|retry|retries|rerun|repeat|expectedfailure|eventually|tenacity|backoff|poll", re.I)
"""Names of decorators and calls that expect a test to fail, or try it again."""
_ONCE = frozenset(
    (
        *("patch", "object", "dict", "given", "example", "settings", "seed", "freeze_time", "activate"),
        *("skip", "skipIf", "skipUnless", "staticmethod", "override_settings", "parametrize"),
    )
)
"""Decorators that run a test as it is, if at all."""
_MAY_FAIL = re.compile(f"{AGAIN.pattern}|raises|exitstack|suppress|ignor|swallow|expect|attempt|catch|fail", re.I)
"""Names in contexts whose bodies may be meant to fail."""
_BY_NAME = frozenset(("locals", "vars", "globals", "eval", "exec", "getfixturevalue"))
_NODE_NAMES = re.compile("snapshot|regression|request|datadir|vcr|cassette|record|golden|benchmark")


class Bindings:
    """The names of a module.

    names: their meanings, as far as its imports say. bends_equality: whether to compare here may be more than to ask
    `==` of two values, as often as one likes. parameters: the values that `parametrize` writes for a test's parameter,
    by the id of each node that reads it.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        self._bound: set[str] = set()
        inside = list(ast.walk(tree))
        for node in inside:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._note(node)
            elif not isinstance(node, ast.alias):
                self._bound.update(stored(node))
        self.names = Names(self._imported, self._bound)
        self._own = {one.name for one in inside if isinstance(one, (*FUNCTIONS, ast.ClassDef))}
        functions = [one for one in inside if isinstance(one, FUNCTIONS)]
        arguments = [one for function in functions if is_fixture(function) for one in ast.walk(function.args)]
        self._taken = {one.arg for one in arguments if isinstance(one, ast.arg)}
        registers = any(isinstance(one, ast.Attribute) and one.attr == "addTypeEqualityFunc" for one in inside)
        self.bends_equality = registers or "__eq__" in self._own
        self.parameters: dict[int, list[ast.expr]] = {}
        for function in functions:
            self._parameters(function)

    def defines(self, name: str) -> bool:
        """Return whether the module has a function or a class of this name."""
        return name in self._own

    def may_catch(self, contexts: Sequence[ast.expr]) -> bool:
        """Return whether a failure in the body of a `with` may be caught or expected, perhaps by the module's own."""
        inside = [one for context in contexts for one in ast.walk(context)]
        words = " ".join(getattr(one, "attr", getattr(one, "id", "")) for one in inside)
        return _MAY_FAIL.search(words) is not None or any(last_name(one) in self._own for one in contexts)

    def accept(self, compared: set[int]) -> tuple[set[int], list[ast.expr]]:
        """Return (ids of the nodes of parameters that are compared and used in no other way, the values written for
        them).

        compared: ids of the compared nodes."""
        others = {id(values) for load, values in self.parameters.items() if load not in compared}
        accepted = {load: values for load, values in self.parameters.items() if id(values) not in others}
        cells = {id(value): value for values in accepted.values() for value in values}
        return set(accepted), list(cells.values())

    def _note(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what names mean by an import."""
        relative = isinstance(node, ast.ImportFrom) and (node.level or not node.module)
        home = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            whole = home + (alias.name if alias.asname or home else name)
            if relative or self._imported.setdefault(name, whole) != whole:
                self._bound.add(name)

    def _parameters(self, function: Function) -> None:
        """Note the values that `parametrize` writes for a function's parameters, if its rows are literals."""
        inside = list(ast.walk(function))
        words = {getattr(one, "attr", getattr(one, "id", "")) for one in inside}
        arguments = [one.arg for one in inside if isinstance(one, ast.arg)]
        as_written = all(map(runs_as_written, function.decorator_list))
        if words & _BY_NAME or not as_written or any(_NODE_NAMES.search(name) for name in arguments):
            return
        for mark in function.decorator_list:
            if isinstance(mark, ast.Call) and last_name(mark) == "parametrize" and len(mark.args) == 2:
                for name, values in _columns(mark).items():
                    loads = [one for one in inside if isinstance(one, ast.Name) and one.id == name]
                    is_alone = arguments.count(name) == 1 and name not in self._taken
                    if is_alone and all(isinstance(one.ctx, ast.Load) for one in loads):
                        self.parameters.update((id(one), values) for one in loads)


def _columns(mark: ast.Call) -> dict[str, list[ast.expr]]:
    """Return the values of each parameter of a `parametrize`; none unless its rows are written out in place."""
    names, rows = _named(mark.args[0]), mark.args[1]
    ids = [one.value for one in mark.keywords if one.arg == "ids"]
    if len(ids) < len(mark.keywords) or not all(isinstance(one, ast.List | ast.Tuple) for one in [rows, *ids]):
        return {}
    found: dict[str, list[ast.expr]] = {name: [] for name in names}
    for row in getattr(rows, "elts", ()):
        if isinstance(row, ast.Starred):
            return {}
        cells = [row] if len(names) == 1 else getattr(row, "elts", [])
        if isinstance(row, ast.Call) and last_name(row) == "param":
            cells = row.args
        for name, cell in zip(names, cells, strict=False):
            found[name].append(cell)
    return found


def _named(node: ast.expr) -> list[str]:
    """Return the parameter names of a `parametrize`. node: its first argument."""
    text = constant(node)
    if text and isinstance(text[0], str):
        return [name.strip() for name in text[0].split(",") if name.strip()]
    return [str((constant(one) or ("",))[0]) for one in getattr(node, "elts", ())]


def runs_as_written(decorator: ast.expr) -> bool:
    """Return whether a decorator runs a test as it is, if at all. Marks do."""
    return ".mark." in f".{dotted(getattr(decorator, 'func', decorator))}" or last_name(decorator) in _ONCE


def is_fixture(function: Function) -> bool:
    """Return whether a function is a fixture of pytest."""
    return any("fixture" in last_name(one) for one in function.decorator_list)


def stored(node: ast.AST) -> Iterable[str]:
    """Return the names that a node itself binds, or declares as another scope's."""
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    name = getattr(node, "arg", None) if isinstance(node, ast.arg) else getattr(node, "name", None)
    return (name,) if isinstance(name, str) else ()
