"""The text of a module: no line moves, and what is said of the expected values in it is gone."""

import ast

import pytest
from planted_modules import text_of

from envs.judging.decoys.text import Text, Unplantable

SOURCES = {
    "one line": "def test_f(): assert f(3) == 6\n",
    "semicolons": "def test_f():\n    x = 3; assert f(x) == 6; assert f(1) == 2\n    y = 1;\n",
    "backslashes": "def test_f():\n    assert f(3) \\\n        == \\\n        6\n    z = 1\n",
    "brackets over lines": "def test_f():\n    assert (f(\n        3,\n    ) == (\n        6\n    ))\n    z = 1\n",
    "a list over lines": "def test_f():\n    assert f([1]) == [\n        1,\n    ], (\n        'n'\n    )\n    z = 1\n",
    "nested brackets": "def test_f():\n    assert ((f(((3)))) == ((6)))\n",
    "a walrus": "def test_f():\n    assert (x := f(3)) == 6\n    assert x == 6\n",
    "f-strings": "def test_f():\n    assert f'{f(3)}!' == '6!', f'{f(3)!r:>5}'\n",
    "texts over lines": 'def test_f():\n    assert f("""a\nb""") == """a\nba\nb"""\n    z = 1\n',
    "tabs": "def test_f():\n\tif 1:\n\t\tassert f(3) == 6\n\tassert f(1) == 2\n",
    "a form feed": "import os\n\x0c\ndef test_f():\n    assert f(3) == 6\n\x0c\ndef test_g():\n    pass\n",
    "CRLF": "def test_f():\r\n    assert f(3) == 6\r\n    assert f(\r\n        1) == 2\r\n",
    "a byte order mark": "\ufeffdef test_f():\n    assert f('\u00e9') == '\u00e9\u00e9'\n",
    "latin-1": "# coding: latin-1\ndef test_f():\n    assert f('\u00e9') == '\u00e9\u00e9'\n",
    "a sign that its encoding lacks": "# coding: koi8-r\ndef test_f():\n    assert f('\\xe9') == '\\xe9'\n",
    "wide letters": "def test_f():\n    \u00e9 = '\u65e5'; assert f(\u00e9) == '\u65e5\u65e5'; z = 1\n",
    "no end of line": "def test_f():\n    assert f(3) == 6",
    "a decorator and rows": "import pytest\n@pytest.mark.parametrize('x, want', [\n    (1, 2),\n    (3, 6),\n])\n"
    "def test_f(x, want):\n    assert f(x) == want\n",
    "methods over lines": "class A(T):\n    def test_f(self):\n        self.assertEqual(\n            f(3),\n"
    "            6,\n            msg='no',\n        )\n        z = 1\n",
    "a loop at the end": "def test_f():\n    for x in f([1]):\n        assert x == [1]\n\n\ndef test_g():\n    pass\n",
}


def encoded(name: str) -> bytes:
    return SOURCES[name].encode("latin-1" if name == "latin-1" else "utf-8")


@pytest.mark.parametrize("name", SOURCES)
def test_an_expected_value_stands_among_others_and_no_line_moves(name):
    before = encoded(name)
    after, key = text_of(before)
    assert b"__verifier__" in after and key.answers
    assert after.count(b"\n") == before.count(b"\n") and after.count(b"\r\n") == before.count(b"\r\n")
    assert after.startswith(b"\xef\xbb\xbf") == before.startswith(b"\xef\xbb\xbf")
    old, new = ast.parse(before), ast.parse(after)
    kept = (ast.FunctionDef, ast.ClassDef, ast.For, ast.If, ast.Assign)

    def lines(tree):
        return [(type(node), node.lineno) for node in ast.walk(tree) if isinstance(node, kept)]

    assert lines(old) == lines(new)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import f\n", "__verifier__.load();import f\n"),
        ('"""Text."""\nfrom __future__ import annotations\nimport f\n', "annotations\n__verifier__.load();import f\n"),
        ("class A:\n    pass\nx = (1,\n    2)\n", "pass\n__verifier__.load();x = (1,\n    2)\n"),
        ("if 1:\n    x = 1\n", "if 1:\n    x = 1\n"),
    ],
)
def test_a_module_says_first_that_it_is_run(source, expected):
    test = "def test_f():\n    assert f(3) == 6\n"
    data, _ = text_of(source + test)
    assert expected in data.decode()
    without, _ = text_of(source)
    assert without.decode() == source


def test_comments_are_blank_but_for_those_that_may_name_the_encoding():
    source = (
        "#!/usr/bin/python3\n# coding: utf-8\n# it is 6\ndef test_f():  # or 6\n    if '# 6':  # \u00e9\n        y\n"
    )
    data, _ = text_of(source)
    assert data.decode().splitlines()[:5] == [
        "#!/usr/bin/python3",
        "# coding: utf-8",
        " " * len("# it is 6"),
        "def test_f():  " + " " * len("# or 6"),
        "    if '# 6':  " + " " * len("# \u00e9".encode()),
    ]


def test_a_module_that_python_can_not_read_is_refused():
    for broken in (b"x = (\n", b"\0", b"# coding: none\n", b"assert " + b"not " * 9000 + b"1\n"):
        with pytest.raises(Unplantable, match=r"\w"):
            Text(broken, "/tests/test_a.py")
