"""Bugs to plant: small changes of Python source, made as text splices to keep its formatting.

`find_mutations` lists every place in the bodies of functions with an applicable operator; a
mutation replaces one span of the source. A few of them don't parse, or change only the text:
`is_bug` finds these, at the price of parsing. Not covered: code outside functions, f-strings (their
inner positions are wrong before Python 3.12), and changes across files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Splice = tuple[int, int, str]
"""Start and end in bytes of the UTF-8 source, and the text in its place."""

_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: (r"<(?!=)", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">(?!=)", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"(?<!\*)\*(?!\*)", "+"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "//"),
}
_SIBLINGS = {
    **{"lstrip": "rstrip", "startswith": "endswith", "find": "rfind", "split": "rsplit", "partition": "rpartition"},
    **{"min": "max", "any": "all", "append": "insert", "lower": "upper", "index": "rindex", "isdigit": "isalpha"},
}
_RENAMED = _SIBLINGS | {new: old for old, new in _SIBLINGS.items() if old != "append"}
_RENAMED.pop("append")
_EXCEPTIONS = {
    **{"ValueError": "KeyError", "KeyError": "IndexError", "IndexError": "KeyError", "TypeError": "ValueError"},
    **{"AttributeError": "KeyError", "StopIteration": "IndexError", "OSError": "ValueError"},
}
_LITERALS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One planted bug.

    start, end: the span replaced by `text`, in bytes of the UTF-8 source.
    function: qualified name of the function around it. line: of its start, from 1.
    """

    operator: str
    start: int
    end: int
    text: str
    function: str
    line: int


class Source:
    """A module's text and syntax tree, with positions in bytes. Raises SyntaxError."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101 - parsed, so it has both
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def line_start(self, position: int) -> int:
        return self.data.rfind(b"\n", 0, position) + 1

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def line_of(self, position: int) -> int:
        return self.data.count(b"\n", 0, position) + 1

    def between(self, left: ast.expr, right: ast.expr, pattern: str, text: str) -> Iterator[Splice]:
        """Replace the text between two expressions, if it is plain: no comment, no second match."""
        begin = self.end(left)
        gap = self.data[begin : self.start(right)].decode()
        found = list(re.finditer(pattern, gap))
        if len(found) == 1 and "#" not in gap:
            yield begin + len(gap[: found[0].start()].encode()), begin + len(gap[: found[0].end()].encode()), text

    def whole_lines(self, node: ast.stmt) -> Iterator[Splice]:
        """Remove a statement alone on its lines."""
        start, end = self.line_start(self.start(node)), self.end(node)
        newline = self.data.find(b"\n", end)
        rest = self.data[end : newline if newline >= 0 else len(self.data)].strip()
        if not self.data[start : self.start(node)].strip() and (not rest or rest.startswith(b"#")):
            yield start, newline + 1 if newline >= 0 else len(self.data), ""


def cmp_swap(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `<` to `<=`, `==` to `!=`, `in` to `not in`, and back."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from source.between(node.left, node.comparators[0], *_COMPARE[type(node.ops[0])])


def bool_swap(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `and` to `or`, and back."""
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from source.between(node.values[0], node.values[1], rf"\b{old}\b", new)


def drop_operand(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `a and b` to `a`: forget a condition."""
    if isinstance(node, ast.BoolOp):
        kept, last = node.values[-2:]
        if source.data[source.end(kept) : source.start(last)].split() in ([b"and"], [b"or"]):
            yield source.end(kept), source.end(last), ""


def drop_not(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `not a` to `a`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.start(node), source.end(node), source.text(node.operand)


def off_by_one(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Make an integer one too large."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1000:
        yield source.start(node), source.end(node), str(node.value + 1)


def arith_swap(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `+` to `-`, `//` to `*` and so on, if neither side is a text or a collection."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        sides = (node.left, node.right)
        numbers = [side for side in sides if not isinstance(side, _LITERALS) or _is_number(side)]
        if len(numbers) == 2:
            yield from source.between(node.left, node.right, *_ARITHMETIC[type(node.op)])


def drop_if_branch(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Remove an `if` without `else`, with its body."""
    for body in _bodies(node):
        for child in body:
            if isinstance(child, ast.If) and not child.orelse and len(body) > 1:
                yield from source.whole_lines(child)


def drop_else(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Remove the `else` or `elif` of an `if`."""
    if isinstance(node, ast.If) and node.orelse:
        yield source.end(node.body[-1]), source.end(node), ""


def drop_stmt(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Remove a call for its effect, or an update of a variable."""
    for body in _bodies(node):
        for child in body:
            effect = isinstance(child, ast.Expr) and isinstance(child.value, ast.Call)
            if (effect or isinstance(child, ast.AugAssign)) and len(body) > 1:
                yield from source.whole_lines(child)


def swap_args(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `f(a, b)` to `f(b, a)`."""
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        first, second = node.args[:2]
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            gap = source.data[source.end(first) : source.start(second)].decode()
            if gap.strip() == ",":
                yield source.start(first), source.end(second), source.text(second) + gap + source.text(first)


def wrong_default(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change a default value of a parameter."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if isinstance(default, ast.Constant) and type(default.value) in (bool, int):
                changed = not default.value if type(default.value) is bool else int(str(default.value)) + 1
                yield source.start(default), source.end(default), str(changed)


def continue_break(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `continue` to `break`, and back."""
    if isinstance(node, ast.Continue | ast.Break):
        yield source.start(node), source.end(node), "break" if isinstance(node, ast.Continue) else "continue"


def slice_shift(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Make a non-constant bound of a slice one too large."""
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if isinstance(bound, ast.Name | ast.Attribute | ast.Call):
                yield source.end(bound), source.end(bound), " + 1"


def branch_swap(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Change `a if c else b` to `b if c else a`."""
    if isinstance(node, ast.IfExp):
        body, other = source.text(node.body), source.text(node.orelse)
        middle = source.data[source.end(node.body) : source.start(node.orelse)].decode()
        if middle.count("(") == middle.count(")"):
            yield source.start(node.body), source.end(node.orelse), other + middle + body


def sibling_call(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Replace a function or method by one of similar name and use: `lstrip` to `rstrip`, `min` to `max`."""
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in _RENAMED:
            yield source.end(called) - len(name), source.end(called), _RENAMED[name]


def other_exception(node: ast.AST, source: Source) -> Iterator[Splice]:
    """Make an `except` clause catch something else, or fewer things."""
    if isinstance(node, ast.ExceptHandler):
        caught = node.type
        if isinstance(caught, ast.Name) and caught.id in _EXCEPTIONS:
            yield source.start(caught), source.end(caught), _EXCEPTIONS[caught.id]
        if isinstance(caught, ast.Tuple) and len(caught.elts) > 1:
            yield source.start(caught), source.end(caught), source.text(caught.elts[0])


OPERATORS: dict[str, Callable[[ast.AST, Source], Iterator[Splice]]] = {
    operator.__name__: operator
    for operator in (
        *(cmp_swap, bool_swap, drop_operand, drop_not, off_by_one, arith_swap, drop_if_branch, drop_else),
        *(drop_stmt, swap_args, wrong_default, continue_break, slice_shift, branch_swap, sibling_call),
        other_exception,
    )
}


def find_mutations(text: str) -> list[Mutation]:
    """Return every candidate of a module, in the order of its source; none if it doesn't parse."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError):
        return []
    found: dict[Splice, Mutation] = {}
    for function, node in _in_functions(source.tree, ()):
        for name, operator in OPERATORS.items():
            for start, end, new in operator(node, source):
                found.setdefault((start, end, new), Mutation(name, start, end, new, function, source.line_of(start)))
    return [found[splice] for splice in sorted(found)]


def is_bug(text: str, mutation: Mutation) -> bool:
    """Return whether the mutated source parses into another syntax tree."""
    try:
        return ast.dump(ast.parse(apply_mutations(text, [mutation]))) != ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return False


def apply_mutations(text: str, mutations: Sequence[Mutation]) -> str:
    """Return the source with all of them. Raises ValueError when two overlap."""
    data = text.encode()
    last = len(data)
    for mutation in sorted(mutations, key=lambda one: (one.start, one.end), reverse=True):
        if mutation.end > last:
            raise ValueError("the mutations overlap")
        data = data[: mutation.start] + mutation.text.encode() + data[mutation.end :]
        last = mutation.start
    return data.decode()


def _in_functions(node: ast.AST, names: tuple[str, ...], inside: bool = False) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes in functions, but for annotations and decorators, each with its function's qualified name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names = (*names, node.name)
        yield ".".join(names), node
        children: list[ast.AST] = [*node.body]
        inside = True
    elif isinstance(node, ast.ClassDef):
        names, children = (*names, node.name), [*node.body]
    elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        return
    else:
        if inside:
            yield ".".join(names), node
        children = [child for child in ast.iter_child_nodes(node) if not _is_annotation(node, child)]
    for child in children:
        yield from _in_functions(child, names, inside)


def _is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and child is node.annotation


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)
