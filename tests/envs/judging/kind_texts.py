"""Modules of tests as texts: one test each, of a function `f` of solution.py."""

HEAD = "import pytest, unittest\nfrom solution import f\n\n"


def plain(*lines: str, before: str = "") -> str:
    """A module with one test."""
    return HEAD + before + "def test_it():\n" + "".join(f"    {line}\n" for line in lines)


def given(argument: str, *lines: str, before: str = "") -> str:
    """A module with one test that takes fixtures."""
    return plain(*lines, before=before).replace("test_it()", f"test_it({argument})")


def case(*lines: str, before: str = "", base: str = "unittest.TestCase", inside: str = "") -> str:
    """A module with one TestCase."""
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEAD}{before}class TestIt({base}):\n{inside}    def test_it(self):\n{body}"


def marked(mark: str, arguments: str, *lines: str, before: str = "") -> str:
    return given(arguments, *lines).replace("def test_it", f"{before}{mark}\ndef test_it")
