"""The names of a module of tests: their meanings, the code that catches a failing assert, the rows of `parametrize`."""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from envs.judging.decoys.literals import Names, constant, dotted, last_name

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
AGAIN = re.compile("xfail|flaky|retry|retries|rerun|repeat|expectedfailure|eventually|tenacity|backoff|poll", re.I)
"""Names of decorators and calls that expect a test to fail, or try it again."""
ONCE = frozenset(
    (
        *("patch", "object", "dict", "given", "example", "settings", "seed", "freeze_time", "activate"),
        *("skip", "skipIf", "skipUnless", "staticmethod", "override_settings"),
    )
)
"""Decorators that run a test as it is, if at all. Marks do so too."""
_KNOWN_MARKS = frozenset(
    ("parametrize", "asyncio", "skip", "skipif", "usefixtures", "filterwarnings", "timeout", "slow", "anyio")
)
_SUPPRESSING = re.compile("suppress|ignor|swallow|expect|attempt|retry|eventually|catch|fail", re.I)
_RAISING = re.compile("raises", re.I)
_ANY_ERROR = ("AssertionError", "Exception", "BaseException", "failureException", "Failed", "exception")
_KNOWN_ERRORS = ("Error", "Warning", "Exception", "Exit", "Interrupt", "Iteration")
_BY_NAME = frozenset(("locals", "vars", "globals", "eval", "exec", "getfixturevalue"))
_NODE_NAMES = re.compile("snapshot|regression|request|datadir|vcr|cassette|record|golden|benchmark")
_DISPLAYS = (ast.List, ast.Tuple)


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
        fixtures = [one for one in inside if isinstance(one, FUNCTIONS) and is_fixture(one)]
        self._taken = {name for one in fixtures for name in _arguments(one)}
        registers = any(isinstance(one, ast.Attribute) and one.attr == "addTypeEqualityFunc" for one in inside)
        self.bends_equality = registers or "__eq__" in self._own
        self.parameters: dict[int, list[ast.expr]] = {}
        for function in outermost(tree):
            self._parameters(function)

    def defines(self, name: str) -> bool:
        """Return whether the module has a function or a class of this name."""
        return name in self._own

    def catches(self, node: ast.stmt) -> bool:
        """Return whether a failure in the body of a `try` or a `with` may be caught there."""
        return catches_asserts(node, self._own)

    def accept(self, compared: set[int]) -> tuple[set[int], list[ast.expr]]:
        """Return (ids of the nodes of parameters that are compared and used in no other way, the values written for
        them).

        compared: ids of the compared nodes."""
        by_rows: dict[int, list[int]] = collections.defaultdict(list)
        rows: dict[int, list[ast.expr]] = {}
        for load, values in self.parameters.items():
            by_rows[id(values)].append(load)
            rows[id(values)] = values
        good = [one for one, loads in by_rows.items() if compared.issuperset(loads)]
        return {load for one in good for load in by_rows[one]}, [value for one in good for value in rows[one]]

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
        arguments = _arguments(function)
        odd = [one for one in function.decorator_list if last_name(one) not in _KNOWN_MARKS | ONCE]
        if words & _BY_NAME or odd or any(_NODE_NAMES.search(name) for name in arguments):
            return
        for mark in function.decorator_list:
            if not isinstance(mark, ast.Call) or last_name(mark) != "parametrize" or len(mark.args) != 2:
                continue
            rows = _rows(mark.args[1])
            ids = [one.value for one in mark.keywords if one.arg == "ids"]
            if rows is None or len(ids) < len(mark.keywords) or not all(isinstance(one, _DISPLAYS) for one in ids):
                continue
            names = _named(mark)
            for i, name in enumerate(names):
                values = _column(rows, i if len(names) > 1 else None)
                alone = name in arguments and name not in self._taken and not _is_bound(name, inside)
                if alone:
                    loads = [one for one in inside if isinstance(one, ast.Name) and one.id == name]
                    self.parameters.update((id(one), values) for one in loads)


def _is_bound(name: str, inside: Iterable[ast.AST]) -> bool:
    stores = [one for one in inside if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)]
    taken = [one for one in inside if isinstance(one, ast.arg) and one.arg == name]
    return bool(stores) or len(taken) > 1


def _rows(node: ast.expr) -> list[ast.expr | list[ast.expr]] | None:
    """Return the rows of a table that is written out in place."""
    if not isinstance(node, ast.List | ast.Tuple) or any(isinstance(row, ast.Starred) for row in node.elts):
        return None
    return [list(row.args) if isinstance(row, ast.Call) and last_name(row) == "param" else row for row in node.elts]


def _column(rows: Sequence[ast.expr | list[ast.expr]], i: int | None) -> list[ast.expr]:
    """Return the rows' values at a place; whole rows if i is None."""
    found: list[ast.expr] = []
    for row in rows:
        if i is None:
            found += row[:1] if isinstance(row, list) else [row]
            continue
        cells = row if isinstance(row, list) else getattr(row, "elts", [])
        found += cells[i : i + 1]
    return found


def _named(mark: ast.Call) -> list[str]:
    """Return the parameter names of a call of `parametrize`."""
    named = constant(mark.args[0]) if mark.args else ()
    if named and isinstance(named[0], str):
        return [name.strip() for name in named[0].split(",") if name.strip()]
    return [str((constant(one) or ("",))[0]) for one in getattr(mark.args[0], "elts", ())] if mark.args else []


def outermost(tree: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Yield the functions of a module and of its classes."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from outermost(node)


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


def catches_asserts(node: ast.stmt, own: Collection[str] = ()) -> bool:
    """Return whether a failure in the body of a `try` or a `with` may be caught there. own: the names of the module's
    own functions and classes, which may catch it."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return any(_lets_fail(item.context_expr) or last_name(item.context_expr) in own for item in node.items)
    for handler in getattr(node, "handlers", ()):
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            name = (dotted(kind) or "?").split(".")[-1] if kind is not None else "?"
            if name in _ANY_ERROR or not name.endswith(_KNOWN_ERRORS):
                return True
    return False


def _lets_fail(context: ast.expr) -> bool:
    named = [one for one in ast.walk(context) if isinstance(one, ast.Name | ast.Attribute)]
    words = " ".join(one.attr if isinstance(one, ast.Attribute) else one.id for one in named)
    if _RAISING.search(words):
        kinds = context.args[:1] if isinstance(context, ast.Call) else []
        kinds = kinds[0].elts if kinds and isinstance(kinds[0], ast.Tuple) else kinds
        names = [(dotted(kind) or "?").split(".")[-1] for kind in kinds]
        return not names or any(name in _ANY_ERROR or name == "?" for name in names)
    return bool(_SUPPRESSING.search(words) or AGAIN.search(words))


def is_raising(node: ast.With | ast.AsyncWith) -> bool:
    """Return whether a `with` expects its body to end by an error, or may let it."""
    contexts = [item.context_expr for item in node.items]
    return any(_RAISING.search(ast.dump(one)) or last_name(one) == "ExitStack" or _lets_fail(one) for one in contexts)


def _arguments(function: Function) -> list[str]:
    args = function.args
    return [one.arg for one in args.posonlyargs + args.args + args.kwonlyargs]
