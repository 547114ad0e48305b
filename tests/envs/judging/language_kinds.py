"""Kinds of tests by what they make of the language, its library and their runner."""

from kind_texts import HEAD, case, given, marked, plain

LANGUAGE: dict[str, str] = {
    "ternary": plain("assert f(3) == (6 if f(1) == 2 else 7)"),
    "tuple of calls": plain("assert (f(3), f(1)) == (6, 2)", "a, *b = f([1, 2])", "assert b == [2, 1, 2]"),
    "starred": plain("want = [1, 2]", "assert f([1, 2]) == [*want, *want]", "assert {**{'a': f(1)}} == {**{'a': 2}}"),
    "slices": plain(
        "assert f('abc')[1:4] == 'bca'", "assert f([1, 2])[::-1] == [2, 1, 2, 1]", "assert f('abc')[-1] == 'c'"
    ),
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
    "exit stack": plain(
        "with contextlib.ExitStack() as s:",
        "    s.callback(lambda: None)",
        "    assert f(3) == 6",
        before="import contextlib\n",
    ),
    "context manager helper": plain(
        "with doubled(3) as x:",
        "    assert x == 6",
        before="import contextlib\n@contextlib.contextmanager\ndef doubled(x):\n    yield f(x)\n    assert f(x) == 6\n",
    ),
    "metaclass tests": HEAD
    + "class M(type):\n    def __new__(m, n, b, d):\n        for i in range(3):\n            def test(self, i=i):\n                assert f(i) == i * 2\n            d[f'test_{i}'] = test\n        return super().__new__(m, n, b, d)\nclass TestIt(metaclass=M):\n    def test_it(self):\n        assert f(3) == 6\n",
    "unique enum": plain(
        "assert E(f(1)) is E.B",
        before="import enum\n@enum.unique\nclass E(enum.IntEnum):\n    A = 1\n    B = 2\n    C = 3\n",
    ),
    "flags": plain(
        "assert F.A | F.B == F(f(1) + 1)", before="import enum\nclass F(enum.Flag):\n    A = 1\n    B = 2\n"
    ),
    "dataclass default": plain(
        "assert D().x == f(3)",
        "assert D(x=f(1)) == D(2)",
        before="from dataclasses import dataclass\n@dataclass(frozen=True)\nclass D:\n    x: int = 6\n",
    ),
    "slots": plain(
        "assert S(f(3)).x == 6",
        before="class S:\n    __slots__ = ('x',)\n    def __init__(self, x):\n        self.x = x\n",
    ),
    "getattr by text": plain(
        "assert getattr(f('ab'), 'upper')() == 'ABAB'", "assert hasattr(f, '__name__')", "assert f.__name__ == 'f'"
    ),
    "regex": plain(
        "assert re.fullmatch(r'(ab){2}', f('ab'))",
        "assert re.findall('a(.)', f('ab')) == ['b', 'b']",
        before="import re\n",
    ),
    "struct": plain(
        "assert struct.pack('<H', f(3)) == b'\\x06\\x00'",
        "assert struct.unpack('>I', f(b'\\x00\\x01')) == (0x00010001,)",
        before="import struct\n",
    ),
    "strptime": plain(
        "assert datetime.strptime(f('20') + '0102', '%Y%m%d').isoformat() == '2020-01-02T00:00:00'",
        before="from datetime import datetime\n",
    ),
    "json": plain(
        "assert json.loads(json.dumps({'a': f(1)})) == json.loads('{\"a\": 2}')",
        "assert json.dumps({'b': f(1), 'a': 1}, sort_keys=True) == '{\"a\": 1, \"b\": 2}'",
        before="import json\n",
    ),
    "encoding": plain(
        "assert f('é').encode('utf-8') == b'\\xc3\\xa9\\xc3\\xa9'", "assert f(b'a').decode('ascii') == 'aa'"
    ),
    "hash": plain(
        "assert hashlib.sha256(f(b'a')).hexdigest() == '961b6dd3ede3cb8ecbaacbd68de040cd78eb2ed5889130cceb4c49268ea4d506'",
        before="import hashlib\n",
    ),
    "base64": plain("assert base64.b64encode(f(b'ab')) == b'YWJhYg=='", before="import base64\n"),
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
    "tmp_path_factory": given(
        "tmp_path_factory",
        "p = tmp_path_factory.mktemp('x') / 'a'",
        "p.write_text(f('b'))",
        "assert p.read_text() == 'bb'",
    ),
    "setup and teardown": case(
        "assert self.x == 6",
        base="object",
        inside="    def setup_method(self, method):\n        self.x = f(3)\n    def teardown_method(self):\n        assert self.x == 6\n",
    ),
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
    "assert_called_with": plain(
        "m = mock.Mock(return_value=5)",
        "m(f(3))",
        "m.assert_called_once_with(6)",
        "assert m.call_args == mock.call(6)",
        "assert m.mock_calls == [mock.call(6)]",
        before="from unittest import mock\n",
    ),
    "side_effect": plain(
        "m = mock.Mock(side_effect=[1, 2])",
        "assert f(m()) == 2",
        "assert f(m()) == 4",
        "with pytest.raises(StopIteration):",
        "    m()",
        before="from unittest import mock\n",
    ),
    "mock_open": plain(
        "with mock.patch('builtins.open', mock.mock_open(read_data='ab')):",
        "    text = open('x').read()",
        "assert f(text) == 'abab'",
        before="from unittest import mock\n",
    ),
    "patch environ": plain(
        "with mock.patch.dict(os.environ, {'A_B': f('x')}):",
        "    assert os.environ['A_B'] == 'xx'",
        "assert 'A_B' not in os.environ",
        before="import os\nfrom unittest import mock\n",
    ),
    "async fixtures by hand": plain(
        "async def numbers():",
        "    for i in range(3):",
        "        yield f(i)",
        "async def run():",
        "    got = [x async for x in numbers()]",
        "    assert got == [0, 2, 4]",
        "    async with asyncio.timeout(5):",
        "        await asyncio.sleep(0)",
        "    return got",
        "assert asyncio.run(run()) == [0, 2, 4]",
        before="import asyncio\n",
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
    "shared memory": plain(
        "s = shared_memory.SharedMemory(create=True, size=8)",
        "try:",
        "    s.buf[0] = f(3)",
        "    assert s.buf[0] == 6",
        "finally:",
        "    s.close(); s.unlink()",
        before="from multiprocessing import shared_memory\n",
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
    "gc": plain(
        "class A: pass",
        "a = A(); a.a = a; r = weakref.ref(a)",
        "del a",
        "gc.collect()",
        "assert r() is None",
        "assert f(3) == 6",
        before="import gc, weakref\n",
    ),
    "rlimit": plain(
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))",
        "assert f(3) == 6",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))",
        before="import resource\n",
    ),
    "chdir and no return": given("tmp_path", "os.chdir(tmp_path)", "assert f(3) == 6", before="import os\n"),
    "sys.path": given(
        "tmp_path",
        "(tmp_path / 'extra_NUMBER.py').write_text('SIX = 6')",
        "sys.path.insert(0, str(tmp_path))",
        "import extra_NUMBER",
        "assert f(3) == extra_NUMBER.SIX",
        before="import sys\n",
    ),
    "system exit": plain(
        "with pytest.raises(SystemExit) as e:", "    sys.exit(f(3))", "assert e.value.code == 6", before="import sys\n"
    ),
    "exit handlers": plain("atexit.register(print, 'end')", "assert f(3) == 6", before="import atexit\n"),
    "copy": plain(
        "x = f([[1]])",
        "y = copy.deepcopy(x)",
        "y[0].append(2)",
        "assert x == [[1], [1]]",
        "assert y == [[1, 2], [1, 2]]",
        before="import copy\n",
    ),
    "shared list": plain("x = f([[1]])", "x[0].append(2)", "assert x[1] == [1, 2]"),
    "identity": plain("a = []", "x = f([a])", "assert x[0] is x[1] is a"),
    "sorted": plain(
        "assert sorted(f([2, 1]), key=lambda x: -x) == [2, 2, 1, 1]",
        "assert max(f([1, 3])) == 3",
        "assert sum(f([1, 2])) == 6",
    ),
    "zip and enumerate": plain(
        "for i, (a, b) in enumerate(zip(f([1]), [1, 1])):", "    assert a == b", "    assert i in (0, 1)"
    ),
    "itertools": plain(
        "assert list(itertools.islice(itertools.count(f(1), 2), 3)) == [2, 4, 6]", before="import itertools\n"
    ),
    "lru_cache": plain(
        "g = functools.lru_cache(f)",
        "assert (g(3), g(3)) == (6, 6)",
        "assert g.cache_info().hits == 1",
        before="import functools\n",
    ),
    "partial": plain(
        "assert functools.partial(f, 3)() == 6",
        "assert functools.reduce(lambda a, b: a + b, f([1, 2])) == 6",
        before="import functools\n",
    ),
    "singledispatch": plain(
        "@functools.singledispatch",
        "def g(x):",
        "    return f(x)",
        "@g.register",
        "def _(x: str):",
        "    return 'text'",
        "assert g(3) == 6",
        "assert g('a') == 'text'",
        before="import functools\n",
    ),
    "typing": plain(
        "assert typing.get_type_hints(g) == {'x': int, 'return': int}",
        "assert g(3) == 6",
        before="import typing\ndef g(x: 'int') -> 'int':\n    return f(x)\n",
    ),
    "literal type": plain(
        "assert typing.get_args(L) == ('a', 'b')",
        "assert f('a') == 'aa'",
        before="import typing\nL = typing.Literal['a', 'b']\n",
    ),
    "string template": plain("assert string.Template('$x').substitute(x=f(3)) == '6'", before="import string\n"),
    "textwrap": plain(
        "want = textwrap.dedent('''\\\n        a\n        a\n        ''')",
        "assert f('a\\n') == want",
        before="import textwrap\n",
    ),
    "triple quotes": plain('assert f("a\\n") == """a', "a", '"""').replace("    a\n", "a\n").replace('    """', '"""'),
    "io": plain(
        "out = io.StringIO()",
        "with contextlib.redirect_stdout(out):",
        "    print(f(3))",
        "assert out.getvalue() == '6\\n'",
        before="import contextlib, io\n",
    ),
    "csv": plain(
        "rows = list(csv.DictReader(io.StringIO('a,b\\n1,2\\n')))",
        "assert f(rows[0]['b']) == '22'",
        before="import csv, io\n",
    ),
    "config": plain(
        "c = configparser.ConfigParser()",
        "c.read_string('[a]\\nb = 3\\n')",
        "assert f(c.getint('a', 'b')) == 6",
        before="import configparser\n",
    ),
    "xml": plain(
        "root = ET.fromstring('<a><b>x</b></a>')",
        "assert f(root.find('b').text) == 'xx'",
        before="import xml.etree.ElementTree as ET\n",
    ),
    "argparse": plain(
        "p = argparse.ArgumentParser()",
        "p.add_argument('--x', type=int, default=3)",
        "assert f(p.parse_args([]).x) == 6",
        "assert f(p.parse_args(['--x', '4']).x) == 8",
        before="import argparse\n",
    ),
    "logging levels": given(
        "caplog",
        "with caplog.at_level('DEBUG', logger='x'):",
        "    logging.getLogger('x').debug('got %d', f(3))",
        "assert caplog.record_tuples == [('x', logging.DEBUG, 'got 6')]",
        before="import logging\n",
    ),
    "warnings filter": plain(
        "with warnings.catch_warnings():",
        "    warnings.simplefilter('error')",
        "    assert f(3) == 6",
        before="import warnings\n",
    ),
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
    "math": plain(
        "assert math.isclose(f(0.1), 0.2, rel_tol=1e-9)",
        "assert math.isnan(f(math.nan))",
        "assert math.inf == f(math.inf)",
        before="import math\n",
    ),
    "round": plain(
        "assert round(f(0.123), 2) == 0.25", "assert abs(f(0.1) - 0.2) < 1e-9", "assert divmod(f(7), 4) == (3, 2)"
    ),
    "bool ops": plain("assert bool(f([])) is False", "assert not f('')", "assert f(True) == 2"),
    "memoryview": plain("assert bytes(memoryview(f(b'ab'))[1:3]) == b'ba'"),
    "array": plain("assert f(array.array('i', [1])) == array.array('i', [1, 1])", before="import array\n"),
    "deque": plain("assert f(deque([1], maxlen=5)) == deque([1, 1])", before="from collections import deque\n"),
    "OrderedDict": plain(
        "assert OrderedDict(a=f(1), b=1) == OrderedDict([('a', 2), ('b', 1)])",
        "assert ChainMap({'a': f(1)}, {'b': 1}) == {'a': 2, 'b': 1}",
        before="from collections import ChainMap, OrderedDict\n",
    ),
    "defaultdict": plain(
        "d = defaultdict(list)",
        "d['a'].append(f(1))",
        "assert d == {'a': [2]}",
        before="from collections import defaultdict\n",
    ),
    "uuid": plain("assert uuid.UUID(f('12345678123456')+'1234') ", before="import uuid\n").replace(
        "+'1234')", "+'1234' )"
    ),
    "ipaddress": plain(
        "assert ipaddress.ip_address('10.0.0.' + f('1')) == ipaddress.ip_address('10.0.0.11')",
        before="import ipaddress\n",
    ),
    "zoneinfo-free time": plain(
        "assert dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=f(1)))).utcoffset() == dt.timedelta(hours=2)",
        before="import datetime as dt\n",
    ),
    "time bound": plain(
        "t = time.perf_counter()", "assert f(3) == 6", "assert time.perf_counter() - t < 5", before="import time\n"
    ),
    "sleep": plain("time.sleep(0.01)", "assert f(3) == 6", before="import time\n"),
    "exec'd code": plain(
        "ns = {}",
        "exec('from solution import f\\nx = f(3)', ns)",
        "assert ns['x'] == 6",
        "assert eval('f(3) == 6', {'f': f})",
    ),
    "property": plain(
        "assert P(3).x == 6",
        before="class P:\n    def __init__(self, v):\n        self.v = v\n    @property\n    def x(self):\n        return f(self.v)\n",
    ),
    "descriptor": plain(
        "assert C().x == 6",
        before="class D:\n    def __get__(self, o, t=None):\n        return f(3)\nclass C:\n    x = D()\n",
    ),
    "operator class": plain(
        "assert V(f(1)) + V(1) == V(3)",
        "assert V(1) < V(f(1))",
        before="import functools\n@functools.total_ordering\nclass V:\n    def __init__(self, x):\n        self.x = x\n    def __add__(self, o):\n        return V(self.x + o.x)\n    def __eq__(self, o):\n        return self.x == o.x\n    def __lt__(self, o):\n        return self.x < o.x\n",
    ),
    "call protocol": plain(
        "class A:", "    def __add__(self, other):", "        return 'sum'", "assert f(A()) == 'sum'"
    ),
    "recursion": plain("def fact(n):", "    return 1 if n < 2 else n * fact(n - 1)", "assert f(fact(5)) == 240"),
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
    "fixture factory": given(
        "make",
        "assert make(3) == 6",
        before="@pytest.fixture\ndef make():\n    def inner(x):\n        return f(x)\n    return inner\n",
    ),
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
    "numbers as text": plain("assert str(f(3)) == '6'", "assert repr(f('a')) == \"'aa'\"", "assert int(f('3')) == 33"),
    "unpack": plain("(a, b), c = f((1,)), f(1)", "assert a == b == 1", "assert c == 2"),
    "types": plain("assert type(f(3)) is int", "assert type(f('a')) == str"),
    "callable class test": HEAD
    + "class TestIt:\n    x = staticmethod(f)\n    def test_it(self):\n        assert self.x(3) == 6\n    @classmethod\n    def test_c(cls):\n        assert cls.x(1) == 2\n    @staticmethod\n    def test_s():\n        assert f(1) == 2\n",
    "subprocess module": plain(
        "code = 'from solution import f; print(f(3))'",
        "where = os.path.dirname(solution.__file__)",
        "out = subprocess.run([sys.executable, '-c', code], cwd=where, capture_output=True, text=True, check=True)",
        "assert out.stdout == '6\\n'",
        before="import os, subprocess, sys\nimport solution\n",
    ),
    "check_output shell": plain(
        "assert subprocess.check_output(\"echo 'aa' | tr a b\", shell=True, text=True).strip() == f('b')",
        before="import subprocess\n",
    ),
    "popen": plain(
        "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
        "out, _ = p.communicate(f(b'x'))",
        "assert out == b'xx'",
        "assert p.returncode == 0",
        before="import subprocess\n",
    ),
    "os.popen": plain(
        "with os.popen('echo 6') as p:",
        "    assert p.read().strip() == str(f(3))",
        "assert os.system('true') == 0",
        before="import os\n",
    ),
    "asyncio subprocess": plain(
        "async def run():",
        "    p = await asyncio.create_subprocess_exec('cat', stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)",
        "    out, _ = await p.communicate(f(b'x'))",
        "    return out",
        "assert asyncio.run(run()) == b'xx'",
        before="import asyncio\n",
    ),
    "socketpair": plain(
        "a, b = socket.socketpair()",
        "a.sendall(f(b'x'))",
        "assert b.recv(10) == b'xx'",
        "a.close(); b.close()",
        before="import socket\n",
    ),
    "unix socket": given(
        "tmp_path",
        "s = socket.socket(socket.AF_UNIX); s.bind(str(tmp_path / 's')); s.listen()",
        "c = socket.socket(socket.AF_UNIX); c.connect(str(tmp_path / 's'))",
        "c.sendall(f(b'x')); d, _ = s.accept()",
        "assert d.recv(9) == b'xx'",
        "[x.close() for x in (s, c, d)]",
        before="import socket\n",
    ),
    "urllib": plain(
        "class H(http.server.BaseHTTPRequestHandler):",
        "    def do_GET(self):",
        "        self.send_response(200); self.end_headers(); self.wfile.write(str(f(3)).encode())",
        "    def log_message(self, *a): pass",
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)",
        "threading.Thread(target=s.serve_forever, daemon=True).start()",
        "assert urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/').read() == b'6'",
        "s.shutdown(); s.server_close()",
        before="import http.server, threading, urllib.request\n",
    ),
    "futures of processes": plain(
        "with cf.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as p:",
        "    assert p.submit(f, 3).result() == 6",
        before="import concurrent.futures as cf, multiprocessing\n",
    ),
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
    "write to the working directory": plain(
        "open('out_NUMBER.txt', 'w').write(f('a'))",
        "assert open('out_NUMBER.txt').read() == 'aa'",
        "os.remove('out_NUMBER.txt')",
        before="import os\n",
    ),
    "home": plain("p = os.path.expanduser('~')", "assert os.path.isabs(p)", "assert f(3) == 6", before="import os\n"),
    "tempfile": plain(
        "with tempfile.TemporaryDirectory() as d:",
        "    open(d + '/x', 'w').write(f('a'))",
        "    assert open(d + '/x').read() == 'aa'",
        before="import tempfile\n",
    ),
    "zip file": given(
        "tmp_path",
        "with zipfile.ZipFile(tmp_path / 'z', 'w') as z:",
        "    z.writestr('a', f('b'))",
        "assert zipfile.ZipFile(tmp_path / 'z').read('a') == b'bb'",
        before="import zipfile\n",
    ),
    "shelve": given(
        "tmp_path",
        "with shelve.open(str(tmp_path / 's')) as s:",
        "    s['a'] = f(3)",
        "with shelve.open(str(tmp_path / 's')) as s:",
        "    assert s['a'] == 6",
        before="import shelve\n",
    ),
    "curses-free term": plain(
        "assert os.get_terminal_size.__name__ == 'get_terminal_size'",
        "assert shutil.which('sh')",
        "assert f(3) == 6",
        before="import os, shutil\n",
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
    "mutable default": plain(
        "def g(x, seen=[]):", "    seen.append(f(x))", "    return seen", "g(1)", "assert g(2) == [2, 4]"
    ),
    "annotation": plain("x: int = f(3)", "assert x == 6"),
    "augmented": plain("x = 1", "x += f(3)", "assert x == 7", "y = [1]", "y *= f(1)", "assert y == [1, 1]"),
    "type alias": plain("assert isinstance(f(3), N)", before="N = int | float\n"),
    "generic": plain("assert list[int] == list[int]", "assert f([1]) == [1, 1]", "assert isinstance(f([1]), list)"),
    "protocol": plain("assert isinstance(f('a'), Sized)", before="from collections.abc import Sized\n"),
    "abc": plain(
        "assert K().m() == 6",
        before="import abc\nclass B(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\nclass K(B):\n    def m(self):\n        return f(3)\n",
    ),
    "random seed": plain(
        "random.seed(1)",
        "a = random.random()",
        "random.seed(1)",
        "assert f(random.random()) == 2 * a",
        before="import random\n",
    ),
    "a fixed random": plain("assert f(random.Random(5).randint(1, 100)) == 160", before="import random\n"),
    "statistics": plain("assert statistics.mean(f([1, 3])) == 2", before="import statistics\n"),
    "heapq": plain("assert heapq.nsmallest(2, f([3, 1])) == [1, 1]", before="import heapq\n"),
    "bisect": plain("assert bisect.bisect(sorted(f([1, 3])), 2) == 2", before="import bisect\n"),
    "no tests by name": HEAD
    + "def test_helper(x):\n    return f(x)\ntest_helper.__test__ = False\ndef test_gone():\n    assert 0\ndel test_gone\ndef nottest(g):\n    g.__test__ = False\n    return g\n@nottest\ndef test_other(x):\n    return f(x)\ndef test_it():\n    assert test_helper(3) == 6\n    assert test_other(1) == 2\n",
    "an aliased test": HEAD
    + "def check():\n    assert f(3) == 6\ntest_it = check\ndef test_b():\n    assert f(1) == 2\n",
    "a conditional test": HEAD
    + "import sys\nif sys.version_info > (3, 0):\n    def test_it():\n        assert f(3) == 6\nelse:\n    def test_old():\n        assert f(3) == 6\n",
    "a test defined twice": HEAD
    + "def test_it():\n    assert f(3) == 7\ndef test_it():  # noqa\n    assert f(3) == 6\n",
    "an abstract base": HEAD
    + "class Base:\n    want = None\n    def test_it(self):\n        assert f(3) == self.want\nclass TestIt(Base):\n    want = 6\nclass TestOther(Base):\n    want = 6\n    def test_it(self):\n        super().test_it()\n",
    "a skipped class": HEAD
    + "@pytest.mark.skip(reason='x')\nclass TestA:\n    def test_a(self):\n        assert 0\ndef test_it():\n    assert f(3) == 6\n",
    "a test with defaults": HEAD + "def test_it(x=3, want=6):\n    assert f(x) == want\n",
    "async tests without a plugin": HEAD
    + "import asyncio\ndef run(g):\n    import functools\n    @functools.wraps(g)\n    def inner(*a, **k):\n        return asyncio.run(g(*a, **k))\n    return inner\n@run\nasync def test_it():\n    await asyncio.sleep(0)\n    assert f(3) == 6\n",
}
