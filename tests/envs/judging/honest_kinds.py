"""Kinds of tests as suites have them, odd ones among them. All are right: `f` doubles, and must be judged so."""

from kind_texts import HEAD, case, given, marked, plain
from language_kinds import LANGUAGE
from machine_kinds import MACHINE
from suite_kinds import SUITE

KINDS: dict[str, str] = {
    # What is compared
    "numbers": plain(
        "assert f(3) == 6",
        "assert f(0) == 0",
        "assert f(-3) == -6",
        "assert f(10**30) == 2 * 10**30",
        "assert f(0.5) == 1.0",
        "assert f(1e308) == float('inf')",
        "assert f(1e308) == 1e999",
        "assert f(1 + 2j) == 2 + 4j",
    ),
    "texts": plain(
        "assert f('ab') == 'abab'",
        "assert f('') == ''",
        "assert f('é日') == 'é日é日'",
        "assert f('\\udcff') == '\\udcff' * 2",
        "assert f(b'\\xff\\x00') == b'\\xff\\x00\\xff\\x00'",
        "assert f(bytearray(b'a')) == bytearray(b'aa')",
    ),
    "containers": plain(
        "assert f([1]) == [1, 1]",
        "assert f([]) == []",
        "assert f(()) == ()",
        "assert dict() == {}",
        "assert f([{'a': [1, (2, None)]}]) == [{'a': [1, (2, None)]}, {'a': [1, (2, None)]}]",
        "assert set(f([1, 2])) == {1, 2}",
        "assert frozenset(f('a')) == frozenset({'a'})",
    ),
    "values that calls make": plain(
        "assert f(Decimal('1.50')) == Decimal('3.0')",
        "assert f(Fraction(1, 3)) == Fraction(2, 3)",
        "assert f(dt.timedelta(1)) == dt.timedelta(days=2)",
        "assert dt.date(2020, 1, f(14)) == dt.date(2020, 1, 28)",
        "assert Path('a') / f('b') == Path('a/bb')",
        "assert range(f(2)) == range(4)",
        "assert Counter(f('ab')) == Counter(a=2, b=2)",
        before="import datetime as dt\nfrom collections import Counter\nfrom decimal import Decimal\n"
        "from fractions import Fraction\nfrom pathlib import Path\n",
    ),
    "not a number": plain("x = float('nan')", "assert f(x) != f(x)"),
    "bool": plain("assert (f(1) == 2) == True  # noqa", "assert (f(1) > 2) is False"),
    "long text": plain("assert f('ab\\n' * 3000) == 'ab\\n' * 6000"),
    "dict with an expression": plain("x = f(2)", "assert {'x': x, 'y': 1} == {'x': x, 'y': 1}"),
    "approx": plain(
        "assert f(0.1) == pytest.approx(0.2)",
        "assert pytest.approx(0.2) == f(0.1)",
        "assert f(5.2) == pytest.approx(10, abs=1)",
        "assert f(50) == pytest.approx(110, rel=0.2)",
        "assert f([0.1]) == pytest.approx([0.1, 0.1])",
        "assert {'a': f(.1)} == pytest.approx({'a': .2})",
        "assert pytest.approx(100, abs=5) == f(51)",
    ),
    "types of the module": plain(
        "assert E(f(1)) == E.TWO",
        "assert D(f(1)) == D(2)",
        "assert P(f(1), 2) == (2, 2)",
        before="import enum\nfrom collections import namedtuple\nfrom dataclasses import dataclass\n"
        "class E(enum.Enum):\n    TWO = 2\n@dataclass\nclass D:\n    x: int\nP = namedtuple('P', 'x y')\n",
    ),
    "a type that raises at other types": plain(
        "assert Strict() == 6",
        before="class Strict:\n    __hash__ = None\n    def __eq__(self, other):\n        if type(other) is not int: "
        "raise TypeError\n        return f(3) == other\n",
    ),
    "mock.ANY": plain("assert f([1]) == [1, ANY]", before="from unittest.mock import ANY\n"),
    "f-string": plain("x = 3", "assert f'{f(x)} of {x}' == f'{x + x} of {x}'", "assert f('a') == f'{\"a\"}a'"),
    # How it is compared
    "a literal on the left": plain("assert 6 == f(3)"),
    "a message": plain("assert f(3) == 6, f'not {f(3)}'"),
    "and": plain("assert f(3) == 6 and f(1) == 2 and f(0) == 0"),
    "or": plain("assert f(3) == 7 or f(3) == 6"),
    "not": plain("assert not f(3) == 7", "assert not f(0)"),
    "a chain": plain("assert 6 == f(3) == 6", "assert 1 < f(1) <= 2"),
    "in": plain("assert 'hello' in f('hello')", "assert f(3) in (5, 6)", "assert 6 in [f(3)]"),
    "not in": plain("assert 'bye' not in f('hello')"),
    "is": plain("assert f(None) is None", before="from solution import f as g\ndef f(x): return g(x) if x else None\n"),
    "isinstance": plain("assert isinstance(f(3), int)", "assert len(f('ab')) == 4"),
    "all and any": plain("assert all(f(x) == x + x for x in range(5))", "assert any(f(x) == 4 for x in range(5))"),
    "walrus": plain("assert (x := f(3)) == 6 and x == 6"),
    "a name": plain("want = 6", "assert f(3) == want"),
    "locals()": plain("want = 6", "assert f(3) == locals()['want']"),
    "a loop over a table": plain("for x, want in [(1, 2), (2, 4)]:", "    assert f(x) == want"),
    "a loop that ends early": plain("for x in [1, 2]:", "    if x == 2:", "        break", "    assert f(x) == 2"),
    "an early return": plain("if f(1) == 2:", "    return", "assert False"),
    "a helper": plain("check(f(3), 6)", before="def check(got, want):\n    assert got == want\n"),
    "a nested function": plain("def inner(want):", "    assert f(3) == want", "inner(6)"),
    "a generator": plain("def inner():", "    yield 1", "    assert f(3) == 6", "assert list(inner()) == [1]"),
    "a lambda": plain("check = lambda: f(3) == 6  # noqa", "assert check() == True  # noqa"),
    # What fails on purpose
    "raises": plain("with pytest.raises(TypeError):", "    f(None) + 1"),
    "raises with a match": plain("with pytest.raises(ValueError, match='bad'):", "    raise ValueError('bad')"),
    "raises an assert": plain("with pytest.raises(AssertionError):", "    assert f(3) == 7"),
    "an assert that is caught": plain("try:", "    assert f(3) == 7", "except AssertionError:", "    pass"),
    "an assert in suppress": plain(
        "with contextlib.suppress(AssertionError):", "    assert f(3) == 7", before="import contextlib\n"
    ),
    "polling": plain(
        "for _ in range(9):",
        "    try:",
        "        assert next(n) == 5",
        "        break",
        "    except AssertionError:",
        "        pass",
        before="n = iter(range(9))\n",
    ),
    # Fixtures and parameters
    "parametrised": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), ('a', 'aa')])", "x, want", "assert f(x) == want"
    ),
    "parametrised with ids": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), (2, 4)], ids=['a', 'b'])", "x, want", "assert f(x) == want"
    ),
    "parametrised with a function for ids": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2)], ids=lambda v: 'v%d' % v)", "x, want", "assert f(x) == want"
    ),
    "parametrised twice": marked(
        "@pytest.mark.parametrize('x', [1])\n@pytest.mark.parametrize('want', [2])", "x, want", "assert f(x) == want"
    ),
    "parametrised by param": marked(
        "@pytest.mark.parametrize('x, want', [pytest.param(1, 2, id='one')])", "x, want", "assert f(x) == want"
    ),
    "parametrised with the same": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), (1, 2)])", "x, want", "assert f(x) == want"
    ),
    "parametrised and used": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2)])", "x, want", "assert f(x) == want", "assert want < 3"
    ),
    "parametrised by nothing": marked("@pytest.mark.parametrize('x', [])", "x", "assert f(x) == 2")
    + "\ndef test_b(): pass\n",
    "parametrised, and its name read": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2)])",
        "x, want, request",
        "assert f(x) == want",
        "assert request.node.name == 'test_it[1-2]'",
    ),
    "indirect": marked(
        "@pytest.mark.parametrize('x', [1], indirect=True)",
        "x",
        "assert x == 2",
        before="@pytest.fixture\ndef x(request): return f(request.param)\n",
    ),
    "a fixture that ends": given(
        "x", "assert f(x) == 6", before="@pytest.fixture\ndef x():\n    yield 3\n    assert f(1) == 2\n"
    ),
    "monkeypatch": given(
        "monkeypatch", "monkeypatch.setattr('time.time', lambda: 5)", "import time", "assert time.time() == 5"
    ),
    "patched builtins": plain(
        "with patch('builtins.open') as o:", "    assert open('x') is o()", before="from unittest.mock import patch\n"
    ),
    "capsys": given("capsys", "print(f('a'))", "assert capsys.readouterr().out == 'aa\\n'"),
    # Classes and unittest
    "a class": case("assert f(3) == 6", base="object"),
    "a nested class": HEAD
    + "class TestA:\n    class TestB:\n        def test_it(self):\n            assert f(3) == 6\n",
    "an inherited test": case("assert f(3) == self.x", base="object", inside="    x = 6\n")
    + "class TestB(TestIt):\n    x = 6\n",
    "assertEqual": case(
        "self.assertEqual(f(3), 6)", "self.assertEqual(6, f(3), 'said')", "self.assertEqual(f([1]), [1, 1])"
    ),
    "assertAlmostEqual": case("self.assertAlmostEqual(f(0.1), 0.2)", "self.assertAlmostEqual(f(.5), 1.04, delta=0.1)"),
    "assertIn": case("self.assertIn('hello', f('hello'))", "self.assertIn(3, [3])", "self.assertTrue(f(3) == 6)"),
    "assertRaises": case(
        "with self.assertRaises(TypeError):", "    f(None) + 1", "self.assertRaises(TypeError, sum, f(1))"
    ),
    "assertCountEqual": case("self.assertCountEqual(f([1, 2]), [2, 2, 1, 1])", "self.assertIsNone(f.__doc__)"),
    "subTest": case(
        "for x, want in [(1, 2), (2, 4)]:",
        "    with self.subTest(x=x, want=want):",
        "        self.assertEqual(f(x), want)",
    ),
    "setUp": case("self.assertEqual(f(self.x), 6)", inside="    def setUp(self):\n        self.x = 3\n"),
    "an own assertEqual": case(
        "self.assertEqual(f(3), 7)",
        inside="    def assertEqual(self, a, b):\n        if abs(a - b) > 1: raise self.failureException\n",
    ),
    "IsolatedAsyncioTestCase": case("self.assertEqual(f(3), 6)", base="unittest.IsolatedAsyncioTestCase").replace(
        "    def test_it", "    async def test_it"
    ),
    # Other processes, threads, loops
    "an assert in a thread": plain(
        "def check():",
        "    assert f(3) == 6",
        "t = threading.Thread(target=check)",
        "t.start()",
        "t.join()",
        before="import threading\n",
    ),
    "a forked process": plain(
        "p = multiprocessing.get_context('fork').Process(target=check, args=(3, 6))",
        "p.start()",
        "p.join()",
        "assert p.exitcode == 0",
        before="import multiprocessing\ndef check(x, want):\n    assert f(x) == want\n",
    ),
    "os.fork": plain(
        "child = os.fork()",
        "if not child:",
        "    os._exit(f(3))",
        "assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 6",
        before="import os\n",
    ),
    "hypothesis": HEAD + "from hypothesis import given, strategies as st\n@given(st.integers())\ndef test_it(x):\n"
    "    assert f(x) - x == x\n    assert f(3) == 6\n",
    "doctest": plain(
        "assert doctest.testmod().failed == 0",
        before='import doctest\ndef g():\n    """\n    >>> 1 + 1\n    2\n    """\n',
    ),
    # What a module may be
    "a future import": '"""Text."""\nfrom __future__ import annotations\n' + plain("x: int = 6", "assert f(3) == x"),
    "a skip": plain("pytest.skip('not here')") + "def test_b():\n    assert f(3) == 6\n",
    "a skip by a mark": marked("@pytest.mark.skipif(True, reason='x')", "", "assert 0")
    + "def test_b():\n    assert f(3) == 6\n",
    "a skip within a helper": plain("need()", before="def need():\n    pytest.skip('no')\n")
    + "def test_b():\n    assert f(3) == 6\n",
    "an expected failure": marked("@pytest.mark.xfail(reason='old')", "", "assert f(3) == 7")
    + "def test_b():\n    assert f(3) == 6\n",
    "an unexpected pass": marked("@pytest.mark.xfail", "", "assert f(3) == 6")
    + "def test_b():\n    assert f(3) == 6\n",
    "__all__ and __name__": plain(
        "assert __name__.endswith('kind_%d' % NUMBER)", "assert f(3) == 6", before="__all__ = ['test_it']\n"
    ),
    "signature": plain("assert list(inspect.signature(test_it).parameters) == []", before="import inspect\n"),
    "a decorator that keeps": marked(
        "@keep",
        "",
        "assert f(3) == 6",
        before="import functools\ndef keep(g):\n    @functools.wraps(g)\n    def run(): return g()\n    return run\n",
    ),
    "a decorator that tries again": marked(
        "@retry",
        "",
        "assert next(n) == 5",
        before="n = iter(range(9))\ndef retry(g):\n    def run():\n        while True:\n            try: return g()\n"
        "            except AssertionError: pass\n    return run\n",
    ),
    "a test bound twice": plain("assert f(3) == 6") + "def test_it():\n    assert f(1) == 2\n",
    "match": plain("match f(3):", "    case 6:", "        assert f(1) == 2", "    case _:", "        assert False"),
    "two asserts on a line": plain("assert f(3) == 6; assert f(1) == 2"),
    "no assert": plain("f(3)"),
    "a message that says it": plain("assert f(3) == 6, 'it should be 6'", "assert f(1), 'true'"),
    "a message that is read": plain(
        "with pytest.raises(AssertionError, match='it is'):", "    assert f(3) == 7, 'it is ' + str(f(3))"
    ),
    "importorskip of what there is": "import pytest\njson = pytest.importorskip('json')\n" + plain("assert f(3) == 6"),
    "a row that is skipped": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), pytest.param(2, 4, marks=pytest.mark.skip), (3, 6)])",
        "x, want",
        "assert f(x) == want",
    ),
    "a row that fails as expected": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), pytest.param(2, 5, marks=pytest.mark.xfail)])",
        "x, want",
        "assert f(x) == want",
    )
    + "\ndef test_b():\n    assert f(3) == 6\n",
    "files in a working directory of its own": given(
        "tmp_path, monkeypatch",
        "monkeypatch.chdir(tmp_path)",
        "Path('x').write_text(f('a'))",
        "assert Path('x').read_text() == 'aa'",
        before="from pathlib import Path\n",
    ),
    "latin-1": "# coding: latin-1\n" + plain("assert f('\xe9') == '\xe9\xe9'"),
    **MACHINE,
    **SUITE,
    **LANGUAGE,
}
"""Modules of tests by what is odd of them. Some hold tests that are skipped, or fail as they should."""
