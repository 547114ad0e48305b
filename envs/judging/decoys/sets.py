"""Decoys: other literals of the same kind, among which an expected one can't be told.

The literals of one set are drawn from a class that is the same whichever of them is the expected one (ints with as
many digits, zeros where it has zeros; texts with other words of the tests, letters or digits in the same places;
containers that differ in one or two of their literals), so the set tells nothing but itself. Equal expected values
have equal sets, in all of a run: what is common to two sets is no hint.
"""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import operator
import re
import string

from envs.judging.decoys.literals import (
    LARGE,
    constant,
    evaluated,
    is_empty,
    leaves_of,
    literal,
    replaced,
    tolerances,
    walk,
)

WAYS, WAYS_OF_LARGE = 8, 4
"""How many literals stand at a site, and at one whose literal is large."""

_NOTHING = (None, True, False)

Choice = collections.namedtuple("Choice", "nodes truth rare")
"""A set of literals. nodes: their syntax. truth: which is the expected one. rare: how hardly an honest
wrong value would be another of them: 0, 1, or 2, where that alone says that it was looked up."""


def vocabulary(trees):
    """Return the words and numbers in the literals of the tests: {style: sorted words}."""
    words = collections.defaultdict(set)
    for tree in trees:
        for node in walk(tree):
            value = constant(node) if type(node).__name__ in ("Constant", "Str") else ()
            if value and type(value[0]) is str and len(value[0]) < LARGE:
                for word in re.findall("[A-Za-z]{3,}", value[0]):
                    words[style(word)].add(word)
    return {kind: sorted(found) for kind, found in words.items()}


def style(word):
    """Return how a word is written."""
    return "lower" if word.islower() else "upper" if word.isupper() else "title" if word.istitle() else "mixed"


def looked_for(trees):
    """Return the texts that the tests look for in others. All sets of such a text are of the same kind, so that it is
    not what two sets have in common."""
    found = set()
    for tree in trees:
        for node in walk(tree):
            value = ()
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
                value = constant(node.left)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assertIn" and node.args:
                value = constant(node.args[0])
            if value and type(value[0]) is str:
                found.add(value[0])
    return found


class Decoys:
    """What makes the sets of one run. chance: a random.Random. words: as `vocabulary` returns them. sought: as
    `looked_for` does. known: what earlier runs drew, which stays: what is common to two sets would tell."""

    def __init__(self, chance, words, sought=(), known=None):
        self.chance, self.words, self._sought = chance, words, frozenset(sought)
        self.known = known or ({}, {})
        self._chosen, (self._families, self._mixes) = {}, self.known

    def choose(self, node, names, tolerance=0.0, within=False):
        """Return the Choice for an expected value; None where no other is certain to differ.

        names: the module's Names. tolerance: with which numbers are compared. within: the text is looked for in
        another, so others must not be in there either.
        """
        tolerance = max([tolerance] + [limit for limit in tolerances(node, names)])
        known = (ast.dump(node), tolerance > 0, within)
        if known not in self._chosen:
            self._chosen[known] = self._choose(node, names, tolerance, within)
        return self._chosen[known]

    def singletons(self, value):
        """Return the Choice for what `is` compares with."""
        nodes = [literal(one) for one in self.chance.sample(_NOTHING, len(_NOTHING))]
        return Choice(nodes, [constant(one)[0] for one in nodes].index(value), 0)

    def _choose(self, node, names, tolerance, within):
        leaves = list(leaves_of(node, (), names))
        if any(leaf is None for leaf in leaves):
            return None
        if within and not (leaves and leaves[0].value in self._sought and _is_alone(leaves[0].value)):
            return None
        large = len(leaves) > LARGE or any(len(str(leaf.value)) > LARGE for leaf in leaves[:LARGE])
        ways = WAYS_OF_LARGE if large else WAYS
        if is_empty(node) and not tolerance:
            return self._beside_nothing(node, ways)
        near = frozenset(i for i, leaf in enumerate(leaves) if tolerance and _is_within(leaf.value, 100 * tolerance))
        signature = tuple((type(leaf.value), repr(leaf.value)) for leaf in leaves), near
        if signature not in self._mixes:
            self._mixes[signature] = self._mixed(node, names, leaves, near, ways)
        mixes, rare = self._mixes[signature]
        nodes, values = [], []
        for mix in mixes:  # the expected one first, and written as the others are
            other = _mixture(node, leaves, mix)
            value = evaluated(other, names) if other else None
            if other and _differs(other, value, nodes, values):
                nodes.append(other)
                values.append(value)
            elif not nodes:
                return None
            if len(nodes) == ways:
                break
        if len(nodes) < 2:
            return None
        if len(nodes) == ways and not tolerance and not within and self.chance.random() < 0.25 and _empty(node):
            nodes[-1] = _empty(node)
        return self._shuffled(nodes, rare)

    def _mixed(self, node, names, leaves, near, ways):
        """Return what the literals of a node are replaced by: ([{number of the literal: value}], rare), the expected
        ones first. They are the same wherever these literals stand together: in a list, a tuple, in `approx`."""
        families = []
        for i in self.chance.sample(range(len(leaves)), min(len(leaves), 40)):
            family, rare = self._family(leaves[i].value)
            if len(family) > 1 and i not in near:
                families.append((i, family, rare))
        # Those of which there are many first: a bool has one other. Keys only where values have none: what is equal to
        # dicts by some of their keys may be equal without one.
        families.sort(key=lambda one: len(one[1]) < WAYS)
        many = [one for one in families if len(one[1]) >= WAYS]
        values = [one for one in many if all(field != "keys" for field, _ in leaves[one[0]].path)]
        families = (values or many)[:2] or families[:6]
        found = [{i: family[0] for i, family, _ in families}]
        other = _mixture(node, leaves, found[0])
        nodes, values = [other], [evaluated(other, names) if other else None]
        if values == [None]:
            return found, 0
        for mix in self._drawn(families, (100 if ways == WAYS else 20) * ways):
            if len(nodes) == ways:
                break
            other = _mixture(node, leaves, mix)
            value = evaluated(other, names) if other else None
            if other and _differs(other, value, nodes, values):
                found.append(mix)
                nodes.append(other)
                values.append(value)
        return found, max([rare for _, _, rare in families] or [0])

    def _drawn(self, families, most):
        """Yield mixes of families, in random order: each once where there are few, else `most` of them."""
        places, members = [i for i, _, _ in families], [family for _, family, _ in families]
        if functools.reduce(operator.mul, map(len, members), 1) <= most:
            mixes = list(itertools.product(*members)) if members else []
            self.chance.shuffle(mixes)
        else:
            mixes = ([self.chance.choice(family) for family in members] for _ in range(most))
        for mix in mixes:
            yield dict(zip(places, mix))

    def _family(self, value):
        """Return (a literal and others of its kind, how hardly chance hits one). In a run they are always the same."""
        if type(value) is bytes:
            texts, rare = self._family(value.decode("latin-1"))
            return [text.encode("latin-1") for text in texts if max(text, default="") < "\u0100"], rare
        number = _number_in(value)
        if number is not None and value not in self._sought:
            numbers, rare = self._family(number)
            return [repr(one) for one in numbers], rare
        known = type(value), repr(value)
        if known not in self._families:
            draw, rare = self._variation(value)
            found, signs = [value], {_signs(value)}
            for _ in range(20 * WAYS if draw else 0):
                if len(found) == WAYS:
                    break
                other = draw()
                if _signs(other) not in signs:
                    found.append(other)
                    signs.add(_signs(other))
            self._families[known] = found, rare
        return self._families[known]

    def _shuffled(self, nodes, rare):
        order = list(range(len(nodes)))
        self.chance.shuffle(order)
        return Choice([nodes[i] for i in order], order.index(0), rare)

    def _beside_nothing(self, node, ways):
        """Return a set for an empty text or container: of words, or with one thing in it."""
        words = (self.words.get("lower") or []) + ["value", "item", "name", "key", "data", "text", "other", "first"]
        words = self.chance.sample(sorted(set(words)), ways - 1)
        numbers = self.chance.sample(range(10), ways - 1)
        kind, value = type(node).__name__, constant(node)
        if value:
            others = [word if value[0] == "" else word.encode() for word in words]
        elif kind == "Dict":
            others = [{word: number} for word, number in zip(words, numbers)]
        else:
            others = [self.chance.choice([[word], [number]]) for word, number in zip(words, numbers)]
            others = [tuple(one) if kind == "Tuple" else one for one in others]
        return self._shuffled([node] + [ast.parse(repr(one), mode="eval").body for one in others], 0)

    # One literal

    def _variation(self, value):
        """Return (a function that draws from a value's class or None, how rarely chance hits one)."""
        kind = type(value)
        if kind is bool or value is None:
            return (lambda: self.chance.choice(_NOTHING if value is None else (True, False))), 0
        if kind is int and 10 <= value <= 31:  # it may be a day
            return (lambda: self.chance.randrange(10 + value % 2, 32, 2)), 0
        if kind in (int, float, complex):
            return self._of_number(repr(value))
        if kind is str:
            return self._of_text(value, value in self._sought)
        return None, 0

    def _of_number(self, text):
        """Draw other first digits, so that no tolerance makes two numbers the same."""
        mantissa = text.split("e")[0]
        if re.match(r"\d(\.0)?$", text):
            places, digits = [0], "0123456789"
        else:
            places, digits = [i for i, sign in enumerate(mantissa) if sign in "123456789"], "123456789"
        if not places:
            return None, 0
        return self._redrawn(text, {places[0]: digits}, ast.literal_eval), int(len(places) > 3)

    def _of_text(self, text, letters_alone):
        """Draw other words of the tests, or other letters and digits, in the same places."""
        words = [match for match in re.finditer("[A-Za-z]{3,}", text)]
        words = [match for match in words if len(self.words.get(style(match.group()), ())) > 2 * WAYS]
        digits = [i for i, sign in enumerate(text) if sign in string.digits]
        if words and not letters_alone and (not digits or self.chance.random() < 0.5):
            word = self.chance.choice(words)
            known = self.words[style(word.group())]
            return (lambda: text[: word.start()] + self.chance.choice(known) + text[word.end() :]), 0
        if digits and not letters_alone:
            chosen = self.chance.sample(digits, min(2, len(digits)))
            return self._redrawn(text, dict.fromkeys(chosen, string.digits), str), int(len(digits) > 3)
        for signs in (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation):
            places = [i for i, sign in enumerate(text) if sign in signs]
            if places:
                chosen = self.chance.sample(places, min(3, len(places)))
                return self._redrawn(text, dict.fromkeys(chosen, signs), str), 2 * (len(chosen) == 3)
        if text:
            place = self.chance.randrange(len(text))
            signs = (
                " \t\n" if text[place].isspace() else "".join(chr(ord(text[place]) // 16 * 16 + i) for i in range(16))
            )
            if text[place] in signs and signs.isprintable() == text[place].isprintable():
                return self._redrawn(text, {place: signs}, str), 0
        return None, 0

    def _redrawn(self, text, signs, read):
        def draw():
            return read("".join(self.chance.choice(signs[i]) if i in signs else sign for i, sign in enumerate(text)))

        return draw


def _number_in(value):
    """Return the number that a text is, written as it would be; None for others."""
    if type(value) is not str or not re.match(r"-?(0|[1-9]\d{0,14})(\.\d{1,9})?\Z", value):
        return None
    number = ast.literal_eval(value)
    return number if repr(number) == value else None


def _is_alone(text):
    """Return whether others of a text's kind are hardly in what holds it: lists of dates hold any digits."""
    return len(text) > 4 and sum(map(str.isalpha, text)) > 2


def _is_within(value, limit):
    """Return whether a value is a number so small that what it is compared with may be any of its kind."""
    return type(value) in (int, float, complex) and abs(value) < limit


def _mixture(node, leaves, mix):
    """Return a copy of a tree with other literals, {number of the leaf: value}; None where one can't be written."""
    for i, value in mix.items():
        node = node and replaced(node, leaves[i].path, literal(value))
    return node


def _differs(node, value, nodes, values):
    """Return whether a literal can be told from all others, also where order and case don't matter."""
    if value is None:  # it can't be evaluated, as the 31st of February
        return False
    if value == ():
        return ast.dump(node) not in [ast.dump(other) for other in nodes]
    signs = _signs(value[0])
    return all(
        type(value[0]) is type(other[0]) and value[0] != other[0] and signs != _signs(other[0])
        for other in values
        if other
    )


def _signs(value):
    """Return what is left of a value without order and case."""
    return "".join(sorted(repr(value).casefold()))


def _empty(node):
    """Return the empty literal of a node's type; None where it has none."""
    value = constant(node)
    if value and type(value[0]) in (str, bytes):
        return literal(type(value[0])())
    kinds = {"List": "[]", "Tuple": "()", "Dict": "{}"}
    text = kinds.get(type(node).__name__)
    return text and ast.copy_location(ast.parse(text, mode="eval").body, node)
