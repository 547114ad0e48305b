"""Sites: the places at which tests compare with expected values. Here their literals are put among decoys.

`assert f(x) == 3` compares with 3 among decoys then, and so do unittest's methods (see `comparing`). So do the values
of `parametrize` that a test compares and uses in no other way. The runner of the tests can't know which value is the
expected one: this process alone keeps the `Key`.

For right code a test does the same as before: some value of the set is equal, as the expected one was. So nothing
is changed if a failing assert may be part of the test: in `try` with handlers, in `raises` and its like, in tests that
expect to fail or are tried again. Helpers of tests, and functions in a test, may be called there: they stay.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from envs.judging.decoys.comparing import PROBE, Comparisons
from envs.judging.decoys.key import Key
from envs.judging.decoys.literals import last_name
from envs.judging.decoys.names import AGAIN, FUNCTIONS, Bindings, Function, runs_as_written
from envs.judging.decoys.sets import Decoys
from envs.judging.decoys.source_tests import is_test, tests
from envs.judging.decoys.text import Text


def plant(path: str, text: Text, key: Key, decoys: Decoys, spared: Collection[str]) -> None:
    """Put a module's expected values among decoys, as edits of its text.

    spared: tests that stay as they are, since they must fail.
    """
    bindings = Bindings(text.tree)
    found = _Sites(path, text, key, bindings, spared)
    found.visit(text.tree)
    comparisons = Comparisons(text, key, decoys, bindings)
    compared = [(node, site, [*comparisons.of(node)]) for node, site in found.asserts]
    parameters = {id(one.expected) for _, _, some in compared for one in some if one.choice is None}
    accepted, values = bindings.accept(parameters)
    for value in values:
        comparisons.cell(value)
    for node, site, some in compared:
        left = [one for one in some if one.choice is not None or id(one.expected) in accepted]
        comparisons.plant(node, site, left)
    if found.asserts or found.must:
        text.begin(f"{PROBE}.load()")
    for name, test in dict(tests(text.tree)).items():  # of two with one name the last is run
        if id(test) in found.must:  # also as another class has it of its base
            key.must[path, name] = found.must[id(test)]


class _Sites(ast.NodeVisitor):
    """A walk through a module.

    asserts: the statements that compare, with their sites. must: the sites that each passing run of a test reaches, by
    the id of its node; no entry if it may be run in another way.

    _quiet, in a test: whether a failing assert may be part of it here. _certain: whether all right code comes here.
    """

    def __init__(self, path: str, text: Text, key: Key, bindings: Bindings, spared: Collection[str]) -> None:
        self.path, self.text, self.key, self.bindings, self.spared = path, text, key, bindings, spared
        self.asserts: list[tuple[ast.Assert | ast.Expr, int]] = []
        self.must: dict[int, set[int]] = {}
        self._test: Function | None = None
        self._returns = self._quiet = self._certain = False
        self._owners: list[ast.Module | ast.ClassDef] = [text.tree]

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.expr):  # no statements are in there
            ast.NodeVisitor.visit(self, node)

    # Where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if self._test is None and not any(AGAIN.search(ast.dump(one)) for one in node.decorator_list):
            self._owners.append(node)
            self.generic_visit(node)
            self._owners.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        if self._test is not None or not is_test(node):
            return
        inside = list(ast.walk(node))
        words = {getattr(one, "attr", getattr(one, "id", "")) for one in inside} | {node.name}
        names = [getattr(one, "name", "") for one in self._owners[1:]]
        if any(map(AGAIN.search, words)) or "::".join((*names, node.name)) in self.spared:
            return
        if self._is_run_as_written(node):
            self.must[id(node)] = set()
        self._returns = any(isinstance(one, ast.Return) for one in inside)
        self._test, self._quiet, self._certain = node, False, True
        self._block(node.body)
        self._test = None

    visit_AsyncFunctionDef = visit_FunctionDef

    def _is_run_as_written(self, node: Function) -> bool:
        """Return whether each run of a test runs its function, once."""
        bases = list(map(last_name, getattr(self._owners[-1], "bases", ())))
        awaited = isinstance(node, ast.FunctionDef) or all("Async" in base or base == "object" for base in bases)
        return awaited and all(map(runs_as_written, node.decorator_list))

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)
            if self._returns and any(isinstance(one, ast.Return) for one in _own(statement)):
                self._certain = False

    def _inside(self, block: Sequence[ast.stmt], *, quiet: bool = False, certain: bool = False) -> None:
        """Visit a block of a statement. certain: whether all right code that comes to the statement comes there."""
        before = self._quiet, self._certain
        self._quiet, self._certain = self._quiet or quiet, self._certain and certain
        self._block(block)
        self._quiet, self._certain = before

    def visit_If(self, node: ast.If | ast.While | ast.For | ast.AsyncFor) -> None:
        self._inside(node.body)
        self._inside(node.orelse)

    visit_While = visit_For = visit_AsyncFor = visit_If

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        contexts = [item.context_expr for item in node.items]
        called = all(isinstance(one, ast.Call) for one in contexts)
        self._inside(node.body, quiet=self.bindings.may_catch(contexts), certain=called)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        self._inside(node.body, quiet=bool(node.handlers), certain=True)
        for block in (*(handler.body for handler in node.handlers), node.orelse):
            self._inside(block)
        self._inside(node.finalbody, certain=True)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # they have the same fields

    def visit_Match(self, node: ast.Match) -> None:
        for case in node.cases:
            self._inside(case.body)

    # What we come to

    def visit_Assert(self, node: ast.Assert | ast.Expr) -> None:
        if self._test is None or self._quiet:
            return
        site = self.key.site(self.path, node)
        self.asserts.append((node, site))
        if self._certain:
            self.key.certain.add(site)
            self.must.get(id(self._test), set()).add(site)

    def visit_Expr(self, node: ast.Expr) -> None:
        if getattr(getattr(node.value, "func", None), "attr", "").startswith("assert"):
            self.visit_Assert(node)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with a statement, without the bodies of functions that it makes."""
    found = [node]
    while found:
        one = found.pop()
        yield one
        if not isinstance(one, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            found.extend(ast.iter_child_nodes(one))
