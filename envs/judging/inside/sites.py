"""Sites: where tests compare with what they expect. Here their literals are put among decoys.

`assert f(x) == 3` compares with 3 among decoys then, and so do unittest's methods (see `comparing`). An expected value
that reaches its assert by a name that does nothing else (a local, a constant of the module, a parameter of the test, of
a helper, of a loop, a fixture) stands among decoys where it is written. What runs the test can't know which value is
the expected one: only root's process does, which keeps the `Key`.

For code that is right a test does what it did: some value of the set is equal where the expected one was. So nothing
is changed where a failing assert is part of the test: in `try` with a handler for it, in `raises`, in what expects to
fail or is tried again.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast
import collections
import re

from comparing import Comparisons, checked, loads, reached, unsaid
from literals import dotted, last_name, walk
from names import AGAIN, FUNCTIONS, ONCE, Bindings, given_names, is_fixture, is_own, is_raising
from written import is_test, tests

_Place = collections.namedtuple("_Place", "owner function depth quiet must returns branch")
"""Where a walk is. owner: the names of the classes around it. function: that of the innermost function. depth: how many
functions are around it. quiet: whether a failing assert may be part of the test. must: where the sites are noted that
are come to for certain; None where it is not certain. returns: whether the function may return before its end. branch:
whether right code comes here at times."""
_RUN = re.compile("test|setup|teardown|asyncsetup|asyncteardown|runtest|pytest_", re.I)
"""Functions that a runner calls."""


def plant(path, tree, key, decoys, shared=(), renaming=True, spared=()):
    """Put a module's expected values among decoys, in place. What is put there has no line yet: see `handed`.

    shared, renaming: as `Bindings` takes them. spared: tests that stay as they are, since they must fail.
    """
    bindings = Bindings(tree, shared, renaming)
    survey = Comparisons(key, decoys, bindings)
    _Planter(path, key, bindings, spared, survey).visit(tree)
    accepted, values = bindings.accept(survey.compared)
    planter = _Planter(path, key, bindings, spared, Comparisons(key, decoys, bindings, accepted), values)
    planter.visit(tree)
    planter.join()
    for name, test in tests(tree):
        if id(test) in planter.must:  # also as another class has it of its base
            key.must.setdefault((path, name), planter.must[id(test)])


class _Planter(ast.NodeTransformer):
    """One walk through a module. comparisons: what is done at each site. values: what is written for accepted names.
    must: where the sites of tests are noted, by the ids of their nodes."""

    def __init__(self, path, key, bindings, spared, comparisons, values=()):
        self.path, self.key, self.bindings, self.spared = path, key, bindings, spared
        self.comparisons, self.planting = comparisons, comparisons.planting
        self.written = {id(value): value for value in values}
        self._at = _Place((), "", 0, False, None, False, False)
        self._helpers, self._calls, self._owner = {}, [], None
        self._given, self.must = set(), {}
        self._sites, self._certain = collections.defaultdict(set), collections.defaultdict(set)

    def join(self):
        """Ask of each test for the sites of the helpers, too, that it calls for certain, and that these call. Right
        code may not come to those of functions that nothing calls for certain, as of a stand-in's for another class."""
        run, fresh = set(), {""}
        while fresh:
            run |= fresh
            fresh = set().union(*(self._certain[one] for one in fresh)) - run
        for name in self._sites.keys() - run:
            self.key.branches |= self._sites[name]
        grows = True
        while grows:
            grows = False
            for sites, name in self._calls:
                more = self._helpers.get(name, set()) - sites
                sites |= more
                grows = grows or bool(more)

    def visit(self, node):
        if isinstance(node, ast.expr) and not self.written:
            return node  # no statements are in there
        return self.comparisons.token(node) if id(node) in self.written else ast.NodeTransformer.visit(self, node)

    # Where we are

    def visit_ClassDef(self, node):
        before, owner = self._at, self._owner
        again = any(AGAIN.search(ast.dump(one)) for one in node.decorator_list)
        self._at = before._replace(owner=before.owner + (node.name,), quiet=before.quiet or again)
        self._owner = node
        self.generic_visit(node)
        self._at, self._owner = before, owner
        return node

    def visit_FunctionDef(self, node):
        before, inside = self._at, self.bindings.inside(node)
        if not before.depth:
            self._given = given_names(node)
        again = any(map(AGAIN.search, inside.words)) or (node.decorator_list and before.depth)
        again = again or self._name(node) in self.spared
        quiet = before.quiet or again or node.name in self.bindings.quiet or _is_odd_helper(node)
        must = self._sites_of(node) if self.planting and not before.depth and not quiet else None
        self._at = before._replace(function=node.name, quiet=quiet, must=must, returns=inside.returns, branch=False)
        if is_fixture(node) or _RUN.match(node.name):
            self._certain[""].add(node.name)
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.args = self.visit(node.args)
        self._at = self._at._replace(depth=before.depth + 1)
        node.body = self._block(node.body)
        if self._at.must is not None and is_test(node):
            node.body.append(reached(node, self._site(node)))
        self._at = before
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _name(self, function):
        return "::".join(self._at.owner + (function.name,))

    def _sites_of(self, node):
        """Return where the sites are noted that a test comes to whenever it passes, or a helper whenever it returns;
        None where none is certain."""
        marked = [".mark." in "." + (dotted(getattr(one, "func", one)) or "") for one in node.decorator_list]
        once = all(mark or last_name(one) in ONCE for mark, one in zip(marked, node.decorator_list))
        plain = isinstance(node, ast.FunctionDef) or self._awaits(node)
        plain = plain and not (self.bindings.inside(node).yields and _yields(node))
        if not once or not plain or not self.bindings.is_last(node, self._owner):
            return None
        if not is_test(node):
            return None if self._at.owner or node.decorator_list else self._helpers.setdefault(node.name, set())
        self.must[id(node)] = self.key.must.setdefault((self.path, self._name(node)), set())
        return self.must[id(node)]

    def _awaits(self, node):
        """Return whether an async function is a test that is awaited where it is run at all."""
        bases = [(dotted(base) or "?").split(".")[-1] for base in getattr(self._owner, "bases", ())]
        return is_test(node) and all("Async" in base or base == "object" for base in bases)

    def _block(self, statements):
        found = []
        for statement in statements:
            if self.planting and not self._at.branch:
                self._certain[self._at.function] |= _called(statement)
            seen = self.visit(statement)
            found += seen if isinstance(seen, list) else [seen]
            if self._at.returns and _may_return(statement):
                self._at = self._at._replace(must=None, branch=True)
        return found

    def _inside(self, node, field, quiet=False, must=False, branch=False):
        """Visit a block of a statement. must: whether it is come to for certain. branch: whether only at times."""
        before = self._at
        self._at = before._replace(
            quiet=before.quiet or quiet, must=before.must if must else None, branch=before.branch or branch
        )
        setattr(node, field, self._block(getattr(node, field)))
        self._at = before

    def visit_If(self, node):
        node.test = self.visit(node.test)
        self._inside(node, "body", branch=True)
        self._inside(node, "orelse", branch=True)
        return node

    visit_While = visit_If

    def visit_For(self, node):
        written = isinstance(node.iter, (ast.List, ast.Tuple)) and node.iter.elts
        made = not self.bindings.writes(node.iter, self._given)  # other right code may leave nothing to go through
        leaves = any(isinstance(one, (ast.Break, ast.Continue, ast.Starred)) for one in walk(node))
        node.iter = self.visit(node.iter)
        self._inside(node, "body", must=bool(written) and not leaves, branch=made)
        self._inside(node, "orelse")
        return node

    visit_AsyncFor = visit_For

    def visit_With(self, node):
        catches, contexts = self.bindings.catches(node), [item.context_expr for item in node.items]
        given = [one for one in contexts if self.bindings.any_context or getattr(one, "id", None) in self._given]
        raising = is_raising(node) or not all(isinstance(one, ast.Call) for one in given)
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
        self._inside(node, "body", quiet=catches, must=not raising, branch=raising)
        return node

    visit_AsyncWith = visit_With

    def visit_Try(self, node):
        tried = bool(node.handlers)
        self._inside(node, "body", quiet=self.bindings.catches(node), must=not tried, branch=tried)
        for handler in node.handlers:
            self._inside(handler, "body", branch=True)
        self._inside(node, "orelse", branch=True)
        self._inside(node, "finalbody")
        return node

    visit_TryStar = visit_Try

    def visit_Match(self, node):
        for case in node.cases:
            self._inside(case, "body", branch=True)
        return node

    # What we come to

    def visit_Assert(self, node):
        self.generic_visit(node)
        if not self._at.depth or self._at.quiet:
            return node
        self.comparisons.compare(*loads(node.msg))
        site = self._site(node)
        node.msg = node.msg and unsaid(node.msg)
        node.test, whole = self.comparisons.condition(node.test, site)
        if whole:
            return checked(node)
        return [node, reached(node, site)] if self.planting else node

    def visit_Expr(self, node):
        self.generic_visit(node)
        call = node.value
        if self._at.must is not None and isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            self._calls.append((self._at.must, call.func.id))
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if not name.startswith("assert") or not self._at.depth or self._at.quiet:
            return node
        site = self._site(node)
        changed = self.comparisons.method(call, name, site)
        if not self.planting:
            return node
        node.value = changed or call
        return node if changed else [node, reached(node, site)]

    def _site(self, node):
        if not self.planting:
            return 0
        site = self.key.site(self.path, node)
        if self._at.must is not None:
            self._at.must.add(site)
        if self._at.branch:
            self.key.branches.add(site)
        self._sites[self._at.function].add(site)
        return site


def _is_odd_helper(node):
    """Return whether a function may be run in other ways than by its calls."""
    names = [last_name(one) for one in node.decorator_list]
    known = ("staticmethod", "classmethod", "contextmanager", "setter", "asynccontextmanager")
    return not node.name.startswith("test") and not is_fixture(node) and any(name not in known for name in names)


def _own(node):
    """Yield what runs where a statement does: not what is in functions that it makes."""
    yield node
    if not isinstance(node, FUNCTIONS + (ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            for one in _own(child):
                yield one


def _yields(function):
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for child in function.body for one in _own(child))


def _called(statement):
    """Return the names of the functions of the module that a statement calls, without the blocks in it."""
    parts = [one for one in ast.iter_child_nodes(statement) if isinstance(one, (ast.expr, ast.withitem))]
    called = [one.func for part in parts for one in walk(part) if isinstance(one, ast.Call)]
    return {one.id if isinstance(one, ast.Name) else one.attr for one in called if is_own(one)}


def _may_return(statement):
    return any(isinstance(one, ast.Return) for one in _own(statement))
