"""Comparisons of tests: their expected values, put among decoys, and the calls that ask for the comparison.

`assert f(x) == 3` becomes `assert [__verifier__.equal(site,(f(x)),__verifier__.want(number,(7,3,5,1)))][0]`;
`envs/judging/inside/probe.py` defines these calls.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
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
    """A comparison with an expected value.

    node: its syntax, a call of a method of unittest or a part of a condition. how: the method of the probe. left,
    right: its sides. expected: one of them. choice: its set; None if it is a parameter, whose rows have the sets.
    """

    node: ast.Compare | ast.Call
    how: str
    left: ast.expr
    right: ast.expr
    expected: ast.expr
    choice: Choice | None


class Comparisons:
    """The comparisons of a module."""

    def __init__(self, text: Text, key: Key, decoys: Decoys, bindings: Bindings) -> None:
        self._text, self._key, self._decoys, self._bindings = text, key, decoys, bindings

    def of(self, statement: ast.Assert | ast.Expr) -> Iterator[Comparison]:
        """Yield the comparisons of an assert, or of a call of a method of unittest. All of them have to hold."""
        if isinstance(statement, ast.Assert):
            yield from self._of_condition(statement.test)
            return
        call, name = _called(statement)
        unbound = call.args and getattr(call.args[0], "id", "") == "self"
        if unbound or any(isinstance(one, ast.Starred) for one in call.args) or self._bindings.defines(name):
            return
        if name == "assertTrue" and call.args:
            yield from self._of_condition(call.args[0])
        tolerance = _tolerance(call) if name in _ALMOST else 0.0
        if len(call.args) > 1 and tolerance is not None:
            yield from self._between(call, _METHODS.get(name, ""), call.args[0], call.args[1], tolerance)

    def plant(self, statement: ast.Assert | ast.Expr, site: int, comparisons: Sequence[Comparison]) -> None:
        """Put the expected values of a statement among decoys, or have it report that it was reached."""
        if not comparisons:
            self._text.append(statement, f"{PROBE}.reached({FIRST + site})")
        for one in comparisons:
            self._key.sets.setdefault(site, []).extend(self._numbers(one))
            if isinstance(one.node, ast.Compare):
                sides = ",".join(map(self._side, (one.left, one.right), (one, one)))
                # Of a subscript pytest shows the value, and none of its parts.
                self._text.replace(one.node, f"[{PROBE}.{one.how}({FIRST + site},{sides})][0]")
            else:
                _, name = _called(statement)
                method = f"{self._text.segment(one.node.func)},{name in _EQUAL}"
                self._text.replace(one.node.func, f"{PROBE}.method({FIRST + site},{method})")
                if one.choice is not None:
                    self._text.replace(one.expected, self._side(one.expected, one))
        for message in _messages(statement):
            if self._tells(message, comparisons):
                self._text.replace(message, "str()")

    def cell(self, node: ast.expr) -> None:
        """Put a value that `parametrize` writes among decoys. Its test keeps its id."""
        choice = self._decoys.choose(node, self._bindings.names)
        if choice is not None:
            value = constant(node)
            shown = repr(id_of(value[0])) if value else "None"
            self._text.replace(node, self._want(choice, f",{shown}"))

    def _of_condition(self, test: ast.expr) -> Iterator[Comparison]:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                yield from self._of_condition(part)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            yield from self._between(test, _HOW.get(type(test.ops[0]), ""), test.left, test.comparators[0])

    def _between(
        self, node: ast.Compare | ast.Call, how: str, left: ast.expr, right: ast.expr, tolerance: float = 0.0
    ) -> Iterator[Comparison]:
        """Yield the comparison of two sides, if one of them is expected."""
        names, expecting = self._bindings.names, functools.partial(Comparison, node, how, left, right)
        sides = [(right, left), (left, right)] if how == "equal" and not self._bindings.bends_equality else []
        if how == "same" and _is_singleton(right) and not constant(left):
            yield expecting(right, self._decoys.singletons(constant(right)[0]))
        if how == "inside" and constant(left) and not constant(right):
            choice = self._decoys.choose(left, names, within=True)
            if choice is not None:
                yield expecting(left, choice)
        for one, other in sides:
            if not isinstance(one, ast.Name) and not constant(other):
                choice = self._decoys.choose(one, names, tolerance)
                if choice is not None:
                    yield expecting(one, choice)
                    return
        for one, _ in sides:
            values = self._bindings.parameters.get(id(one), ())
            if not tolerance and any(self._decoys.choose(value, names) for value in values):
                yield expecting(one, None)
                return

    def _numbers(self, one: Comparison) -> list[int | None]:
        """Return the numbers of the sets that may stand at a comparison, None for a row without one."""
        if one.choice is not None:
            return [self._key.answer(one.choice)]
        rows = self._bindings.parameters[id(one.expected)]
        choices = [self._decoys.choose(value, self._bindings.names) for value in rows]
        return [None if choice is None else self._key.answer(choice) for choice in choices]

    def _side(self, node: ast.expr, one: Comparison) -> str:
        """Return the source of a side of a comparison."""
        if node is one.expected and one.choice is not None:
            return self._want(one.choice)
        return f"({self._text.segment(node)})"

    def _want(self, choice: Choice, shown: str = "") -> str:
        """Return the source of a literal among decoys."""
        values = ",".join(map(ast.unparse, choice.nodes))
        return f"{PROBE}.want({FIRST + self._key.answer(choice)},({values},){shown})"

    def _tells(self, message: ast.expr, comparisons: Sequence[Comparison]) -> bool:
        """Return whether a message has an expected value in it."""
        text = self._text.segment(message)
        leaves = (leaf for one in comparisons for leaf in leaves_of(one.expected, (), self._bindings.names))
        values = [leaf.value for leaf in leaves if leaf is not None and leaf.value != ""]
        return any(str(value) in text or repr(value) in text for value in values)


def _called(statement: ast.Assert | ast.Expr) -> tuple[ast.Call, str]:
    """Return the call of a method, and the method's name."""
    call = getattr(statement, "value", None)
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)  # noqa: S101 - as `sites` found it
    return call, call.func.attr


def _messages(statement: ast.Assert | ast.Expr) -> list[ast.expr]:
    """Return the messages of an assert or of a method of unittest."""
    if isinstance(statement, ast.Assert):
        return [] if statement.msg is None else [statement.msg]
    call, name = _called(statement)
    behind = call.args[1 if name == "assertTrue" else 2 :]
    named = [keyword.value for keyword in call.keywords if keyword.arg == "msg"]
    return [one for one in (*behind, *named) if not constant(one) or isinstance(constant(one)[0], str)]


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
