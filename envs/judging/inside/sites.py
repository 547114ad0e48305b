"""Sites: where tests compare with what they expect. Here their literals are put among decoys.

`assert f(x) == 3` becomes `assert @probe.eq(site, number, f(x), (7, 3, 5, 1))`, and so do the comparisons of
unittest's methods. An expected value that reaches its assert by a name that does nothing else (a local, a constant of
the module, a parameter of the test, of a helper, of a loop, a fixture) stands among decoys where it is written. What
runs the test can't know which value is the expected one: only root's process does, which keeps the `Key`.

For code that is right a test does what it did: some value of the set is equal where the expected one was. So nothing
is changed where a failing assert is part of the test: in `try` with a handler for it, in `raises`, in what expects to
fail or is tried again.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast

from literals import constant, dotted, literal, walk
from names import AGAIN, FUNCTIONS, Bindings, catches_asserts, is_fixture, is_raising
from written import is_test

PROBE = "@probe"
_EQUAL = ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual")
_EQUAL += ("assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual")
_ALMOST = ("assertAlmostEqual", "assertAlmostEquals")
_ONCE = ("patch", "object", "dict", "given", "example", "settings", "seed", "freeze_time", "skip", "skipIf", "activate")
_ONCE += ("skipUnless", "staticmethod", "override_settings")
"""Decorators that run a test as it is, if at all. Marks do so too."""


def plant(path, tree, key, decoys, shared=(), renaming=True, spared=()):
    """Put a module's expected values among decoys, in place.

    shared, renaming: as `Bindings` takes them. spared: tests that stay as they are, since they must fail.
    """
    bindings = Bindings(tree, shared, renaming)
    survey = _Planter(path, key, decoys, bindings, spared)
    survey.visit(tree)
    planter = _Planter(path, key, decoys, bindings, spared, bindings.accept(survey.compared))
    planter.visit(tree)
    planter.join()
    ast.fix_missing_locations(tree)


class _Planter(ast.NodeTransformer):
    """One walk through a module.

    accepted: ids of the nodes of names that are compared alone, and the values that are written for them; None on the
    walk that asks which names are compared, and changes nothing."""

    def __init__(self, path, key, decoys, bindings, spared, accepted=None):
        self.path, self.key, self.decoys, self.bindings, self.spared = path, key, decoys, bindings, spared
        self.planting = accepted is not None
        self.accepted, values = accepted or (set(), ())
        self.written = {id(value): value for value in values}
        self.compared = set()
        self._owner, self._depth, self._quiet, self._must, self._returns = [], 0, False, None, False
        self._branch = False
        self._helpers, self._calls = {}, []

    def join(self):
        """Ask of each test for the sites of the helpers, too, that it calls for certain, and that these call."""
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
        return self._token(node) if id(node) in self.written else ast.NodeTransformer.visit(self, node)

    # Where we are

    def visit_ClassDef(self, node):
        before = self._quiet
        self._owner.append(node.name)
        self._quiet = before or any(AGAIN.search(ast.dump(one)) for one in node.decorator_list)
        self.generic_visit(node)
        self._quiet = before
        self._owner.pop()
        return node

    def visit_FunctionDef(self, node):
        before = self._quiet, self._must, self._returns, self._branch
        self._branch = False
        inside = self.bindings.inside(node)
        self._returns = inside.returns
        again = any(map(AGAIN.search, inside.words)) or (node.decorator_list and self._depth)
        again = again or "::".join(self._owner + [node.name]) in self.spared
        self._quiet = self._quiet or again or node.name in self.bindings.quiet or self._is_odd_helper(node)
        self._must = self._sites_of(node) if self.planting and not self._depth else None
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.args = self.visit(node.args)
        self._depth += 1
        node.body = self._block(node.body)
        self._depth -= 1
        if self._must is not None and is_test(node):
            node.body.append(self._reached(node, self._site(node)))
        self._quiet, self._must, self._returns, self._branch = before
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _is_odd_helper(self, node):
        """Return whether a function may be run in other ways than by its calls."""
        names = [(dotted(getattr(one, "func", one)) or "?").split(".")[-1] for one in node.decorator_list]
        known = ("staticmethod", "classmethod", "contextmanager", "setter", "asynccontextmanager")
        return not node.name.startswith("test") and not is_fixture(node) and any(name not in known for name in names)

    def _sites_of(self, node):
        """Return where the sites are noted that a test comes to whenever it passes, or a helper whenever it returns;
        None where none is certain."""
        names = ["." + (dotted(getattr(one, "func", one)) or "?") for one in node.decorator_list]
        once = all(".mark." in name or name.split(".")[-1] in _ONCE for name in names)
        plain = isinstance(node, ast.FunctionDef) and not self._quiet and not _yields(node)
        if not once or not plain or not self.bindings.is_last(node):
            return None
        if not is_test(node):
            return None if self._owner or node.decorator_list else self._helpers.setdefault(node.name, set())
        return self.key.must.setdefault((self.path, "::".join(self._owner + [node.name])), set())

    def _block(self, statements):
        found = []
        for statement in statements:
            seen = self.visit(statement)
            found += seen if isinstance(seen, list) else [seen]
            if self._returns and _may_return(statement):
                self._must, self._branch = None, True
        return found

    def _inside(self, node, field, quiet=False, must=False, branch=False):
        """Visit a block of a statement. must: whether it is come to for certain. branch: whether only at times."""
        before = self._quiet, self._must, self._branch
        self._quiet, self._must = self._quiet or quiet, self._must if must else None
        self._branch = self._branch or branch
        setattr(node, field, self._block(getattr(node, field)))
        self._quiet, self._must, self._branch = before

    def visit_If(self, node):
        node.test = self.visit(node.test)
        self._inside(node, "body", branch=True)
        self._inside(node, "orelse", branch=True)
        return node

    visit_While = visit_If

    def visit_For(self, node):
        written = isinstance(node.iter, (ast.List, ast.Tuple)) and node.iter.elts
        leaves = any(isinstance(one, (ast.Break, ast.Continue, ast.Starred)) for one in walk(node))
        node.iter = self.visit(node.iter)
        self._inside(node, "body", must=bool(written) and not leaves)
        self._inside(node, "orelse")
        return node

    visit_AsyncFor = visit_For

    def visit_With(self, node):
        catches, raising = catches_asserts(node), is_raising(node)
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
        self._inside(node, "body", quiet=catches, must=not raising, branch=raising)
        return node

    visit_AsyncWith = visit_With

    def visit_Try(self, node):
        tried = bool(node.handlers)
        self._inside(node, "body", quiet=catches_asserts(node), must=not tried, branch=tried)
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

    # Comparisons

    def visit_Assert(self, node):
        self.generic_visit(node)
        if not self._depth or self._quiet:
            return node
        self._compare(*_loads(node.msg))
        site = self._site(node)
        if node.msg is not None and constant(node.msg):
            node.msg = None  # it may say what is expected
        node.test, whole = self._condition(node.test, site)
        return node if whole or not self.planting else [node, self._reached(node, site)]

    def visit_Expr(self, node):
        self.generic_visit(node)
        call = node.value
        if self._must is not None and isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            self._calls.append((self._must, call.func.id))
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if not name.startswith("assert") or not self._depth or self._quiet:
            return node
        site = self._site(node)
        changed = self._method(call, name, site)
        if not self.planting:
            return node
        node.value = changed or call
        return node if changed else [node, self._reached(node, site)]

    def _condition(self, test, site):
        """Return what an assert asks, with decoys where it compares, and whether that says all of it."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test.values = [self._condition(one, site)[0] for one in test.values]
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return test, False
        left, right, kind = test.left, test.comparators[0], type(test.ops[0])
        choice, is_left, how = None, False, "equal"
        if kind is ast.Eq:
            choice, is_left = self._expected(left, right)
        elif kind is ast.Is and _is_singleton(right) and not constant(left):
            choice, how = self.decoys.singletons(constant(right)[0]), "same"
        elif kind is ast.In and constant(left) and not constant(right):
            choice, is_left, how = self.decoys.choose(left, self.bindings.names, within=True), True, "inside"
        if choice is None or not self.planting:
            return test, False
        self.key.asked.setdefault(site, []).extend(self._numbers(choice))
        value, expected = (right, left) if is_left else (left, right)
        args = [value, self._set(choice, expected), literal(is_left)]
        return self._asked(how, test, [literal(site)] + args), True

    def _method(self, call, name, site):
        """Return the call of a method of unittest among decoys; None where it stays."""
        args = call.args
        if len(args) < (1 if name == "assertTrue" else 2) or any(isinstance(one, ast.Starred) for one in args):
            return None
        if self.bindings.defines(name):
            return None
        for part in args[2:] + [keyword.value for keyword in call.keywords]:
            self._compare(*_loads(part))
        choice, place = None, 1
        if name == "assertTrue":
            args[0] = self._condition(args[0], site)[0]
        elif name == "assertIs" and _is_singleton(args[1]) and not constant(args[0]):
            choice = self.decoys.singletons(constant(args[1])[0])
        elif name == "assertIn" and constant(args[0]) and not constant(args[1]):
            choice, place = self.decoys.choose(args[0], self.bindings.names, within=True), 0
        elif name in _EQUAL or (name in _ALMOST and _tolerance(call) is not None):
            choice, is_left = self._expected(args[0], args[1], _tolerance(call) if name in _ALMOST else 0.0)
            place = 0 if is_left else 1
        if choice is None or not self.planting:
            return None
        self.key.asked.setdefault(site, []).extend(self._numbers(choice))
        expected, args[place] = args[place], literal(None)
        known = [literal(site), call.func, literal(name in _EQUAL), literal(place), self._set(choice, expected)]
        asked = self._asked("method", call, known + args)
        asked.keywords = call.keywords
        return asked

    def _expected(self, left, right, tolerance=0.0):
        """Return which side is the expected one: (its Choice or name, whether it is the left); None where none is."""
        for node, other, is_left in ((right, left, False), (left, right, True)):
            if not isinstance(node, ast.Name) and not constant(other):
                choice = self.decoys.choose(node, self.bindings.names, tolerance)
                if choice is not None:
                    return choice, is_left
        for node, is_left in ((right, False), (left, True)):
            if isinstance(node, ast.Name) and self.bindings.is_literal(node) and not tolerance:
                self._compare(node)
                if not self.planting or id(node) in self.accepted:
                    return node, is_left
        return None, False

    def _compare(self, *names):
        self.compared.update(map(id, names))

    # Syntax

    def _site(self, node):
        if not self.planting:
            return 0
        site = self.key.site(self.path, node)
        if self._must is not None:
            self._must.add(site)
        if self._branch:
            self.key.branches.add(site)
        return site

    def _set(self, choice, node):
        """Return what is expected: the name for which it is written, or `@probe.want(number, id, (7, 3, 5, 1))`."""
        if isinstance(choice, ast.AST):
            return choice
        number, value = self.key.answer(choice), constant(choice.nodes[choice.truth])
        name = self.key.token(value[0]) if value else ""
        asked = self._asked("want", node, [literal(number), literal(name), ast.Tuple(choice.nodes, ast.Load())])
        for one in walk(asked):  # where a literal is written tells nothing
            ast.copy_location(one, node)
        return asked

    def _numbers(self, choice):
        """Return the numbers of the sets that may stand at a site, None for a value without one."""
        if not isinstance(choice, ast.AST):
            return [self.key.answer(choice)]
        choices = [self.decoys.choose(value, self.bindings.names) for value in self.bindings.values_of(choice)]
        numbers = [None if one is None else self.key.answer(one) for one in choices]
        return numbers if self.bindings.is_always(choice) else [*numbers, None]

    def _token(self, node):
        choice = self.decoys.choose(node, self.bindings.names)
        return node if choice is None else self._set(choice, node)

    def _reached(self, node, site):
        return ast.copy_location(ast.Expr(self._asked("reached", node, [literal(site)])), node)

    @staticmethod
    def _asked(name, node, args):
        probe = ast.Attribute(ast.Name(PROBE, ast.Load()), name, ast.Load())
        return ast.copy_location(ast.Call(probe, args, []), node)


def _is_singleton(node):
    value = constant(node)
    return bool(value) and (value[0] is None or isinstance(value[0], bool))


def _tolerance(call):
    """Return how far apart `assertAlmostEqual` lets two numbers be; None where that isn't written as a number."""
    options = {keyword.arg: constant(keyword.value) for keyword in call.keywords if keyword.arg != "msg"}
    if len(call.args) > 2:
        options["places"] = constant(call.args[2])
    numbers = {name: value[0] for name, value in options.items() if value and type(value[0]) in (int, float)}
    if len(numbers) < len(options):
        return None
    return numbers["delta"] if "delta" in numbers else 10.0 ** -numbers.get("places", 7)


def _loads(node):
    return [one for one in walk(node) if isinstance(one, ast.Name)] if node is not None else []


def _own(node):
    """Yield what runs where a statement does: not what is in functions that it makes."""
    yield node
    if not isinstance(node, FUNCTIONS + (ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            for one in _own(child):
                yield one


def _yields(function):
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for child in function.body for one in _own(child))


def _may_return(statement):
    return any(isinstance(one, ast.Return) for one in _own(statement))
