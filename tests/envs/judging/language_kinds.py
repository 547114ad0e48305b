"""Kinds of tests by what they make of the language, its library and their runner."""

from kind_texts import HEAD, case, given, marked, plain

LANGUAGE: dict[str, str] = {
    "ternary": plain("assert f(3) == (6 if f(1) == 2 else 7)"),
    "tuple of calls": plain("assert (f(3), f(1)) == (6, 2)", "a, *b = f([1, 2])", "assert b == [2, 1, 2]"),
    "starred": plain("want = [1, 2]", "assert f([1, 2]) == [*want, *want]", "assert {**{'a': f(1)}} == {**{'a': 2}}"),
    "percent": plain(
        "assert '%d' % f(3) == '6'", "assert '{:>4}'.format(f(3)) == '   6'", "assert f'{f(3):04d}' == '0006'"
    ),
    "implicit joins": plain("assert f('a' 'b') == ('ab'", "    'ab')"),
    "hex": plain("assert f(0x3) == 0x6 == 0b110 == 0o6", "assert f(1_000) == 2_000", "assert f(3) == --6"),
    "ellipsis": plain("assert f([...]) == [..., ...]"),
    "finally": plain("try:", "    x = f(1)", "finally:", "    assert f(3) == 6"),
    "a while": plain("i = 0", "while i < 3:", "    i += 1", "    assert f(i) == i * 2", "else:", "    assert i == 3"),
    "global": plain("global COUNT", "COUNT = f(COUNT)", "assert COUNT == 6", before="COUNT = 3\n"),
    "del": plain("x = f(3)", "y = x", "del x", "assert y == 6"),
    "exception group": plain(
        "with pytest.raises(ExceptionGroup) as e:",
        "    raise ExceptionGroup('g', [ValueError(str(f(1))), TypeError('t')])",
        "assert str(e.value.exceptions[0]) == '2'",
    ),
    "except star": plain(
        "try:",
        "    raise ExceptionGroup('g', [ValueError(f(1))])",
        "except* ValueError as e:",
        "    assert e.exceptions[0].args == (2,)",
    ),
    "context manager helper": plain(
        "with doubled(3) as x:",
        "    assert x == 6",
        before="import contextlib\n@contextlib.contextmanager\ndef doubled(x):\n    yield f(x)\n    assert f(x) == 6\n",
    ),
    "metaclass tests": HEAD
    + "class M(type):\n    def __new__(m, n, b, d):\n        for i in range(3):\n            def test(self, i=i):\n                assert f(i) == i * 2\n            d[f'test_{i}'] = test\n        return super().__new__(m, n, b, d)\nclass TestIt(metaclass=M):\n    def test_it(self):\n        assert f(3) == 6\n",
    "flags": plain(
        "assert F.A | F.B == F(f(1) + 1)", before="import enum\nclass F(enum.Flag):\n    A = 1\n    B = 2\n"
    ),
    "getattr by text": plain(
        "assert getattr(f('ab'), 'upper')() == 'ABAB'", "assert hasattr(f, '__name__')", "assert f.__name__ == 'f'"
    ),
    "struct": plain(
        "assert struct.pack('<H', f(3)) == b'\\x06\\x00'",
        "assert struct.unpack('>I', f(b'\\x00\\x01')) == (0x00010001,)",
        before="import struct\n",
    ),
    "file beside": plain(
        "here = pathlib.Path(__file__)",
        "assert here.name == 'test_kind_NUMBER.py'",
        "assert f(3) == 6",
        before="import pathlib\n",
    ),
    "reload": given(
        "monkeypatch",
        "import solution",
        "monkeypatch.setattr(solution, 'f', f)",  # others' functions are pickled by their names
        "importlib.reload(solution)",
        "assert solution.f(3) == 6",
        before="import importlib\n",
    ),
    "import anew": given(
        "monkeypatch",
        "monkeypatch.delitem(sys.modules, 'solution')",
        "import solution",
        "assert solution.f(3) == 6",
        before="import sys\n",
    ),
    "runpy": plain("assert runpy.run_module('solution')['f'](3) == 6", before="import runpy\n"),
    "by spec": plain(
        "spec = util.find_spec('solution')",
        "m = util.module_from_spec(spec)",
        "spec.loader.exec_module(m)",
        "assert m.f(3) == 6",
        before="from importlib import util\n",
    ),
    "source": plain("assert 'x + x' in inspect.getsource(f)", "assert f(3) == 6", before="import inspect\n"),
    "ast": plain(
        "tree = ast.parse(inspect.getsource(f))",
        "assert isinstance(tree.body[0], ast.FunctionDef)",
        "assert f(3) == 6",
        before="import ast, inspect\n",
    ),
    "code object": plain(
        "assert f.__code__.co_argcount == 1", "assert f.__code__.co_varnames == ('x',)", "assert f(3) == 6"
    ),
    "frame name": plain(
        "assert sys._getframe().f_code.co_name == 'test_it'", "assert f(3) == 6", before="import sys\n"
    ),
    "request": given(
        "request",
        "assert request.node.name == 'test_it'",
        "assert request.function.__name__ == 'test_it'",
        "assert f(3) == 6",
    ),
    "record_property": given("record_property", "record_property('a', f(3))", "assert f(3) == 6"),
    "importorskip": plain("json = pytest.importorskip('json')", "assert json.dumps(f(3)) == '6'"),
    "fail caught": plain("with pytest.raises(pytest.fail.Exception):", "    pytest.fail('x')", "assert f(3) == 6"),
    "usefixtures": marked("@pytest.mark.usefixtures('tmp_path')", "", "assert f(3) == 6"),
    "setUpClass": case(
        "self.assertEqual(self.x, 6)", inside="    @classmethod\n    def setUpClass(cls):\n        cls.x = f(3)\n"
    ),
    "addCleanup": case("self.addCleanup(lambda: self.assertEqual(f(1), 2))", "self.assertEqual(f(3), 6)"),
    "assertDictEqual": case(
        "self.assertDictEqual({'a': f(1)}, {'a': 2})",
        "self.assertListEqual(f([1]), [1, 1])",
        "self.assertTupleEqual(f((1,)), (1, 1))",
        "self.assertSetEqual({f(1)}, {2})",
        "self.assertMultiLineEqual(f('a\\n'), 'a\\na\\n')",
    ),
    "assertTrue": case(
        "self.assertTrue(f(3) == 6)",
        "self.assertFalse(f(3) == 7)",
        "self.assertIsNone(None if f(1) == 2 else 1)",
        "self.assertGreater(f(3), 5)",
        "self.assertIsInstance(f(1), int)",
    ),
    "assertEqual message": case(
        "self.assertEqual(f(3), 6, msg='six')", "self.assertEqual(first=f(3), second=6)", "self.assertNotEqual(f(3), 7)"
    ),
    "longMessage": case(
        "self.assertEqual(f('a' * 1000), 'a' * 2000)", inside="    maxDiff = None\n    longMessage = False\n"
    ),
    "patch object class": HEAD
    + "from unittest import mock\nimport solution\n@mock.patch.object(solution, 'g', create=True)\nclass TestIt(unittest.TestCase):\n    def test_it(self, g):\n        self.assertEqual(f(3), 6)\n",
    "side_effect": plain(
        "m = mock.Mock(side_effect=[1, 2])",
        "assert f(m()) == 2",
        "assert f(m()) == 4",
        "with pytest.raises(StopIteration):",
        "    m()",
        before="from unittest import mock\n",
    ),
    "gather with exceptions": plain(
        "async def bad():",
        "    raise ValueError(f(1))",
        "async def run():",
        "    return await asyncio.gather(bad(), asyncio.sleep(0, f(3)), return_exceptions=True)",
        "one, two = asyncio.run(run())",
        "assert one.args == (2,)",
        "assert two == 6",
        before="import asyncio\n",
    ),
    "manager": plain(
        "with multiprocessing.get_context('fork').Manager() as m:",
        "    d = m.dict()",
        "    d['a'] = f(3)",
        "    assert dict(d) == {'a': 6}",
        before="import multiprocessing\n",
    ),
    "queue and threads": plain(
        "q = queue.Queue()",
        "t = threading.Thread(target=lambda: q.put(f(3)))",
        "t.start(); t.join()",
        "assert q.get(timeout=5) == 6",
        before="import queue, threading\n",
    ),
    "excepthook": given(
        "monkeypatch",
        "seen = []",
        "monkeypatch.setattr(threading, 'excepthook', seen.append)",
        "t = threading.Thread(target=lambda: 1 / 0)",
        "t.start(); t.join()",
        "assert len(seen) == f(1) - 1",
        before="import threading\n",
    ),
    "setprofile": plain(
        "seen = []",
        "sys.setprofile(lambda fr, ev, arg: seen.append(ev))",
        "x = f(3)",
        "sys.setprofile(None)",
        "assert x == 6",
        "assert 'call' in seen",
        before="import sys\n",
    ),
    "rlimit": plain(
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))",
        "assert f(3) == 6",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))",
        before="import resource\n",
    ),
    "system exit": plain(
        "with pytest.raises(SystemExit) as e:", "    sys.exit(f(3))", "assert e.value.code == 6", before="import sys\n"
    ),
    "exit handlers": plain("atexit.register(print, 'end')", "assert f(3) == 6", before="import atexit\n"),
    "triple quotes": plain('assert f("a\\n") == """a', "a", '"""').replace("    a\n", "a\n").replace('    """', '"""'),
    "pytest.raises group": plain(
        "with pytest.raises((ValueError, TypeError)) as info:",
        "    f(None)",
        "assert 'NoneType' in str(info.value)",
        "assert info.type is TypeError",
    ),
    "raises as a call": plain("pytest.raises(TypeError, f, None)", "assert f(3) == 6"),
    "notes": plain("e = ValueError('x')", "e.add_note(f('n'))", "assert e.__notes__ == ['nn']"),
    "chained": plain(
        "with pytest.raises(ValueError) as info:",
        "    try:",
        "        f(None)",
        "    except TypeError as e:",
        "        raise ValueError('x') from e",
        "assert isinstance(info.value.__cause__, TypeError)",
    ),
    "decimal context": plain(
        "with decimal.localcontext() as c:",
        "    c.prec = 3",
        "    assert decimal.Decimal(f(1)) / 3 == decimal.Decimal('0.667')",
        before="import decimal\n",
    ),
    "bool ops": plain("assert bool(f([])) is False", "assert not f('')", "assert f(True) == 2"),
    "time bound": plain(
        "t = time.perf_counter()", "assert f(3) == 6", "assert time.perf_counter() - t < 5", before="import time\n"
    ),
    "exec'd code": plain(
        "ns = {}",
        "exec('from solution import f\\nx = f(3)', ns)",
        "assert ns['x'] == 6",
        "assert eval('f(3) == 6', {'f': f})",
    ),
    "big table": plain("for i in range(500):", "    assert f(i) == 2 * i"),
    "many asserts": plain(*[f"assert f({i}) == {2 * i}" for i in range(120)]),
    "many parameters": marked(
        "@pytest.mark.parametrize('x, want', [(i, 2 * i) for i in range(100)])", "x, want", "assert f(x) == want"
    ),
    "params of pytest.param": marked(
        "@pytest.mark.parametrize('x, want', [pytest.param(1, 2, id='one'), pytest.param('a', 'aa', id='text')])",
        "x, want",
        "assert f(x) == want",
    ),
    "params from a dict": marked(
        "@pytest.mark.parametrize('x', CASES, ids=list(CASES))",
        "x",
        "assert f(CASES[x][0]) == CASES[x][1]",
        before="CASES = {'one': (1, 2), 'text': ('a', 'aa')}\n",
    ),
    "params from json": marked(
        "@pytest.mark.parametrize('case', CASES)",
        "case",
        "assert f(case['in']) == case['out']",
        before='import json\nCASES = json.loads(\'[{"in": 1, "out": 2}, {"in": "a", "out": "aa"}]\')\n',
    ),
    "params as stacked classes": HEAD
    + "@pytest.mark.parametrize('x', [1, 2])\nclass TestIt:\n    @pytest.mark.parametrize('y', [1, 2])\n    def test_it(self, x, y):\n        assert f(x) * y == x * y * 2\n",
    "pytestmark": HEAD + "pytestmark = pytest.mark.filterwarnings('error')\ndef test_it():\n    assert f(3) == 6\n",
    "fixture with params and ids": given(
        "pair",
        "assert f(pair[0]) == pair[1]",
        before="@pytest.fixture(params=[(1, 2), ('a', 'aa')], ids=['one', 'text'])\ndef pair(request):\n    return request.param\n",
    ),
    "class fixture": case(
        "assert self.x == 6",
        base="object",
        inside="    @pytest.fixture(autouse=True)\n    def _x(self):\n        self.x = f(3)\n",
    ),
    "finalizer": given(
        "thing",
        "assert thing == 6",
        before="@pytest.fixture\ndef thing(request):\n    request.addfinalizer(lambda: None)\n    return f(3)\n",
    ),
    "yield fixture assert": given(
        "thing",
        "assert thing == 6",
        before="@pytest.fixture\ndef thing():\n    x = f(3)\n    yield x\n    assert x == 6\n",
    ),
    "monkeypatch solution": given(
        "monkeypatch",
        "import solution",
        "monkeypatch.setattr(solution, 'f', lambda x: 7)",
        "assert solution.f(3) == 7",
        "monkeypatch.undo()",
        "assert solution.f(3) == 6",
    ),
    "patch target": plain(
        "with mock.patch('solution.f', return_value=9) as m:",
        "    import solution",
        "    assert solution.f(3) == 9",
        "    m.assert_called_once_with(3)",
        "assert f(3) == 6",
        before="from unittest import mock\n",
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
    "forkserver": plain(
        "with multiprocessing.get_context('forkserver').Pool(1) as p:",
        "    assert p.map(f, [1, 3]) == [2, 6]",
        before="import multiprocessing\n",
    ),
    "faulthandler": plain(
        "faulthandler.dump_traceback_later(60)",
        "assert f(3) == 6",
        "faulthandler.cancel_dump_traceback_later()",
        before="import faulthandler\n",
    ),
    "set_trace-free hooks": plain(
        "old = sys.displayhook",
        "out = []",
        "sys.displayhook = out.append",
        "eval(compile('f(3)', 'x', 'single'))",
        "sys.displayhook = old",
        "assert out == [6]",
        before="import sys\n",
    ),
    "unraisable": plain(
        "class A:",
        "    def __del__(self):",
        "        seen.append(f(3))",
        "seen = []",
        "a = A()",
        "del a",
        "assert seen == [6]",
    ),
    "hash randomness": plain("assert len({f('a'), 'aa', f('b')}) == 2", "assert hash(f('a')) == hash('aa')"),
    "interning": plain("assert sys.intern(f('a')) is sys.intern('aa')", before="import sys\n"),
    "id of a constant": plain("x = 1000", "y = x", "assert x is y", "assert f(x) == 2000"),
    "default argument": plain("def g(x=f(3), *, want=6):", "    assert x == want", "g()"),
    "no tests by name": HEAD
    + "def test_helper(x):\n    return f(x)\ntest_helper.__test__ = False\ndef test_gone():\n    assert 0\ndel test_gone\ndef nottest(g):\n    g.__test__ = False\n    return g\n@nottest\ndef test_other(x):\n    return f(x)\ndef test_it():\n    assert test_helper(3) == 6\n    assert test_other(1) == 2\n",
    "an aliased test": HEAD
    + "def check():\n    assert f(3) == 6\ntest_it = check\ndef test_b():\n    assert f(1) == 2\n",
    "a conditional test": HEAD
    + "import sys\nif sys.version_info > (3, 0):\n    def test_it():\n        assert f(3) == 6\nelse:\n    def test_old():\n        assert f(3) == 6\n",
    "a test defined twice": HEAD
    + "def test_it():\n    assert f(3) == 7\ndef test_it():  # noqa\n    assert f(3) == 6\n",
    "a skipped class": HEAD
    + "@pytest.mark.skip(reason='x')\nclass TestA:\n    def test_a(self):\n        assert 0\ndef test_it():\n    assert f(3) == 6\n",
    "a test with defaults": HEAD + "def test_it(x=3, want=6):\n    assert f(x) == want\n",
    "async tests without a plugin": HEAD
    + "import asyncio\ndef run(g):\n    import functools\n    @functools.wraps(g)\n    def inner(*a, **k):\n        return asyncio.run(g(*a, **k))\n    return inner\n@run\nasync def test_it():\n    await asyncio.sleep(0)\n    assert f(3) == 6\n",
}
