"""The text of a module; decoys are put into it without moving a line."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings

_FIRST = re.compile(r"#!|#.*coding[:=]")
"""Comments of the first two lines that say how to read or to run a file."""


class Unplantable(ValueError):
    """A module that this Python can't read as its text."""


class Text:
    """A module's source and its syntax. Raises Unplantable.

    Edits are noted by their places in the source and made by `edited`; they must not overlap.
    """

    def __init__(self, data: bytes, path: str) -> None:
        try:
            self._encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            text = data.decode(self._encoding)
            if "\r" in text.replace("\r\n", ""):
                raise ValueError("it has line ends of its own kind")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text, path)
            self._data = _without_comments(text).encode()
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, tokenize.TokenError) as error:
            raise Unplantable(str(error) or "it is nested too deeply") from None  # MemoryError: the parser's own stack
        self._starts = [0]
        for line in self._data.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._edits: list[tuple[int, int, bytes]] = []

    def segment(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """Return the source of a node."""
        start, end = self._span(node)
        return self._data[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Put text in place of a node. The text ends with a bracket, in front of which missing lines fit."""
        start, end = self._span(node)
        lines = self._data[start:end].count(b"\n") - text.count("\n")
        self._edits.append((start, end, (text[:-1] + "\n" * lines + text[-1]).encode()))

    def append(self, node: ast.stmt, text: str) -> None:
        """Put a statement after a simple one, on its last line."""
        _, end = self._span(node)
        self._edits.append((end, end, f"; {text}".encode()))

    def begin(self, text: str) -> None:
        """Put a statement in front of the module's first simple one, after its docstring and `__future__` imports."""
        for node in self.tree.body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            first = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            if not is_docstring and not first and not hasattr(node, "body") and not isinstance(node, ast.Match):
                start, _ = self._span(node)
                self._edits.append((start, start, f"{text};".encode()))
                return

    def edited(self) -> bytes:
        """Return the source with all edits, in its own encoding. What that lacks stands in literals, and is escaped."""
        parts, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            parts += [self._data[at:start], text]
            at = end
        return b"".join([*parts, self._data[at:]]).decode().encode(self._encoding, "backslashreplace")

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + end_column


def _without_comments(text: str) -> str:
    """Return a source with blanks in place of its comments: they may tell the expected value."""
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not (token.start[0] <= 2 and _FIRST.match(token.string)):
            (row, column), (_, end) = token.start, token.end
            line = lines[row - 1]
            blank = " " * len(line[column:end].encode())
            lines[row - 1] = line[:column] + blank + line[end:]
    return "\n".join(lines)
