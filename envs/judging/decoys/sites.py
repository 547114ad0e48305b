"""Sites: the places at which tests compare with expected values. Here their literals are put among decoys.

`assert f(x) == 3` compares with 3 among decoys then, and so do unittest's methods (see `comparing`). So do the values
of `parametrize` that a test compares and uses in no other way. The runner of the tests can't know which value is the
expected one: this process alone keeps the `Key`.

For right code a test does the same as before: some value of the set is equal, as the expected one was. So nothing
is changed if a failing assert is part of the test: in `try` with a handler for it, in `raises`, in tests that expect
to fail or are tried again.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from envs.judging.decoys.comparing import PROBE, Comparisons
from envs.judging.decoys.key import FIRST, Key
from envs.judging.decoys.literals import dotted, last_name, walk
from envs.judging.decoys.names import (
    AGAIN,
    FUNCTIONS,
    ONCE,
    Bindings,
    Function,
    is_filled,
    is_fixture,
    is_raising,
)
from envs.judging.decoys.sets import Decoys
from envs.judging.decoys.source_tests import is_test, tests
from envs.judging.decoys.text import Text


@dataclass(frozen=True, slots=True)
class _Place:
    """The present place in a walk through a module.

    owner: the names of the classes around it. depth: how many functions are around it. quiet: whether a failing assert
    may be part of the test. certain: whether all right code comes here. must: the set for the sites that each
    passing run of a test reaches; None if it may be run in another way. returns: whether the function may return before
    its end.
    """

    owner: tuple[str, ...] = ()
    depth: int = 0
    quiet: bool = False
    certain: bool = False
    must: set[int] | None = None
    returns: bool = False


def plant(
    path: str,
    text: Text,
    bindings: Bindings,
    key: Key,
    decoys: Decoys,
    spared: Collection[str],
) -> None:
    """Put a module's expected values among decoys, as edits of its text.

    spared: tests that stay as they are, since they must fail.
    """
    survey = Comparisons(text, key, decoys, bindings)
    _Planter(path, text, key, bindings, spared, survey).visit(text.tree)
    accepted, values = bindings.accept(survey.compared)
    comparisons = Comparisons(text, key, decoys, bindings, accepted)
    for value in values:
        comparisons.cell(value)
    planter = _Planter(path, text, key, bindings, spared, comparisons)
    planter.visit(text.tree)
    if planter.found:
        text.begin(f"{PROBE}.load()")
    for name, test in tests(text.tree):
        if id(test) in planter.must:  # also as another class has it of its base
            key.must.setdefault((path, name), planter.must[id(test)])


class _Planter(ast.NodeVisitor):
    """One walk through a module. comparisons: the action at each site. must: the sets of tests, by the
    ids of their nodes. found: whether there is a site."""

    def __init__(
        self,
        path: str,
        text: Text,
        key: Key,
        bindings: Bindings,
        spared: Collection[str],
        comparisons: Comparisons,
    ) -> None:
        self.path, self.text, self.key, self.bindings, self.spared = path, text, key, bindings, spared
        self.comparisons, self.planting = comparisons, comparisons.planting
        self.must: dict[int, set[int]] = {}
        self.found = False
        self._at = _Place()
        self._owner: ast.Module | ast.ClassDef = text.tree

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.expr):  # no statements are in there
            ast.NodeVisitor.visit(self, node)

    # Where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, owner = self._at, self._owner
        again = any(AGAIN.search(ast.dump(one)) for one in node.decorator_list)
        self._at = replace(before, owner=(*before.owner, node.name), quiet=before.quiet or again)
        self._owner = node
        self.generic_visit(node)
        self._at, self._owner = before, owner

    def visit_FunctionDef(self, node: Function) -> None:
        before = self._at
        words = {getattr(one, "attr", getattr(one, "id", "")) for one in walk(node)} | {node.name}
        again = any(map(AGAIN.search, words)) or bool(node.decorator_list and before.depth)
        again = again or "::".join((*before.owner, node.name)) in self.spared
        quiet = before.quiet or again or node.name in self.bindings.quiet or _is_odd_helper(node)
        returns = any(isinstance(one, ast.Return) for one in walk(node))
        certain = is_test(node) and not before.depth
        must = set[int]() if self.planting and certain and not quiet and self._is_run_as_written(node) else None
        self._at = replace(before, quiet=quiet, certain=certain, must=must, returns=returns, depth=before.depth + 1)
        self._block(node.body)
        if must is not None:
            self.must[id(node)] = must
            self._end(node, must)
        self._at = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def _is_run_as_written(self, node: Function) -> bool:
        """Return whether each run of a test runs its function, once."""
        marked = [".mark." in "." + (dotted(getattr(one, "func", one)) or "") for one in node.decorator_list]
        once = all(mark or last_name(one) in ONCE for mark, one in zip(marked, node.decorator_list, strict=True))
        plain = isinstance(node, ast.FunctionDef) or self._is_awaited()
        named = [one for one in self._owner.body if getattr(one, "name", None) == node.name]
        return once and plain and not _yields(node) and len(named) == 1

    def _is_awaited(self) -> bool:
        """Return whether async tests here are awaited if they are run at all."""
        bases = [(dotted(base) or "?").split(".")[-1] for base in getattr(self._owner, "bases", ())]
        return all("Async" in base or base == "object" for base in bases)

    def _end(self, node: Function, must: set[int]) -> None:
        """Have a test report its end, if there is room for the call."""
        last = node.body[-1]
        if last.lineno == node.lineno or not self._at.certain:  # all on one line, or not always there
            return
        if isinstance(last, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.Pass):
            self.text.append(last, self._reached(node))
        elif not isinstance(last, ast.Assert | ast.Return | ast.Raise):
            site = self._site(node)
            if not self.text.fill(last, f"{PROBE}.reached({FIRST + site})"):
                must.discard(site)

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)
            if self._at.returns and any(isinstance(one, ast.Return) for one in _own(statement)):
                self._at = replace(self._at, certain=False)

    def _inside(self, block: Sequence[ast.stmt], *, quiet: bool = False, certain: bool = False) -> None:
        """Visit a block of a statement. certain: whether all right code that comes to the statement comes there."""
        before = self._at
        self._at = replace(before, quiet=before.quiet or quiet, certain=before.certain and certain)
        self._block(block)
        self._at = before

    def visit_If(self, node: ast.If | ast.While) -> None:
        self._inside(node.body)
        self._inside(node.orelse)

    visit_While = visit_If

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        leaves = any(isinstance(one, ast.Break | ast.Continue) for one in walk(node))
        self._inside(node.body, certain=is_filled(node.iter, self.bindings.tables) and not leaves)
        self._inside(node.orelse)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        named = not all(isinstance(item.context_expr, ast.Call) for item in node.items)
        raising = is_raising(node) or named
        self._inside(node.body, quiet=self.bindings.catches(node), certain=not raising)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        self._inside(node.body, quiet=self.bindings.catches(node), certain=not node.handlers)
        for block in (*(handler.body for handler in node.handlers), node.orelse):
            self._inside(block)
        self._inside(node.finalbody, certain=True)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # they have the same fields

    def visit_Match(self, node: ast.Match) -> None:
        for case in node.cases:
            self._inside(case.body)

    # What we come to

    def visit_Assert(self, node: ast.Assert) -> None:
        if not self._at.depth or self._at.quiet:
            return
        site = self._site(node)
        comparison = self.comparisons.comparison(node.test, site)
        if comparison is not None:
            said = "" if node.msg is None else f",lambda:{self.comparisons.message(node.msg, comparison.expected)}"
            self.text.replace(node, self.comparisons.call("check", site, comparison, said))
            return
        self.comparisons.condition(node.test, site)
        if self.planting:
            self.text.append(node, f"{PROBE}.reached({FIRST + site})")

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if not name.startswith("assert") or not isinstance(call, ast.Call) or not self._at.depth or self._at.quiet:
            return
        site = self._site(node)
        changed = self.comparisons.method(call, name, site)
        if changed is not None:
            self.text.replace(node, changed)
        elif self.planting:
            self.text.append(node, f"{PROBE}.reached({FIRST + site})")

    def _reached(self, node: ast.stmt) -> str:
        return f"{PROBE}.reached({FIRST + self._site(node)})"

    def _site(self, node: ast.stmt) -> int:
        if not self.planting:
            return 0
        self.found = True
        site = self.key.site(self.path, node)
        if self._at.certain:
            self.key.certain.add(site)
            if self._at.must is not None:
                self._at.must.add(site)
        return site


def _is_odd_helper(node: Function) -> bool:
    """Return whether a function may be run in other ways than by its calls."""
    known = ("staticmethod", "classmethod", "contextmanager", "setter", "asynccontextmanager")
    odd = any(last_name(one) not in known for one in node.decorator_list)
    return odd and not node.name.startswith("test") and not is_fixture(node)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with a statement, without the bodies of functions that it makes."""
    found = [node]
    while found:
        one = found.pop()
        yield one
        if not isinstance(one, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            found.extend(ast.iter_child_nodes(one))


def _yields(function: Function) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for child in function.body for one in _own(child))
