"""Decoys: other literals of the same kind, among which an expected one can't be told.

The literals of one set are drawn from a class. The class is the same whichever of them is the expected one (ints with
as many digits, zeros in the same places; texts with other words of the tests, letters or digits in the same places;
containers that differ in one or two of their literals), so the set tells nothing but itself. Equal expected values
have equal sets, in all of a run: the common part of two sets is no hint.
"""

from __future__ import annotations

import ast
import collections
import itertools
import random
import re
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from envs.judging.decoys.literals import Leaf, Names, constant, evaluated, leaves_of, replaced, tolerances

WAYS = 8
"""How many literals stand at a site."""
_MOST_DRAWN = 5 * WAYS
"""How many mixes are tried for the literals of a site: some may make what can't be told apart."""
_LONGEST = 2000
"""Characters of the longest text whose words are looked at."""

_NOTHING = (None, True, False)

_T = TypeVar("_T")
_EMPTY: dict[type[ast.AST], str] = {ast.List: "[]", ast.Tuple: "()", ast.Dict: "{}"}

Mix = Mapping[int, Any]
"""The replacements of a node's literals, by their numbers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of literals. nodes: their syntax. truth: the number of the expected one."""

    nodes: list[ast.expr]
    truth: int


def vocabulary(trees: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Return the words and numbers in the literals of the tests: {style: sorted words}."""
    words: dict[str, set[str]] = collections.defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST:
                for word in re.findall("[A-Za-z]{3,}", node.value):
                    words[style(word)].add(word)
    return {kind: sorted(found) for kind, found in words.items()}


def style(word: str) -> str:
    """Return how a word is written."""
    return "lower" if word.islower() else "upper" if word.isupper() else "title" if word.istitle() else "mixed"


def looked_for(trees: Iterable[ast.AST]) -> set[str]:
    """Return the texts that the tests look for in others. All sets of such a text are of the same kind:
    so the text is not the common part of two sets."""
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            value: tuple[Any, ...] = ()
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
                value = constant(node.left)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assertIn" and node.args:
                value = constant(node.args[0])
            if value and isinstance(value[0], str):
                found.add(value[0])
    return found


class Decoys:
    """The maker of the sets of one run. words: as `vocabulary` returns them. sought: as `looked_for` does."""

    def __init__(self, chance: random.Random, words: Mapping[str, Sequence[str]], sought: Collection[str] = ()) -> None:
        self._chance, self._words, self._sought = chance, words, frozenset(sought)
        self._chosen: dict[tuple[str, bool, bool], Choice | None] = {}
        self._families: dict[tuple[type, str], list[Any]] = {}
        self._mixes: dict[object, list[Mix]] = {}

    def choose(self, node: ast.expr, names: Names, tolerance: float = 0.0, within: bool = False) -> Choice | None:
        """Return the Choice for an expected value; None if no other is certain to differ.

        names: the module's Names. tolerance: of the comparison of numbers. within: the text is looked for in
        another, so others must not be in there either.
        """
        tolerance = max([tolerance, *tolerances(node, names)])
        known = (ast.dump(node), tolerance > 0, within)
        if known not in self._chosen:
            self._chosen[known] = self._choose(node, names, tolerance, within)
        return self._chosen[known]

    def singletons(self, value: bool | None) -> Choice:
        """Return the Choice for the expected value of an `is`."""
        values = self._chance.sample(_NOTHING, len(_NOTHING))
        return Choice([ast.Constant(one) for one in values], values.index(value))

    def _choose(self, node: ast.expr, names: Names, tolerance: float, within: bool) -> Choice | None:
        leaves: list[Leaf] = []
        for leaf in leaves_of(node, (), names):
            if leaf is None:
                return None
            leaves.append(leaf)
        if within and not (leaves and leaves[0].value in self._sought and _is_alone(leaves[0].value)):
            return None
        nothing = _empty(node)
        if nothing is not None and ast.dump(node) == ast.dump(nothing) and not tolerance:
            return self._beside_nothing(node)
        near = frozenset(i for i, leaf in enumerate(leaves) if tolerance and _is_within(leaf.value, 100 * tolerance))
        signature = tuple((type(leaf.value), repr(leaf.value)) for leaf in leaves), near
        if signature not in self._mixes:
            self._mixes[signature] = self._mixed(leaves, near)
        nodes = _distinct(node, names, leaves, self._mixes[signature])
        if len(nodes) < 2:
            return None
        if nothing is not None and len(nodes) == WAYS and not tolerance and not within and self._chance.random() < 0.25:
            nodes[-1] = nothing
        return self._shuffled(nodes)

    def _mixed(self, leaves: Sequence[Leaf], near: Collection[int]) -> list[Mix]:
        """Return replacements of a node's literals, the expected ones first. They are the same wherever these literals
        stand together: in a list, a tuple, in `approx`."""
        sample = self._chance.sample(range(len(leaves)), min(len(leaves), 40))
        families = {i: self._family(leaves[i].value) for i in sample if i not in near}
        varied = [i for i, family in families.items() if len(family) > 1]
        # Those of which there are many first: a bool has one other. Keys only where values have none: what is equal to
        # dicts by some of their keys may be equal without one.
        many = [i for i in varied if len(families[i]) >= WAYS]
        values = [i for i in many if all(field != "keys" for field, _ in leaves[i].path)]
        varied = (values or many)[:2] or varied[:6]
        members = [families[i] for i in varied]
        drawn = list(itertools.product(*members))
        drawn = self._chance.sample(drawn, min(len(drawn), _MOST_DRAWN))
        return [dict(zip(varied, mix, strict=True)) for mix in [[family[0] for family in members], *drawn]]

    def _family(self, value: Any) -> list[Any]:
        """Return a literal and others of its kind. In a run they are always the same."""
        if isinstance(value, bytes):
            texts = self._family(value.decode("latin-1"))
            return [text.encode("latin-1") for text in texts]
        number = _number_in(value)
        if number is not None:
            return list(map(repr, self._family(number)))
        known = type(value), repr(value)
        if known not in self._families:
            draw = self._variation(value)
            found, signs = [value], {_signs(value)}
            for _ in range(20 * WAYS):
                if draw is None or len(found) == WAYS:
                    break
                other = draw()
                if _signs(other) not in signs:
                    found.append(other)
                    signs.add(_signs(other))
            self._families[known] = found
        return self._families[known]

    def _shuffled(self, nodes: Sequence[ast.expr]) -> Choice:
        """Return the Choice of these nodes; the first is the expected one."""
        order = list(range(len(nodes)))
        self._chance.shuffle(order)
        return Choice([nodes[i] for i in order], order.index(0))

    def _beside_nothing(self, node: ast.expr) -> Choice:
        """Return a set for an empty text or container: of words, or with one thing in it."""
        known = {*self._words.get("lower", ()), "value", "item", "name", "key", "data", "text", "other", "first"}
        words = self._chance.sample(sorted(known), WAYS - 1)
        numbers = self._chance.sample(range(10), WAYS - 1)
        value = constant(node)
        others: list[Any]
        if value:
            others = [word if value[0] == "" else word.encode() for word in words]
        elif isinstance(node, ast.Dict):
            others = [{word: number} for word, number in zip(words, numbers, strict=True)]
        else:
            kind = tuple if isinstance(node, ast.Tuple) else list
            others = [kind([self._chance.choice(pair)]) for pair in zip(words, numbers, strict=True)]
        return self._shuffled([node, *(ast.parse(repr(one), mode="eval").body for one in others)])

    # One literal

    def _variation(self, value: Any) -> Callable[[], Any] | None:
        """Return a function that draws from a value's class; None if there is no other."""
        kind = type(value)
        if kind is bool or value is None:
            return lambda: self._chance.choice(_NOTHING if value is None else (True, False))
        if kind is int and 10 <= value <= 31:  # it may be a day
            return lambda: self._chance.randrange(10 + value % 2, 32, 2)
        if kind in (int, float, complex):
            return self._of_number(repr(value))
        return self._of_text(value, value in self._sought) if kind is str else None

    def _of_number(self, text: str) -> Callable[[], Any] | None:
        """Draw other first digits: so no tolerance makes two numbers the same."""
        mantissa = text.partition("e")[0]
        if re.match(r"\d(\.0)?$", text):
            places, digits = [0], string.digits
        else:
            places, digits = [i for i, sign in enumerate(mantissa) if sign in "123456789"], "123456789"
        return self._redrawn(text, {places[0]: digits}, ast.literal_eval) if places else None

    def _of_text(self, text: str, letters_alone: bool) -> Callable[[], str] | None:
        """Draw other words of the tests, or other letters and digits, in the same places."""
        found = re.finditer("[A-Za-z]{3,}", text)
        words = [match for match in found if len(self._words.get(style(match.group()), ())) > 2 * WAYS]
        digits = [i for i, sign in enumerate(text) if sign in string.digits]
        if words and not letters_alone and (not digits or self._chance.random() < 0.5):
            word = self._chance.choice(words)
            known = self._words[style(word.group())]
            return lambda: text[: word.start()] + self._chance.choice(known) + text[word.end() :]
        if digits and not letters_alone:
            chosen = self._chance.sample(digits, min(2, len(digits)))
            return self._redrawn(text, dict.fromkeys(chosen, string.digits), str)
        for signs in (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation):
            places = [i for i, sign in enumerate(text) if sign in signs]
            if places:
                chosen = self._chance.sample(places, min(3, len(places)))
                return self._redrawn(text, dict.fromkeys(chosen, signs), str)
        if text:
            place = self._chance.randrange(len(text))
            start = ord(text[place]) // 16 * 16
            signs = " \t\n" if text[place].isspace() else "".join(map(chr, range(start, start + 16)))
            if text[place] in signs and signs.isprintable() == text[place].isprintable():
                return self._redrawn(text, {place: signs}, str)
        return None

    def _redrawn(self, text: str, signs: Mapping[int, str], read: Callable[[str], _T]) -> Callable[[], _T]:
        def draw() -> _T:
            return read("".join(self._chance.choice(signs[i]) if i in signs else sign for i, sign in enumerate(text)))

        return draw


def _number_in(value: object) -> int | float | None:
    """Return the number that a text spells in Python's own way; None for other texts."""
    if not isinstance(value, str) or not re.match(r"-?(0|[1-9]\d{0,14})(\.\d{1,9})?\Z", value):
        return None
    number: int | float = ast.literal_eval(value)
    return number if repr(number) == value else None


def _is_alone(text: str) -> bool:
    """Return whether the searched text hardly holds other texts of this kind: lists of dates hold any digits."""
    return len(text) > 4 and sum(map(str.isalpha, text)) > 2


def _is_within(value: Any, limit: float) -> bool:
    """Return whether a value is a number so small that its counterpart may be any of its kind."""
    return type(value) in (int, float, complex) and bool(abs(value) < limit)


def _distinct(node: ast.expr, names: Names, leaves: Sequence[Leaf], mixes: Iterable[Mix]) -> list[ast.expr]:
    """Return the literals that mixes make of a node, if they can be told apart, `WAYS` at most; none if the first mix,
    the expected one's, has no value."""
    nodes: list[ast.expr] = []
    values: list[tuple[Any, ...]] = []
    for mix in mixes:
        if len(nodes) == WAYS:
            break
        other = node
        for i, literal in mix.items():
            other = replaced(other, leaves[i].path, ast.Constant(literal))
        value = evaluated(other, names)
        if value is not None and _differs(other, value, nodes, values):
            nodes.append(other)
            values.append(value)
        elif not nodes:
            break
    return nodes


def _differs(
    node: ast.expr, value: tuple[Any, ...], nodes: Sequence[ast.expr], values: Sequence[tuple[Any, ...]]
) -> bool:
    """Return whether a literal can be told from all others, also if order and case don't matter."""
    if not value:
        return ast.dump(node) not in [ast.dump(other) for other in nodes]
    signs = _signs(value[0])
    return all(
        type(value[0]) is type(other[0]) and value[0] != other[0] and signs != _signs(other[0])
        for other in values
        if other
    )


def _signs(value: object) -> str:
    """Return a value without its order and case."""
    return "".join(sorted(repr(value).casefold()))


def _empty(node: ast.expr) -> ast.expr | None:
    """Return the empty literal of a node's type; None if it has none."""
    value = constant(node)
    if value and isinstance(value[0], str | bytes):
        return ast.Constant(type(value[0])())
    text = _EMPTY.get(type(node))
    return None if text is None else ast.parse(text, mode="eval").body
