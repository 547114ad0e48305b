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
import collections
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from envs.judging.decoys.comparing import PROBE, Comparisons
from envs.judging.decoys.key import FIRST, Key
from envs.judging.decoys.literals import dotted, last_name, walk
from envs.judging.decoys.names import (
    AGAIN,
    FUNCTIONS,
    MAKING,
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
    may be part of the test. must: the set for the sites that are reached for certain; None if it is not certain.
    returns: whether the function may return before its end. branch: whether right code comes here at times.
    """

    owner: tuple[str, ...] = ()
    depth: int = 0
    quiet: bool = False
    must: set[int] | None = None
    returns: bool = False
    branch: bool = False


def plant(
    path: str,
    text: Text,
    bindings: Bindings,
    key: Key,
    decoys: Decoys,
    spared: Collection[str],
    relied_on: Iterable[str],
) -> None:
    """Put a module's expected values among decoys, as edits of its text.

    spared: tests that stay as they are, since they must fail. relied_on: names that asserts of all modules rely on.
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
        text.begin(f"{PROBE}.load({','.join(map(repr, sorted(relied_on)))})")
    for name, test in tests(text.tree):
        if id(test) in planter.must:  # also as another class has it of its base
            key.must.setdefault((path, name), planter.reached(test))


class _Planter(ast.NodeVisitor):
    """One walk through a module. comparisons: the action at each site. must: sets for the sites of tests and of their
    helpers, by the ids of the functions' nodes. found: whether there is a site."""

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
        self._helpers: dict[tuple[tuple[str, ...], str], int] = {}
        self._calls: dict[int, list[tuple[tuple[str, ...], str]]] = collections.defaultdict(list)
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
        must = self._sites_of(node) if self.planting and not before.depth and not quiet else None
        returns = any(isinstance(one, ast.Return) for one in walk(node))
        branch = not is_test(node)
        self._at = replace(before, quiet=quiet, must=must, returns=returns, branch=branch, depth=before.depth + 1)
        self._block(node.body)
        if self._at.must is not None and is_test(node):
            self._end(node)
        self._at = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def _sites_of(self, node: Function) -> set[int] | None:
        """Return the set for the sites that a test, or a helper, reaches whenever the test passes; None if none is
        certain."""
        marked = [".mark." in "." + (dotted(getattr(one, "func", one)) or "") for one in node.decorator_list]
        once = all(mark or last_name(one) in ONCE for mark, one in zip(marked, node.decorator_list, strict=True))
        plain = isinstance(node, ast.FunctionDef) or (is_test(node) and self._is_awaited())
        named = [one for one in self._owner.body if getattr(one, "name", None) == node.name]
        alone = len(named) == 1 if is_test(node) else self.bindings.binds_once(node.name)
        if not once or not plain or _yields(node) or not alone:
            return None
        if not is_test(node):
            self._helpers[self._at.owner, node.name] = id(node)
        self.must[id(node)] = set()
        return self.must[id(node)]

    def _note_call(self, node: ast.stmt) -> None:
        """Note a helper that is called whenever a statement is reached."""
        call = node.test if isinstance(node, ast.Assert) else getattr(node, "value", None)
        if self._at.must is not None and isinstance(call, ast.Call):
            name = dotted(call.func) or ""
            home = self._at.owner if name.startswith("self.") else ()
            self._calls[id(self._at.must)].append((home, name.removeprefix("self.")))

    def reached(self, test: Function) -> set[int]:
        """Return the sites that each passing run of a test reaches, also in its helpers."""
        found: set[int] = set()
        seen: set[int] = set()
        todo = [id(test)]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                found |= self.must[one]
                todo += [self._helpers[call] for call in self._calls[id(self.must[one])] if call in self._helpers]
        return found

    def _is_awaited(self) -> bool:
        """Return whether async tests here are awaited if they are run at all."""
        bases = [(dotted(base) or "?").split(".")[-1] for base in getattr(self._owner, "bases", ())]
        return all("Async" in base or base == "object" for base in bases)

    def _end(self, node: Function) -> None:
        """Have a test report its end, if there is room for the call."""
        last = node.body[-1]
        if last.lineno == node.lineno:  # all on one line
            return
        if isinstance(last, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.Pass):
            self.text.append(last, self._reached(node))
        elif not isinstance(last, ast.Assert | ast.Return | ast.Raise):
            site = self._site(node)
            if not self.text.fill(last, f"{PROBE}.reached({FIRST + site})") and self._at.must is not None:
                self._at.must.discard(site)

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._note_call(statement)
            self.visit(statement)
            if self._at.returns and any(isinstance(one, ast.Return) for one in _own(statement)):
                self._at = replace(self._at, must=None, branch=True)

    def _inside(
        self, block: Sequence[ast.stmt], *, quiet: bool = False, must: bool = False, branch: bool = False
    ) -> None:
        """Visit a block of a statement. must: whether it is come to for certain. branch: whether only at times."""
        before = self._at
        self._at = replace(
            before,
            quiet=before.quiet or quiet,
            must=before.must if must else None,
            branch=before.branch or branch,
        )
        self._block(block)
        self._at = before

    def visit_If(self, node: ast.If | ast.While) -> None:
        self._inside(node.body, branch=True)
        self._inside(node.orelse, branch=True)

    visit_While = visit_If

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        tables = self.bindings.tables
        filled = is_filled(node.iter) or dotted(node.iter) in tables
        leaves = any(isinstance(one, ast.Break | ast.Continue | ast.Starred) for one in walk(node))
        self._inside(node.body, must=filled and not leaves, branch=not _is_written(node.iter, tables | MAKING))
        self._inside(node.orelse)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        named = not all(isinstance(item.context_expr, ast.Call) for item in node.items)
        raising = is_raising(node) or named
        self._inside(node.body, quiet=self.bindings.catches(node), must=not raising, branch=raising)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        tried = bool(node.handlers)
        self._inside(node.body, quiet=self.bindings.catches(node), must=not tried, branch=tried)
        for handler in node.handlers:
            self._inside(handler.body, branch=True)
        self._inside(node.orelse, branch=True)
        self._inside(node.finalbody)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # they have the same fields

    def visit_Match(self, node: ast.Match) -> None:
        for case in node.cases:
            self._inside(case.body, branch=True)

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
        if self._at.must is not None:
            self._at.must.add(site)
        if self._at.branch:
            self.key.branches.add(site)
        return site


def _is_odd_helper(node: Function) -> bool:
    """Return whether a function may be run in other ways than by its calls."""
    known = ("staticmethod", "classmethod", "contextmanager", "setter", "asynccontextmanager")
    odd = any(last_name(one) not in known for one in node.decorator_list)
    return odd and not node.name.startswith("test") and not is_fixture(node)


def _is_written(node: ast.expr, known: Collection[str]) -> bool:
    """Return whether a loop's values are written in place, or in a table of the module: other right code may leave
    nothing elsewhere. known: the names that may stand in such an expression."""
    named = [one for one in walk(node) if isinstance(one, ast.Name | ast.Attribute)]
    return all(getattr(one, "attr", getattr(one, "id", "")) in known for one in named)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with a statement, without the bodies of functions that it makes."""
    found = collections.deque([node])
    while found:
        one = found.popleft()
        yield one
        if not isinstance(one, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            found.extend(ast.iter_child_nodes(one))


def _yields(function: Function) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for child in function.body for one in _own(child))
