"""Literals as they are written: what they are worth, of which parts, and what may be called with them."""

from __future__ import annotations

import ast
import collections
import copy
import datetime
import decimal
import fractions
import pathlib
import uuid

LARGE = 2000
"""Literals with more characters or parts are large."""

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
_KNOWN = {"datetime.timezone.utc": datetime.UTC, "datetime.UTC": datetime.UTC}
"""Names of which the value is known wherever they are imported."""
APPROX = "pytest.approx"
_TOLERANCE = 0.05

Leaf = collections.namedtuple("Leaf", "path value")
_ENDS = frozenset((ast.Name, ast.Constant, ast.alias, ast.Pass))
"""Syntax that has no other below it."""
_LEAVES = frozenset((int, str, type(None), float, complex, bytes, bool, tuple, type(Ellipsis)))
_LEAVES |= {ast.Load, ast.Store, ast.Del}
"""What stands in syntax and is none, or is passed over."""


def walk(node):
    """Return a node and all below it, in no order; not what says whether a name is read or written."""
    found = [node]
    for one in found:
        if type(one) not in _ENDS:
            found += children(one)
    return found


def children(node):
    """Return the nodes right below one, but what says whether a name is read or written."""
    found = []
    for field in node._fields:
        child = getattr(node, field, None)
        kind = type(child)
        if kind is list:
            found += [other for other in child if type(other) not in _LEAVES]
        elif kind not in _LEAVES:
            found.append(child)
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
    if type(value) in (str, bytes, bool, type(None)) or (type(value) is int and value >= 0):
        return ast.Constant(value)
    try:
        node = ast.parse(repr(value), mode="eval").body
    except SyntaxError:
        return None
    return node if constant(node) else None


def alterable(node, names):
    """Return whether a value is written as a literal that has others of its kind."""
    leaves = list(leaves_of(node, (), names))
    return None not in leaves and (is_empty(node) or any(leaf.value is not None for leaf in leaves))


def leaves_of(node, path, names):
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
            for leaf in leaves_of(child, path + ((field, i),), names):
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
    return name in PURE and (name in _CONTAINERS or not _is_given_unknown(call, names))


def _is_given_unknown(call, names):
    """Return whether a call takes what only the module can tell: other literals beside it might be refused."""
    given = call.args + [keyword.value for keyword in call.keywords]
    called = {id(one.func) for arg in given for one in walk(arg) if isinstance(one, ast.Call)}
    heads = {id(one.value) for arg in given for one in walk(arg) if isinstance(one, ast.Attribute)}
    for one in [one for arg in given for one in walk(arg)]:
        if isinstance(one, (ast.Name, ast.Attribute)) and id(one) not in called | heads:
            if names.full(one) not in _KNOWN:
                return True
    return False


def dotted(node):
    """Return the text of a name with its attributes; None for other syntax."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return inner and inner + "." + node.attr
    return None


def last_name(node):
    """Return the last part of the name of a decorator, called or not; "?" for other syntax."""
    return (dotted(getattr(node, "func", node)) or "?").split(".")[-1]


def tolerances(node, names):
    """Yield the absolute tolerances with which an expected value compares."""
    for call in walk(node):
        if isinstance(call, ast.Call) and names.full(call.func) == APPROX:
            yield 1e-12
            for limit in call.args[2:] + [keyword.value for keyword in call.keywords if keyword.arg == "abs"]:
                yield float((constant(limit) or (0,))[0])


def replaced(node, path, new):
    """Return a copy of a tree with another node at a path; what is not on the path is shared."""
    if new is None:
        return None
    if not path:
        return ast.copy_location(new, node)
    (field, i), rest = path[0], path[1:]
    other = copy.copy(node)
    if i is None:
        setattr(other, field, replaced(getattr(node, field), rest, new))
    else:
        inner = list(getattr(node, field))
        inner[i] = replaced(inner[i], rest, new)
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
    if kind in ("Name", "Attribute") and names.full(node) in _KNOWN:
        return _KNOWN[names.full(node)]
    if kind == "Call" and names.full(node.func) in PURE:
        options = {keyword.arg: _value(keyword.value, names) for keyword in node.keywords}
        return PURE[names.full(node.func)](*[_value(one, names) for one in node.args], **options)
    raise Unknown


def is_empty(node):
    value = constant(node)
    if value:
        return value[0] in ("", b"") and not isinstance(value[0], (int, float))
    return (isinstance(node, (ast.List, ast.Tuple)) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)
