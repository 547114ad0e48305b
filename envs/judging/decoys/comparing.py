"""Comparisons of tests: their expected values, put among decoys, and the calls that ask for the comparison.

`assert f(x) == 3` becomes `__verifier__.check(site, "equal", (f(x)), __verifier__.want(number, (7, 3, 5, 1)), False)`;
`envs/judging/inside/reporter.py` defines these calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from envs.judging.decoys.key import FIRST, Key, id_of
from envs.judging.decoys.literals import constant, leaves_of
from envs.judging.decoys.names import Bindings
from envs.judging.decoys.sets import Choice, Decoys
from envs.judging.decoys.text import Text

PROBE = "__verifier__"
"""The probe's name in the sandbox: a builtin there."""
_HOW: dict[type[ast.cmpop], str] = {ast.Eq: "equal", ast.Is: "same", ast.In: "inside"}
_EQUAL = frozenset(
    f"assert{kind}Equal" for kind in ("", "List", "Dict", "Tuple", "Set", "Count", "Sequence", "MultiLine")
) | {"assertEquals"}
_ALMOST = frozenset(("assertAlmostEqual", "assertAlmostEquals"))
_METHODS = {"assertIs": "same", "assertIn": "inside", **dict.fromkeys(_EQUAL | _ALMOST, "equal")}
"""How methods of unittest compare their first two arguments."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison among decoys. how: the method of the probe. value: the compared value; want: source of the other
    side.
    swapped: the expected one stands on the left. expected: its syntax."""

    how: str
    value: ast.expr
    want: str
    swapped: bool
    expected: ast.expr


class Comparisons:
    """The comparisons of one walk through a module.

    accepted: ids of the nodes of parameters that are compared alone; None on the first walk, which finds them and
    changes nothing. compared: ids of the nodes of the compared parameters.
    """

    def __init__(
        self, text: Text, key: Key, decoys: Decoys, bindings: Bindings, accepted: set[int] | None = None
    ) -> None:
        self._text, self._key, self._decoys, self._bindings = text, key, decoys, bindings
        self.planting = accepted is not None
        self._accepted = accepted or set()
        self.compared: set[int] = set()

    def comparison(self, test: ast.expr, site: int) -> Comparison | None:
        """Return the replacement of a condition; None if it stays."""
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return None
        left, right, how = test.left, test.comparators[0], _HOW.get(type(test.ops[0]), "")
        choice, is_left = self._expected(how, left, right)
        value, expected = (right, left) if is_left else (left, right)
        want = None if choice is None or not self.planting else self._want(choice, expected, site)
        return None if want is None else Comparison(how, value, want, is_left, expected)

    def condition(self, test: ast.expr, site: int) -> None:
        """Put the comparisons of a condition among decoys; the condition has to hold as a whole."""
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        for part in parts:
            if isinstance(part, ast.BoolOp):
                self.condition(part, site) if isinstance(part.op, ast.And) else None
            elif (comparison := self.comparison(part, site)) is not None:
                self._text.replace(part, self.call(comparison.how, site, comparison))

    def call(self, method: str, site: int, comparison: Comparison, more: str = "") -> str:
        """Return the source of a call of the probe."""
        how = f'"{comparison.how}",' if method == "check" else ""
        value = f"({self._text.segment(comparison.value)})"
        return f"{PROBE}.{method}({FIRST + site},{how}{value},{comparison.want},{comparison.swapped}{more})"

    def method(self, call: ast.Call, name: str, site: int) -> str | None:
        """Return the source of the call of a method of unittest among decoys; None if it stays."""
        args = call.args
        unbound = args and getattr(args[0], "id", "") == "self"
        if unbound or any(isinstance(one, ast.Starred) for one in args) or self._bindings.defines(name):
            return None
        if name == "assertTrue" and args:
            self.condition(args[0], site)
        tolerance = _tolerance(call) if name in _ALMOST else 0.0
        if len(args) < 2 or tolerance is None:
            return None
        choice, is_left = self._expected(_METHODS.get(name, ""), args[0], args[1], tolerance)
        place = 0 if is_left else 1
        want = None if choice is None or not self.planting else self._want(choice, args[place], site)
        if want is None:
            return None
        given = ["None" if i == place else self._part(one, args[place]) for i, one in enumerate(args)]
        given += [self._option(one, args[place]) for one in call.keywords]
        function = self._text.segment(call.func)
        return f"{PROBE}.method({FIRST + site},{function},{name in _EQUAL},{bool(place)},{want},{','.join(given)})"

    def message(self, node: ast.expr, expected: ast.expr) -> str:
        """Return the source of an assert's message; an empty one if it tells the expected value."""
        said = self._text.segment(node)
        leaves = [leaf for leaf in leaves_of(expected, (), self._bindings.names) if leaf is not None]
        shown = any(isinstance(one, ast.Await | ast.Yield | ast.NamedExpr) for one in ast.walk(node))
        tells = any(str(leaf.value) in said or repr(leaf.value) in said for leaf in leaves if leaf.value != "")
        return "str()" if shown or tells else f"({said})"

    def cell(self, node: ast.expr) -> None:
        """Put a value that `parametrize` writes among decoys. Its test keeps its id."""
        choice = self._decoys.choose(node, self._bindings.names)
        want = None if choice is None else self._set(choice)
        if choice is None or want is None:
            return
        value = constant(node)
        shown = repr(id_of(value[0])) if value else "None"
        self._text.replace(node, f"{PROBE}.row({FIRST + self._key.answer(choice)},{shown},{want})")

    def _part(self, node: ast.expr, expected: ast.expr) -> str:
        value = constant(node)
        return self.message(node, expected) if value and isinstance(value[0], str) else f"({self._text.segment(node)})"

    def _option(self, keyword: ast.keyword, expected: ast.expr) -> str:
        if keyword.arg == "msg":
            return f"msg={self.message(keyword.value, expected)}"
        value = f"({self._text.segment(keyword.value)})"
        return f"**{value}" if keyword.arg is None else f"{keyword.arg}={value}"

    def _expected(
        self, how: str, left: ast.expr, right: ast.expr, tolerance: float = 0.0
    ) -> tuple[Choice | ast.expr | None, bool]:
        """Return the expected side: (its Choice or parameter, whether it is the left); None: neither."""
        if how == "same" and _is_singleton(right) and not constant(left):
            return self._decoys.singletons(constant(right)[0]), False
        if how == "inside" and constant(left) and not constant(right):
            return self._decoys.choose(left, self._bindings.names, within=True), True
        if how != "equal" or self._bindings.bends_equality:
            return None, False
        for node, other, is_left in ((right, left, False), (left, right, True)):
            if not isinstance(node, ast.Name) and not constant(other):
                choice = self._decoys.choose(node, self._bindings.names, tolerance)
                if choice is not None:
                    return choice, is_left
        for node, is_left in ((right, False), (left, True)):
            values = self._bindings.parameters.get(id(node), ())
            if not tolerance and any(self._decoys.choose(value, self._bindings.names) for value in values):
                self.compared.add(id(node))
                if not self.planting or id(node) in self._accepted:
                    return node, is_left
        return None, False

    def _want(self, choice: Choice | ast.expr, node: ast.expr, site: int) -> str | None:
        """Return the source of the expected value, and note it; None if it can't be written on a line."""
        if isinstance(choice, ast.AST):
            self._key.sets.setdefault(site, []).extend(self._numbers(self._bindings.parameters[id(node)]))
            return self._text.segment(node)
        written = self._set(choice)
        if written is None:
            return None
        number = self._key.answer(choice)
        self._key.sets.setdefault(site, []).append(number)
        return f"{PROBE}.want({FIRST + number},{written})"

    def _numbers(self, values: Iterable[ast.expr]) -> list[int | None]:
        """Return the numbers of the sets that may stand at a site, None for a value without one."""
        choices = [self._decoys.choose(value, self._bindings.names) for value in values]
        return [None if one is None or self._set(one) is None else self._key.answer(one) for one in choices]

    @staticmethod
    def _set(choice: Choice) -> str | None:
        written = f"({','.join(map(ast.unparse, choice.nodes))},)"
        return None if "\n" in written else written


def _is_singleton(node: ast.expr) -> bool:
    value = constant(node)
    return bool(value) and (value[0] is None or isinstance(value[0], bool))


def _tolerance(call: ast.Call) -> float | None:
    """Return how far apart `assertAlmostEqual` lets two numbers be; None if it isn't written as a number."""
    options = {keyword.arg: constant(keyword.value) for keyword in call.keywords if keyword.arg != "msg"}
    if len(call.args) > 2:
        options["places"] = constant(call.args[2])
    numbers = {name: value[0] for name, value in options.items() if value and type(value[0]) in (int, float)}
    if len(numbers) < len(options):
        return None
    return float(numbers["delta"]) if "delta" in numbers else 10.0 ** -float(numbers.get("places", 7))
