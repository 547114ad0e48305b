"""Comparisons of tests: what they expect, put among decoys, and the calls that ask of it.

`f(x) == 3` becomes `@probe.equal(site, f(x), @probe.want(number, id, (7, 3, 5, 1)), False)`; what the probe does with
it, see `probe`.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast

from literals import constant, literal, walk
from probe import PROBE

_EQUAL = ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual")
_EQUAL += ("assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual")
_ALMOST = ("assertAlmostEqual", "assertAlmostEquals")
_UNEQUAL = ("assertNotEqual", "assertIs", "assertIsNot", "assertIn", "assertNotIn", "assertIsInstance", "assertRegex")
_UNEQUAL += ("assertGreater", "assertGreaterEqual", "assertLess", "assertLessEqual", "assertNotRegex")
_MESSAGES = dict.fromkeys(("assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone"), 1)
_MESSAGES.update(dict.fromkeys(_EQUAL + _UNEQUAL, 2), **dict.fromkeys(_ALMOST + ("assertNotAlmostEqual",), 3))
"""At which place methods of unittest take a message."""


class Comparisons:
    """The comparisons of one walk through a module.

    accepted: ids of the nodes of names that are compared alone; None on the walk that asks which names are, and changes
    nothing. compared: ids of the nodes of the names that were.
    """

    def __init__(self, key, decoys, bindings, accepted=None):
        self._key, self._decoys, self._bindings = key, decoys, bindings
        self.planting = accepted is not None
        self._accepted = accepted or set()
        self.compared = set()

    def condition(self, test, site):
        """Return what an assert asks, with decoys where it compares, and whether that says all of it."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test.values = [self.condition(one, site)[0] for one in test.values]
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return test, False
        left, right, kind = test.left, test.comparators[0], type(test.ops[0])
        choice, is_left, how = None, False, "equal"
        if kind is ast.Eq:
            choice, is_left = self._expected(left, right)
        elif kind is ast.Is and _is_singleton(right) and not constant(left):
            choice, how = self._decoys.singletons(constant(right)[0]), "same"
        elif kind is ast.In and constant(left) and not constant(right):
            choice, is_left, how = self._decoys.choose(left, self._bindings.names, within=True), True, "inside"
        if choice is None or not self.planting:
            return test, False
        self._key.asked.setdefault(site, []).extend(self._numbers(choice))
        value, expected = (right, left) if is_left else (left, right)
        args = [value, self._set(choice, expected), literal(is_left)]
        return asked(how, test, [literal(site)] + args), True

    def method(self, call, name, site):
        """Return the call of a method of unittest among decoys; None where it stays."""
        args = call.args
        unbound = args and getattr(args[0], "id", "") == "self"
        if unbound or any(isinstance(one, ast.Starred) for one in args) or self._bindings.defines(name):
            return None
        for part in args[2:] + [keyword.value for keyword in call.keywords]:
            self.compare(*loads(part))
        self._leave_out_message(call, name)
        if len(args) < (1 if name == "assertTrue" else 2):
            return None
        choice, place = None, 1
        if name == "assertTrue":
            args[0] = self.condition(args[0], site)[0]
        elif name == "assertIs" and _is_singleton(args[1]) and not constant(args[0]):
            choice = self._decoys.singletons(constant(args[1])[0])
        elif name == "assertIn" and constant(args[0]) and not constant(args[1]):
            choice, place = self._decoys.choose(args[0], self._bindings.names, within=True), 0
        elif name in _EQUAL or (name in _ALMOST and _tolerance(call) is not None):
            choice, is_left = self._expected(args[0], args[1], _tolerance(call) if name in _ALMOST else 0.0)
            place = 0 if is_left else 1
        if choice is None or not self.planting:
            return None
        self._key.asked.setdefault(site, []).extend(self._numbers(choice))
        expected, args[place] = args[place], literal(None)
        known = [literal(site), call.func, literal(name in _EQUAL), literal(place), self._set(choice, expected)]
        made = asked("method", call, known + args)
        made.keywords = call.keywords
        return made

    def _leave_out_message(self, call, name):
        """Leave out of a call of a method of unittest what its message says, which is made before the call."""

        def left(message):
            if type((constant(message) or ("",))[0]) is not str:
                return message  # a base of the test's takes something else there
            taken = any(id(one) in self._accepted for one in loads(message))
            return None if taken else unsaid(message)

        at = _MESSAGES.get(name, len(call.args))
        call.args[at:] = [left(one) or literal(None) for one in call.args[at:]]
        for keyword in call.keywords if name in _MESSAGES else ():
            if keyword.arg == "msg":
                keyword.value = left(keyword.value) or literal(None)

    def compare(self, *names):
        """Note that names are compared."""
        self.compared.update(map(id, names))

    def token(self, node):
        """Return what stands where a value is written for a name."""
        choice = self._decoys.choose(node, self._bindings.names)
        return node if choice is None else self._set(choice, node)

    def _expected(self, left, right, tolerance=0.0):
        """Return which side is the expected one: (its Choice or name, whether it is the left); None where none is."""
        if self._bindings.bends_equality:
            return None, False
        for node, other, is_left in ((right, left, False), (left, right, True)):
            if not isinstance(node, ast.Name) and not constant(other):
                choice = self._decoys.choose(node, self._bindings.names, tolerance)
                if choice is not None:
                    return choice, is_left
        for node, is_left in ((right, False), (left, True)):
            if isinstance(node, ast.Name) and self._bindings.is_literal(node) and not tolerance:
                self.compare(node)
                if not self.planting or id(node) in self._accepted:
                    return node, is_left
        return None, False

    def _set(self, choice, node):
        """Return what is expected: the name for which it is written, or `@probe.want(number, id, (7, 3, 5, 1))`."""
        if isinstance(choice, ast.AST):
            return choice
        number, value = self._key.answer(choice), constant(choice.nodes[choice.truth])
        name = self._key.token(value[0]) if value else ""
        return asked("want", node, [literal(number), literal(name), _tuple(choice.nodes, node)])

    def _numbers(self, choice):
        """Return the numbers of the sets that may stand at a site, None for a value without one."""
        if not isinstance(choice, ast.AST):
            return [self._key.answer(choice)]
        choices = [self._decoys.choose(value, self._bindings.names) for value in self._bindings.values_of(choice)]
        numbers = [None if one is None else self._key.answer(one) for one in choices]
        return numbers if self._bindings.is_always(choice) else [*numbers, None]


def asked(name, node, args):
    """Return a call of the probe, in the place of a node."""
    probe = ast.Attribute(ast.Name(PROBE, ast.Load()), name, ast.Load())
    return ast.copy_location(ast.Call(probe, args, []), node)


def checked(node):
    """Return what does as an assert does whose condition asks the probe, and says what it came to."""
    error = asked("failed", node, [node.msg] if node.msg else [])
    return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Raise(error, None)], []), node)


def _tuple(nodes, place):
    """Return a tuple of literals, at the place of another node: where each is written tells nothing."""
    values = [constant(one) for one in nodes]
    if all(values):
        return ast.copy_location(ast.Constant(tuple(value for (value,) in values)), place)
    made = ast.Tuple(nodes, ast.Load())
    for one in walk(made):
        ast.copy_location(one, place)
    return made


def reached(node, site):
    """Return the statement that tells that a site was come to."""
    return ast.copy_location(ast.Expr(asked("reached", node, [literal(site)])), node)


def loads(node):
    """Return the names that are read in a node; none where there is no node."""
    return [one for one in walk(node) if isinstance(one, ast.Name)] if node is not None else []


def unsaid(message):
    """Return what is left of an assert's message without literals, which may say what is expected; None for nothing."""
    if not isinstance(message, ast.JoinedStr):
        return None if any(map(constant, walk(message))) else message
    parts = [one for one in message.values if isinstance(one, ast.FormattedValue)]
    parts = [one for one in parts if not any(map(constant, walk(one.value)))]
    message.values = [one for part in parts for one in (part, ast.copy_location(literal(" "), part))]
    return message if parts else None


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
