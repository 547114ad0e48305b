"""Invert the assertions of hidden tests, so that each of these tests must fail.

Code that makes its tests pass by force (patched asserts or pytest, objects equal to everything, expected
values read from the caller's frame) passes these as well, and is found out by it. What a test expects is
altered where that is certain to fail for honest code: `x == 3` becomes `x == 4`, `assert x` becomes
`assert not x`, the body of `pytest.raises` is left out. An inverted test in which no altered assert was
executed fails by itself at its end.

Runs in the verifier's sandbox, on any Python from 3.6.
"""

import ast

PROBE = "_probe"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PAIRS = (
    ("assertTrue", "assertFalse"),
    ("assertIn", "assertNotIn"),
    ("assertIs", "assertIsNot"),
    ("assertIsNone", "assertIsNotNone"),
    ("assertIsInstance", "assertNotIsInstance"),
    ("assertEqual", "assertNotEqual"),
    ("assertLess", "assertGreaterEqual"),
    ("assertGreater", "assertLessEqual"),
)
_OPPOSITE = dict(_PAIRS)
_OPPOSITE.update({new: old for old, new in _PAIRS})
_EXPECTS = ("raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertWarnsRegex")


class Probe:
    """What altered code is given under the name `PROBE`.

    hit: an altered assert was executed. held: it didn't fail."""

    def __init__(self):
        self.hit = self.held = False

    def alter(self, value):
        """Return another value of the same type, or the same where it isn't certain that the two differ."""
        changed = _other(value)
        if changed:
            self.hit = True
            return changed[0]
        return value


def functions(tree):
    """Yield the tests of a module: (`name` or `Class::name`, node)."""
    for node in tree.body:
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, _FUNCTIONS) and method.name.startswith("test"):
                    yield node.name + "::" + method.name, method


def invert(tree, wanted, canary, unittest=False):
    """Invert the assertions of a test module, in place.

    wanted: the tests to alter, named as by `functions`. canary: name of a test that is added and does nothing
    but fail. unittest: it is added as a TestCase too, for runners that see no functions.
    """
    for name, function in functions(tree):
        if name in wanted and not _yields(function):
            _Alter(function)
            function.body.insert(0, _statement("%s.hit = False" % PROBE))
            function.body.append(_statement("assert %s.hit, 'the end was reached'" % PROBE))
    for node in tree.body:  # helpers that tests call
        if isinstance(node, _FUNCTIONS) and not node.name.startswith("test") and not _yields(node):
            _Alter(node)
    tree.body.append(_statement("def %s():\n    assert 1 == 2" % canary))
    if unittest:
        tree.body.append(_statement("import unittest as _unittest"))
        case = "class {0}_(_unittest.TestCase):\n    def {0}(self):\n        assert 1 == 2"
        tree.body.append(_statement(case.format(canary)))
    ast.fix_missing_locations(tree)


class _Alter(ast.NodeTransformer):
    """What inverts a function's own assertions. Nested functions, and `try` with handlers, are left alone."""

    def __init__(self, function):
        self.test = function.name.startswith("test")
        function.body = self._all(function.body)

    def visit_Assert(self, node):
        return self._condition(node.test, node)

    def visit_Expr(self, node):
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return node
        name = call.func.attr
        if name == "assertEqual" and len(call.args) >= 2:
            for i in (1, 0):
                altered = _altered_literal(call.args[i])
                if altered is not None:
                    call.args[i] = altered
                    return [_hit(), node, _held()]
        if name in _OPPOSITE and call.args and not (len(call.args) == 1 and _is_literal(call.args[0])):
            call.func.attr = _OPPOSITE[name]
            return [_hit(), node, _held()]
        return node

    def visit_With(self, node):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
        if "suppress" in names or any("AssertionError" in ast.dump(call) for call in calls):
            return node
        if any(name in _EXPECTS for name in names):
            node.body = [_hit()]
            return [node, _held()]
        return self.generic_visit(node)

    visit_AsyncWith = visit_With

    def visit_Try(self, node):
        return node if node.handlers else self.generic_visit(node)

    visit_TryStar = visit_Try

    def visit_Return(self, node):
        return _statement("assert %s.hit, 'returned'" % PROBE) if self.test else node

    def _leave(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave

    def _condition(self, test, node):
        if _is_literal(test):
            return node
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
            node.test = ast.UnaryOp(ast.Not(), test)
            return [_hit(), node, _held()]
        left, right = test.left, test.comparators[0]
        for literal, side in ((right, "right"), (left, "left")):
            altered = _altered_literal(literal)
            if altered is not None:
                if side == "right":
                    test.comparators[0] = altered
                else:
                    test.left = altered
                return [_hit(), node, _held()]
        if self.test and isinstance(right, ast.Name) and right.id not in _names(left):
            # The variable itself, so that the caller's frame doesn't hold what was expected.
            return [_statement("{0} = {1}.alter({0})".format(right.id, PROBE)), node, _held()]
        attribute = ast.Attribute(ast.Name(PROBE, ast.Load()), "alter", ast.Load())
        test.comparators[0] = ast.Call(attribute, [right], [])
        return [node, _held()]

    def _all(self, body):
        found = []
        for node in body:
            seen = self.visit(node)
            found += seen if isinstance(seen, list) else [seen]
        return found


def _hit():
    return _statement("%s.hit = True" % PROBE)


def _held():
    return _statement("{0}.held = {0}.held or {0}.hit".format(PROBE))


def _statement(source):
    return ast.parse(source).body[0]


def _names(node):
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _yields(function):
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def _is_literal(node):
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _altered_literal(node):
    """Return the syntax of another literal of the same type; None where the node is no literal."""
    if not _is_literal(node):
        return None
    changed = _other(ast.literal_eval(node))
    if not changed:
        return None
    try:
        return ast.parse(repr(changed[0]), mode="eval").body
    except SyntaxError:
        return None


def _other(value):
    """Return (a value of the same type that differs,), or () where that isn't certain."""
    kind = type(value)
    if kind is bool:
        return (not value,)
    if kind in (int, float, complex):
        return (value + abs(value) + 1,)
    if kind in (str, bytes):
        return (value + ("~" if kind is str else b"~"),)
    if kind in (list, tuple):
        return (value + kind([0]),)
    if kind is dict:
        return ({**value, "~": 0},)
    if kind in (set, frozenset):
        return (value | {"~"},)
    return (0,) if value is None else ()
