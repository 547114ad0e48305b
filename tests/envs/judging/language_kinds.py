"""Kinds of tests by what they make of the language, its library and their runner."""

from kind_texts import HEAD, case, marked, plain

LANGUAGE: dict[str, str] = {
    "ternary": plain("assert f(3) == (6 if f(1) == 2 else 7)"),
    "tuple of calls": plain("assert (f(3), f(1)) == (6, 2)", "a, *b = f([1, 2])", "assert b == [2, 1, 2]"),
    "starred": plain("want = [1, 2]", "assert f([1, 2]) == [*want, *want]", "assert {**{'a': f(1)}} == {**{'a': 2}}"),
    "hex": plain("assert f(0x3) == 0x6 == 0b110 == 0o6", "assert f(1_000) == 2_000", "assert f(3) == --6"),
    "ellipsis": plain("assert f([...]) == [..., ...]"),
    "finally": plain("try:", "    x = f(1)", "finally:", "    assert f(3) == 6"),
    "a while": plain("i = 0", "while i < 3:", "    i += 1", "    assert f(i) == i * 2", "else:", "    assert i == 3"),
    "except star": plain(
        "try:",
        "    raise ExceptionGroup('g', [ValueError(f(1))])",
        "except* ValueError as e:",
        "    assert e.exceptions[0].args == (2,)",
    ),
    "file beside": plain(
        "here = pathlib.Path(__file__)",
        "assert here.name == 'test_kind_NUMBER.py'",
        "assert f(3) == 6",
        before="import pathlib\n",
    ),
    "source": plain("assert 'x + x' in inspect.getsource(f)", "assert f(3) == 6", before="import inspect\n"),
    "addCleanup": case("self.addCleanup(lambda: self.assertEqual(f(1), 2))", "self.assertEqual(f(3), 6)"),
    "assertEqual message": case(
        "self.assertEqual(f(3), 6, msg='six')", "self.assertEqual(first=f(3), second=6)", "self.assertNotEqual(f(3), 7)"
    ),
    "patch object class": HEAD
    + "from unittest import mock\nimport solution\n@mock.patch.object(solution, 'g', create=True)\nclass TestIt(unittest.TestCase):\n    def test_it(self, g):\n        self.assertEqual(f(3), 6)\n",
    "rlimit": plain(
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))",
        "assert f(3) == 6",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))",
        before="import resource\n",
    ),
    "triple quotes": plain('assert f("a\\n") == """a', "a", '"""').replace("    a\n", "a\n").replace('    """', '"""'),
    "raises as a call": plain("pytest.raises(TypeError, f, None)", "assert f(3) == 6"),
    "many asserts": plain(*[f"assert f({i}) == {2 * i}" for i in range(120)]),
    "many parameters": marked(
        "@pytest.mark.parametrize('x, want', [(i, 2 * i) for i in range(100)])", "x, want", "assert f(x) == want"
    ),
    "params from a dict": marked(
        "@pytest.mark.parametrize('x', CASES, ids=list(CASES))",
        "x",
        "assert f(CASES[x][0]) == CASES[x][1]",
        before="CASES = {'one': (1, 2), 'text': ('a', 'aa')}\n",
    ),
    "pytestmark": HEAD + "pytestmark = pytest.mark.filterwarnings('error')\ndef test_it():\n    assert f(3) == 6\n",
    "class fixture": case(
        "assert self.x == 6",
        base="object",
        inside="    @pytest.fixture(autouse=True)\n    def _x(self):\n        self.x = f(3)\n",
    ),
    "debug constant": plain("if __debug__:", "    assert f(3) == 6"),
    "assert with a tuple message": plain("assert f(3) == 6, ('a', f(3))"),
    "assert with a raising message": plain("assert f(3) == 6, 1 / 0"),
    "multi-line assert": plain("assert (", "    f(3)", "    ==", "    6", ")"),
    "if in a test": plain("if f(3) == 6:", "    assert f(1) == 2", "else:", "    pytest.fail('no')"),
    "manual raise": plain("if f(3) != 6:", "    raise AssertionError('no')"),
    "callable class test": HEAD
    + "class TestIt:\n    x = staticmethod(f)\n    def test_it(self):\n        assert self.x(3) == 6\n    @classmethod\n    def test_c(cls):\n        assert cls.x(1) == 2\n    @staticmethod\n    def test_s():\n        assert f(1) == 2\n",
    "spawn": plain(
        "with multiprocessing.get_context('spawn').Pool(1) as p:",
        "    assert p.map(f, [1, 3]) == [2, 6]",
        before="import multiprocessing\n",
    ),
    "faulthandler": plain(
        "faulthandler.dump_traceback_later(60)",
        "assert f(3) == 6",
        "faulthandler.cancel_dump_traceback_later()",
        before="import faulthandler\n",
    ),
    "no tests by name": HEAD
    + "def test_helper(x):\n    return f(x)\ntest_helper.__test__ = False\ndef test_gone():\n    assert 0\ndel test_gone\ndef nottest(g):\n    g.__test__ = False\n    return g\n@nottest\ndef test_other(x):\n    return f(x)\ndef test_it():\n    assert test_helper(3) == 6\n    assert test_other(1) == 2\n",
    "an aliased test": HEAD
    + "def check():\n    assert f(3) == 6\ntest_it = check\ndef test_b():\n    assert f(1) == 2\n",
    "a conditional test": HEAD
    + "import sys\nif sys.version_info > (3, 0):\n    def test_it():\n        assert f(3) == 6\nelse:\n    def test_old():\n        assert f(3) == 6\n",
    "a skipped class": HEAD
    + "@pytest.mark.skip(reason='x')\nclass TestA:\n    def test_a(self):\n        assert 0\ndef test_it():\n    assert f(3) == 6\n",
    "a test with defaults": HEAD + "def test_it(x=3, want=6):\n    assert f(x) == want\n",
    "async tests without a plugin": HEAD
    + "import asyncio\ndef run(g):\n    import functools\n    @functools.wraps(g)\n    def inner(*a, **k):\n        return asyncio.run(g(*a, **k))\n    return inner\n@run\nasync def test_it():\n    await asyncio.sleep(0)\n    assert f(3) == 6\n",
}
