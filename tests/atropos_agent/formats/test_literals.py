"""Python's strings, read without an interpreter."""

import pytest

from atropos_agent.formats.literals import Literals, python_text

VALUES = Literals(python_text, lambda text, start: python_text(text, start) or ("", start))


@pytest.mark.parametrize("value", ["a\nb\t\"'\\", [1, [True, None]], {"a": {"b": -0.5}}, [], {}, 10**30, "漢字"])
def test_what_python_writes_is_read(value):
    assert VALUES.read(f" {value!r} rest", 0) == (value, len(repr(value)) + 1)


@pytest.mark.parametrize(
    "text",
    ["", "open('x')", "f'x'", "b'x'", '"a', '"a\nb"', '"\\x"', "[1,]", "[1 2]", "{1: 2", "0x1", "1.2.3", "[1e999]"],
)
def test_what_is_no_literal_is_refused(text):
    with pytest.raises(ValueError, match=r"value|string|comma|:|too large"):
        VALUES.read(text, 0)
