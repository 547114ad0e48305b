"""Literals as they are written: their values, their parts, and the calls that may take them."""

from __future__ import annotations

import ast
import collections
import copy
import datetime
import decimal
import fractions
import pathlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

_CONTAINERS: dict[str, Callable[..., Any]] = {
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
PURE: dict[str, Callable[..., Any]] = {
    **_CONTAINERS,
    "builtins.range": range,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.str": str,
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
}
"""Callables that may be called with other literals, by their full names."""
APPROX = "pytest.approx"
_TOLERANCE = 0.05
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)

Path = tuple[tuple[str, int | None], ...]
"""The way down to a node: the fields, and the places in list fields."""


class Leaf(NamedTuple):
    """A literal in an expected value."""

    path: Path
    value: Any


def constant(node: ast.AST | None) -> tuple[Any, ...]:
    """Return (its value,) for a literal that is no container, with or without a sign; () for other syntax."""
    if isinstance(node, ast.Constant):
        return () if node.value is Ellipsis else (node.value,)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = constant(node.operand)
        if value and type(value[0]) in (int, float):
            return (-value[0] if isinstance(node.op, ast.USub) else value[0],)
    return ()


def leaves_of(node: ast.AST, path: Path, names: Names) -> Iterator[Leaf | None]:
    """Yield the literals of an expected value, by their place; None for syntax that may not be evaluated several
    times."""
    value = constant(node)
    if value:
        yield Leaf(path, value[0])
        return
    fields = _fields(node, names)
    if fields is None:
        yield None
        return
    for field in fields:
        inner = getattr(node, field)
        for i, child in enumerate(inner) if isinstance(inner, list) else [(None, inner)]:
            if child is None or isinstance(child, ast.Starred):
                yield None
                return
            yield from leaves_of(child, (*path, (field, i)), names)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.List: ("elts",),
    ast.Tuple: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("values", "keys"),
    ast.keyword: ("value",),
    ast.Name: (),
}
"""Fields with literals in syntax that may be evaluated several times."""


def _fields(node: ast.AST, names: Names) -> tuple[str, ...] | None:
    """Return the fields of a node that hold literals; None if it may not be evaluated several times."""
    if isinstance(node, ast.Call):
        if not _is_pure(node, names):
            return None
        return ("args",) if names.full(node.func) == APPROX else ("args", "keywords")
    if isinstance(node, ast.Attribute):
        return None if dotted(node) is None else ()
    return _FIELDS.get(type(node))


def _is_pure(call: ast.Call, names: Names) -> bool:
    name = names.full(call.func)
    if name == APPROX:
        limits = [constant(one) for one in [*(keyword.value for keyword in call.keywords), *call.args[1:]]]
        return len(call.args) >= 1 and all(
            limit and type(limit[0]) in (int, float) and abs(limit[0]) <= _TOLERANCE for limit in limits
        )
    if name in _CONTAINERS:
        return all(isinstance(one, _DISPLAYS) or _is_text(constant(one)) for one in call.args)
    return name in PURE and bool(evaluated(call, names))  # of the module's own values others might be refused


def _is_text(value: tuple[Any, ...]) -> bool:
    return bool(value) and type(value[0]) in (str, bytes)


def dotted(node: ast.AST) -> str | None:
    """Return the text of a name with its attributes; None for other syntax."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return None


def last_name(node: ast.AST) -> str:
    """Return the last part of the name of a decorator, called or not; "?" for other syntax."""
    return (dotted(getattr(node, "func", node)) or "?").split(".")[-1]


def tolerances(node: ast.AST, names: Names) -> Iterator[float]:
    """Yield the absolute tolerances of an expected value's comparisons."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and names.full(call.func) == APPROX:
            yield 1e-12
            for limit in call.args[2:] + [keyword.value for keyword in call.keywords if keyword.arg == "abs"]:
                yield float((constant(limit) or (0,))[0])


def replaced(node: ast.expr, path: Path, new: ast.expr) -> ast.expr:
    """Return a copy of a tree with another node at a path; nodes off the path are shared."""
    if not path:
        return new
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
    """The meanings of a module's names, as far as its imports say. bound: names that it binds itself."""

    def __init__(self, imported: Mapping[str, str], bound: Collection[str]) -> None:
        self._imported, self._bound = imported, bound

    def full(self, node: ast.AST) -> str | None:
        """Return the full name of a callee, `decimal.Decimal`; None if it isn't known."""
        head, _, rest = (dotted(node) or "").partition(".")
        if head in self._bound or not head:
            return None
        whole = self._imported.get(head, f"builtins.{head}")
        return f"{whole}.{rest}" if rest else whole


class NotConstant(Exception):
    """A value that only the module itself can tell."""


def evaluated(node: ast.expr, names: Names) -> tuple[Any, ...] | None:
    """Return (value,); () if it is the module's to tell, None if it has none, as the 31st of February."""
    try:
        return (_value(node, names),)
    except NotConstant:
        return ()
    except Exception:  # whatever the types of PURE raise
        return None


def _value(node: ast.expr | None, names: Names) -> Any:
    value = constant(node)
    if value:
        return value[0]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        kind = list if isinstance(node, ast.List) else tuple if isinstance(node, ast.Tuple) else set
        return kind([_value(one, names) for one in node.elts])
    if isinstance(node, ast.Dict):
        return {_value(key, names): _value(one, names) for key, one in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.Call):
        name = names.full(node.func)
        if name in PURE:
            options: dict[Any, Any] = {one.arg: _value(one.value, names) for one in node.keywords}
            return PURE[name](*[_value(one, names) for one in node.args], **options)
    raise NotConstant
