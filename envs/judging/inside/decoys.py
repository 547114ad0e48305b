"""Decoys: other literals of the same kind, among which an expected one can't be told.

The literals of one set are drawn from a class that is the same whichever of them is the expected one (ints with as
many digits, zeros where it has zeros; texts with other words of the tests, letters or digits in the same places;
containers that differ in one or two of their literals), so the set tells nothing but itself. Equal expected values
have equal sets, in all of a run: what is common to two sets is no hint.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast
import collections
import copy
import datetime
import decimal
import fractions
import pathlib
import re
import string
import uuid

WAYS, WAYS_OF_LARGE, LARGE = 8, 4, 2000
"""How many literals stand at a site, and at one whose literal has more characters or parts than `LARGE`."""

_NOTHING = (None, True, False)
_OPERATORS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "FloorDiv": lambda a, b: a // b,
    "Pow": lambda a, b: a**b,
    "LShift": lambda a, b: a << b,
}
_CONTAINERS = {
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.list": list,
    "builtins.tuple": tuple,
    "builtins.dict": dict,
    "builtins.bytes": bytes,
    "builtins.bytearray": bytearray,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "collections.deque": collections.deque,
}
PURE = dict(
    _CONTAINERS,
    **{
        "builtins.range": range,
        "builtins.int": int,
        "builtins.float": float,
        "builtins.str": str,
        "builtins.complex": complex,
        "decimal.Decimal": decimal.Decimal,
        "fractions.Fraction": fractions.Fraction,
        "datetime.date": datetime.date,
        "datetime.time": datetime.time,
        "datetime.datetime": datetime.datetime,
        "datetime.timedelta": datetime.timedelta,
        "pathlib.Path": pathlib.PurePath,
        "pathlib.PosixPath": pathlib.PurePath,
        "pathlib.PurePath": pathlib.PurePath,
        "pathlib.PurePosixPath": pathlib.PurePath,
        "uuid.UUID": uuid.UUID,
    },
)
"""What may be called with other literals, by its full name."""
APPROX = "pytest.approx"
_TOLERANCE = 0.05

Choice = collections.namedtuple("Choice", "nodes truth rare")
"""A set of literals. nodes: their syntax. truth: which is the expected one. rare: how hardly an honest
wrong value would be another of them: 0, 1, or 2, where that alone says that it was looked up."""
Leaf = collections.namedtuple("Leaf", "path value")


def walk(node):
    """Return a node and all below it, in no order."""
    found = [node]
    for one in found:
        for child in vars(one).values():
            if isinstance(child, ast.AST):
                found.append(child)
            elif isinstance(child, list):
                found += [other for other in child if isinstance(other, ast.AST)]
    return found


def constant(node):
    """Return (its value,) for a literal that is no container, or for an operation on such; () for other syntax."""
    kind = type(node).__name__
    if kind in ("Constant", "NameConstant"):
        return () if node.value is Ellipsis else (node.value,)
    if kind == "Num":
        return (node.n,)
    if kind in ("Str", "Bytes"):
        return (node.s,)
    if kind == "UnaryOp" and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = constant(node.operand)
        if value and type(value[0]) in (int, float, complex):
            return (-value[0] if isinstance(node.op, ast.USub) else value[0],)
    if kind == "BinOp":
        return _operation(node)
    return ()


def _operation(node):
    operate, left, right = _OPERATORS.get(type(node.op).__name__), constant(node.left), constant(node.right)
    if operate is None or not left or not right:
        return ()
    a, b = left[0], right[0]
    numbers = all(type(value) in (int, float, complex) and abs(value) < 1e9 for value in (a, b))
    texts = all(type(value) in (str, bytes) and len(value) < LARGE for value in (a, b))
    repeated = isinstance(node.op, ast.Mult) and type(a) in (str, bytes) and type(b) is int and len(a) * b < LARGE
    if not (numbers or repeated or (texts and isinstance(node.op, ast.Add))):
        return ()
    if isinstance(node.op, (ast.Pow, ast.LShift)) and (abs(b) > 64 or abs(a) > 1e6):
        return ()
    try:
        return (operate(a, b),)
    except (ArithmeticError, TypeError, ValueError):
        return ()


def literal(value):
    """Return the syntax of a value; None where it has none."""
    try:
        node = ast.parse(repr(value), mode="eval").body
    except SyntaxError:
        return None
    return node if constant(node) else None


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


class Decoys:
    """What makes the sets of one run. chance: a random.Random. words: as `vocabulary` returns them."""

    def __init__(self, chance, words):
        self.chance, self.words, self._chosen = chance, words, {}

    def choose(self, node, names, tolerance=0.0, within=False):
        """Return the Choice for an expected value; None where no other is certain to differ.

        names: the module's Names. tolerance: with which numbers are compared. within: the text is looked for in
        another, so others must not be in there either.
        """
        tolerance = max([tolerance] + [limit for limit in _tolerances(node, names)])
        known = (ast.dump(node), tolerance > 0, within)
        if known not in self._chosen:
            self._chosen[known] = self._choose(node, names, tolerance, within)
        return self._chosen[known]

    def singletons(self, value):
        """Return the Choice for what `is` compares with."""
        nodes = [literal(one) for one in self.chance.sample(_NOTHING, len(_NOTHING))]
        return Choice(nodes, [constant(one)[0] for one in nodes].index(value), 0)

    def _choose(self, node, names, tolerance, within):
        leaves = list(_leaves(node, (), names))
        if any(leaf is None for leaf in leaves):
            return None
        if within and not (leaves and type(leaves[0].value) is str and len(leaves[0].value) > 4):
            return None
        large = len(leaves) > LARGE or any(len(str(leaf.value)) > LARGE for leaf in leaves[:LARGE])
        ways = WAYS_OF_LARGE if large else WAYS
        if _is_empty(node) and not tolerance:
            return self._beside_nothing(node, ways)
        drawn = self._drawing(leaves, tolerance, within)
        for leaf, _, _ in drawn:  # the expected one is written as the others are
            node = _replaced(node, leaf.path, literal(leaf.value))
        nodes, values = [node], [evaluated(node, names)]
        if values == [None]:
            return None
        for _ in range(20 * ways if drawn else 0):
            if len(nodes) == ways:
                break
            other = node
            for leaf, draw, _ in drawn:
                other = other and _replaced(other, leaf.path, literal(draw()))
            value = evaluated(other, names) if other else None
            if other and _differs(other, value, nodes, values):
                nodes.append(other)
                values.append(value)
        if len(nodes) < 2:
            return None
        if len(nodes) == ways and not tolerance and not within and self.chance.random() < 0.25 and _empty(node):
            nodes[-1] = _empty(node)
        return self._shuffled(nodes, max([rare for _, _, rare in drawn]))

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

    def _drawing(self, leaves, tolerance, within):
        """Return what is altered: [(leaf, function that draws a value, rare)]."""
        found = []
        for leaf in self.chance.sample(leaves, min(len(leaves), 40)):
            draw, size, rare = self._variation(leaf.value, tolerance, within)
            if draw is not None:
                found.append((size, len(found), leaf, draw, rare))
        # Those of which there are many first: a bool has one other.
        found.sort(key=lambda one: one[0] < WAYS)
        most = 2 if found and found[0][0] >= WAYS else 6
        return [(leaf, draw, rare) for _, _, leaf, draw, rare in found[:most]]

    def _variation(self, value, tolerance, within):
        """Return (a function that draws from a value's class, how many there are, how rarely chance hits one)."""
        kind = type(value)
        if kind is bool:
            return (lambda: self.chance.random() < 0.5), 2, 0
        if value is None:
            return (lambda: self.chance.choice(_NOTHING)), len(_NOTHING), 0
        if kind in (int, float, complex):
            if tolerance and abs(value) < 100 * tolerance:
                return None, 0, 0
            return self._of_number(repr(value), tolerance or kind is not int)
        if kind is str:
            return self._of_text(value, within)
        if kind is bytes:
            draw, size, rare = self._of_text(value.decode("latin-1"), True)
            return (draw and (lambda: draw().encode("latin-1"))), size, rare
        return None, 0, 0

    def _of_number(self, text, leading):
        mantissa = text.split("e")[0]
        if re.match(r"\d(\.0)?$", text) and not (leading and text == "0"):
            places, digits = [0], "0123456789"
        else:
            places, digits = [i for i, sign in enumerate(mantissa) if sign in "123456789"], "123456789"
        if not places:
            return None, 0, 0
        chosen = places[:1] if leading else self.chance.sample(places, min(2, len(places)))
        rare = int(len(places) > 3)
        return self._redrawn(text, dict.fromkeys(chosen, digits), ast.literal_eval), len(digits) ** len(chosen), rare

    def _of_text(self, text, letters_alone):
        """Draw other words of the tests, or other letters and digits, in the same places."""
        words = [match for match in re.finditer("[A-Za-z]{3,}", text)]
        words = [match for match in words if len(self.words.get(style(match.group()), ())) > 2 * WAYS]
        digits = [i for i, sign in enumerate(text) if sign in string.digits]
        if words and not letters_alone and (not digits or self.chance.random() < 0.5):
            word = self.chance.choice(words)
            known = self.words[style(word.group())]
            return (lambda: text[: word.start()] + self.chance.choice(known) + text[word.end() :]), len(known), 0
        if digits and not letters_alone:
            chosen = self.chance.sample(digits, min(2, len(digits)))
            return (
                self._redrawn(text, dict.fromkeys(chosen, string.digits), str),
                10 ** len(chosen),
                int(len(digits) > 3),
            )
        for signs in (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation):
            places = [i for i, sign in enumerate(text) if sign in signs]
            if places:
                chosen = self.chance.sample(places, min(3, len(places)))
                size = len(signs) ** len(chosen)
                return self._redrawn(text, dict.fromkeys(chosen, signs), str), size, 2 * (len(chosen) == 3)
        if text:
            place = self.chance.randrange(len(text))
            signs = (
                " \t\n" if text[place].isspace() else "".join(chr(ord(text[place]) // 16 * 16 + i) for i in range(16))
            )
            if text[place] in signs and signs.isprintable() == text[place].isprintable():
                return self._redrawn(text, {place: signs}, str), len(signs), 0
        return None, 0, 0

    def _redrawn(self, text, signs, read):
        def draw():
            return read("".join(self.chance.choice(signs[i]) if i in signs else sign for i, sign in enumerate(text)))

        return draw


def alterable(node, names):
    """Return whether a value is written as a literal that has others of its kind."""
    leaves = list(_leaves(node, (), names))
    return None not in leaves and (_is_empty(node) or any(leaf.value is not None for leaf in leaves))


def _leaves(node, path, names):
    """Yield the literals of an expected value, by their place; None for what may not be evaluated several times."""
    value = constant(node)
    if value:
        yield Leaf(path, value[0])
        return
    kind = type(node).__name__
    fields = {"List": ["elts"], "Tuple": ["elts"], "Set": ["elts"], "Dict": ["values", "keys"]}.get(kind)
    if kind == "Call":
        if not _is_pure(node, names):
            yield None
            return
        fields = ["args"] if names.full(node.func) == APPROX else ["args", "keywords"]
    elif kind == "JoinedStr":
        if any(
            type(part).__name__ == "FormattedValue" and not isinstance(part.value, ast.Name) for part in node.values
        ):
            yield None
            return
        fields = ["values"]
    elif kind == "keyword":
        fields = ["value"]
    elif kind in ("Name", "Attribute", "FormattedValue"):
        if kind == "Attribute" and dotted(node) is None:
            yield None
        return
    if fields is None:
        yield None
        return
    for field in fields:
        inner = getattr(node, field)
        for i, child in enumerate(inner) if isinstance(inner, list) else [(None, inner)]:
            if child is None or isinstance(child, ast.Starred):
                yield None
                return
            for leaf in _leaves(child, path + ((field, i),), names):
                yield leaf


def _is_pure(call, names):
    name = names.full(call.func)
    if name == APPROX:
        limits = [keyword.value for keyword in call.keywords] + call.args[1:]
        return len(call.args) >= 1 and all(
            constant(limit) and type(constant(limit)[0]) in (int, float) and abs(constant(limit)[0]) <= _TOLERANCE
            for limit in limits
        )
    shown = (ast.List, ast.Tuple, ast.Set, ast.Dict)
    if name in _CONTAINERS:
        return all(
            isinstance(one, shown) or (constant(one) and type(constant(one)[0]) in (str, bytes)) for one in call.args
        )
    return name in PURE


def dotted(node):
    """Return the text of a name with its attributes; None for other syntax."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return inner and inner + "." + node.attr
    return None


def _tolerances(node, names):
    """Yield the absolute tolerances with which an expected value compares."""
    for call in walk(node):
        if isinstance(call, ast.Call) and names.full(call.func) == APPROX:
            yield 1e-12
            for limit in call.args[2:] + [keyword.value for keyword in call.keywords if keyword.arg == "abs"]:
                yield float((constant(limit) or (0,))[0])


def _replaced(node, path, new):
    """Return a copy of a tree with another node at a path; what is not on the path is shared."""
    if new is None:
        return None
    if not path:
        return ast.copy_location(new, node)
    (field, i), rest = path[0], path[1:]
    other = copy.copy(node)
    if i is None:
        setattr(other, field, _replaced(getattr(node, field), rest, new))
    else:
        inner = list(getattr(node, field))
        inner[i] = _replaced(inner[i], rest, new)
        setattr(other, field, inner)
    return other


class Names:
    """What the names of a module stand for, as far as its imports say. bound: names that it binds itself."""

    def __init__(self, imported, bound):
        self._imported, self._bound = imported, bound

    def full(self, node):
        """Return the full name of what is called, `decimal.Decimal`; None where it isn't known."""
        text = dotted(node)
        head, _, rest = (text or "").partition(".")
        if head in self._bound or not head:
            return None
        return self._imported.get(head, "builtins." + head) + (rest and "." + rest)


class Unknown(Exception):
    """A value that only the module itself can tell."""


def evaluated(node, names):
    """Return (value,); () where it is the module's to tell, None where it has none, as the 31st of February."""
    try:
        return (_value(node, names),)
    except Unknown:
        return ()
    except Exception:
        return None


def _value(node, names):
    value = constant(node)
    if value:
        return value[0]
    kind = type(node).__name__
    if kind in ("List", "Tuple", "Set"):
        return {"List": list, "Tuple": tuple, "Set": set}[kind]([_value(one, names) for one in node.elts])
    if kind == "Dict":
        return {_value(key, names): _value(one, names) for key, one in zip(node.keys, node.values)}
    if kind == "Call" and names.full(node.func) in PURE:
        options = {keyword.arg: _value(keyword.value, names) for keyword in node.keywords}
        return PURE[names.full(node.func)](*[_value(one, names) for one in node.args], **options)
    raise Unknown


def _differs(node, value, nodes, values):
    """Return whether a literal can be told from all others, also where order and case don't matter."""
    if value is None:  # it can't be evaluated, as the 31st of February
        return False
    if value == ():
        return ast.dump(node) not in [ast.dump(other) for other in nodes]
    return all(
        type(value[0]) is type(other[0]) and value[0] != other[0] and _signs(value[0]) != _signs(other[0])
        for other in values
        if other
    )


def _signs(value):
    """Return what is left of a value without order and case."""
    return "".join(sorted(repr(value).casefold()))


def _is_empty(node):
    value = constant(node)
    if value:
        return value[0] in ("", b"") and not isinstance(value[0], (int, float))
    return (isinstance(node, (ast.List, ast.Tuple)) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _empty(node):
    """Return the empty literal of a node's type; None where it has none."""
    value = constant(node)
    if value and type(value[0]) in (str, bytes):
        return literal(type(value[0])())
    kinds = {"List": "[]", "Tuple": "()", "Dict": "{}"}
    text = kinds.get(type(node).__name__)
    return text and ast.copy_location(ast.parse(text, mode="eval").body, node)
