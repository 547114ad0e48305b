"""Kinds of tests by how they are written with pytest and unittest, as `honest_kinds` has them."""

from kind_texts import HEAD, case, given, marked, plain

SUITE: dict[str, str] = {
    "warnings as errors": plain(
        "with warnings.catch_warnings():",
        "    warnings.simplefilter('error')",
        "    assert f(3) == 6",
        "    assert f('a') == 'aa'",
        before="import warnings\n",
    ),
    "odd parameters": marked(
        "@pytest.mark.parametrize('x, want', [('a b', 'a ba b'), ('\\n', '\\n\\n'), ('é/[x]', 'é/[x]é/[x]'), ('::', '::::'), ('', ''), ('\\x00', '\\x00\\x00')])",
        "x, want",
        "assert f(x) == want",
    ),
    "parameters with odd ids": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), (2, 4), (3, 6)], ids=['a b', 'x[1]', 'é::y'])",
        "x, want",
        "assert f(x) == want",
    ),
    "parameters that are objects": marked(
        "@pytest.mark.parametrize('x, want', [(object, 'nothing'), (len, 'x'), (b'\\xff', 1.5)])",
        "x, want",
        "assert want is not None",
        "assert f(1) == 2",
    ),
    "parameters that are the same text": marked(
        "@pytest.mark.parametrize('x, want', [(3, 6), ('3', '33'), (3.0, 6.0), (True, 2)])",
        "x, want",
        "assert f(x) == want",
    ),
    "a class of parameters": HEAD
    + "@pytest.mark.parametrize('x, want', [(1, 2), (2, 4)])\nclass TestA:\n    def test_it(self, x, want):\n        assert f(x) == want\n    def test_b(self, x, want):\n        assert x * 2 == want\n",
    "parameters of a fixture": HEAD
    + "@pytest.fixture(params=[(1, 2), ('a', 'aa')], ids=['n', 's'])\ndef pair(request):\n    return request.param\n\ndef test_it(pair):\n    x, want = pair\n    assert f(x) == want\n",
    "pytest_generate_tests": HEAD
    + "def pytest_generate_tests(metafunc):\n    if 'pair' in metafunc.fixturenames:\n        metafunc.parametrize('pair', [(1, 2), (2, 4)])\n\ndef test_it(pair):\n    assert f(pair[0]) == pair[1]\n",
    "generated tests": HEAD
    + "def make(x, want):\n    def test():\n        assert f(x) == want\n    return test\nfor x, want in [(1, 2), (2, 4)]:\n    globals()['test_made_%d' % x] = make(x, want)\n\ndef test_it():\n    assert f(3) == 6\n",
    "unittest with classes and modules set up": HEAD
    + "def setUpModule():\n    global X\n    X = 3\nclass TestIt(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.y = 6\n    def test_it(self):\n        self.assertEqual(f(X), self.y)\n        self.assertEqual(f(2), 4)\n",
    "assertRegex and others": case(
        "self.assertRegex(f('ab'), '^abab$')",
        "self.assertGreater(f(3), 5)",
        "self.assertLessEqual(f(1), 2)",
        "self.assertNotEqual(f(1), 3)",
        "self.assertIsInstance(f(1), int)",
        "self.assertFalse(f(0))",
        "self.assertDictEqual({'a': f(1)}, {'a': 2})",
        "self.assertListEqual(f([1]), [1, 1])",
        "self.assertTupleEqual(f((1,)), (1, 1))",
        "self.assertMultiLineEqual(f('a\\n'), 'a\\na\\n')",
        "self.assertSequenceEqual(f([1]), (1, 1))",
        "self.assertSetEqual(set(f([1])), {1})",
    ),
    "addTypeEqualityFunc": case(
        "self.addTypeEqualityFunc(int, lambda a, b, msg=None: self.assertTrue(abs(a - b) < 2))",
        "self.assertEqual(f(3), 7)",
    ),
    "expectedFailure": HEAD
    + "class TestIt(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_xfail_it(self):\n        self.assertEqual(f(3), 7)\n    def test_it(self):\n        self.assertEqual(f(3), 6)\n",
    "an equality by elements": plain(
        "class V(list):",
        "    __hash__ = None",
        "    def __eq__(self, o): return V(a == b for a, b in zip(self, o if isinstance(o, (list, tuple)) else [o] * len(self)))",
        "    def all(self): return all(iter(self))",
        "v = V(f([1, 2]))",
        "assert (v == [1, 2, 1, 2]).all()",
        "assert all(v == [1, 2, 1, 2])",
        "assert list(v == 1) == [True, False, True, False]",
    ),
    "await in an assert": plain(
        "async def g(x): return f(x)",
        "async def go():",
        "    assert await g(3) == 6",
        "    assert (await g('a')) == 'aa'",
        "asyncio.run(go())",
        before="import asyncio\n",
    ),
    "yield in an assert": plain(
        "def gen():",
        "    x = yield 1",
        "    assert x == 5",
        "    assert (yield f(2)) == 7",
        "g = gen(); next(g); assert g.send(5) == 4",
        "with pytest.raises(StopIteration): g.send(7)",
    ),
    "subclasses of str and int": plain(
        "class S(str): pass",
        "assert f(S('ab')) == 'abab'",
        "class I(int): pass",
        "assert f(I(3)) == 6",
        "assert S('winter') == 'winter'",
    ),
    "a pytest within the tests": given(
        "tmp_path",
        "(tmp_path / 'test_in.py').write_text('def test_a(): assert 1 + 1 == 2\\ndef test_b(): assert 0\\n')",
        "out = subprocess.run([sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'test_in.py'], cwd=tmp_path, capture_output=True, text=True)",
        "assert out.returncode == 1",
        "assert '1 failed, 1 passed' in out.stdout",
        "assert f(1) == 2",
        before="import subprocess, sys\n",
    ),
    "a message that is made of what is expected": case(
        "for x, want in [(1, 2), (3, 6)]:",
        "    self.assertEqual(f(x), want, 'for %d expected %d' % (x, want))",
        "for x, more in [(1, 2), (3, 6)]:",
        "    self.assertEqual(f(x), more, msg=f'{x:d} should give {more:d}')",
        "text = 'abab'",
        "self.assertEqual(f('ab'), text, 'expected ' + text)",
        "self.assertEqual(f('c'), 'cc', f'{text}')",
    ),
    "iterators, which to ask uses up": case(
        "assert 'appleapple' in (f(x) for x in ['pear', 'apple', 'plum'])",
        "assert 'pearpear' in map(f, ['plum', 'pear'])",
        "rest = iter([f('first'), f('second'), 'third'])",
        "assert 'secondsecond' in rest",
        "assert next(rest) == 'third'",
        "self.assertIn('plumplum', iter([f('pear'), f('plum')]), 'it is missing')",
        "self.assertCountEqual((f(x) for x in [1, 2]), [4, 2])",
        "with self.assertRaises(AssertionError):",
        "    self.assertEqual(iter([f(1)]), [2])",
    ),
    "a context by which an assert must fail": plain(
        "with must_go_wrong():",
        "    assert f(3) == 7",
        "with Wrong():",
        "    assert f(2) == 5",
        "assert f(3) == 6",
        before="import contextlib\n@contextlib.contextmanager\ndef must_go_wrong():\n    try:\n        yield\n"
        "    except AssertionError:\n        return\n    pytest.fail('it did not')\n"
        "class Wrong:\n    def __enter__(self): return self\n    def __exit__(self, kind, *rest): return kind is AssertionError\n",
    ),
    "a context that is a parameter": marked(
        "@pytest.mark.parametrize('x, want, ends', [(1, 2, nullcontext()), (None, 0, pytest.raises(TypeError))])",
        "x, want, ends",
        "with ends:",
        "    assert f(x) == want",
        before="from contextlib import nullcontext\n",
    ),
    "its own id in the environment": marked(
        "@pytest.mark.parametrize('x, want', [(1, 2), (3, 6)])",
        "x, want",
        "assert f(x) == want",
        "assert os.environ['PYTEST_CURRENT_TEST'].endswith(f'[{x}-{x + x}] (call)')",
        before="import os\n",
    ),
    "a stack that may have raises": plain(
        "for x in (1, None):",
        "    with ExitStack() as stack:",
        "        if x is None:",
        "            stack.enter_context(pytest.raises(TypeError))",
        "        assert f(x) == 2",
        before="from contextlib import ExitStack\n",
    ),
    "an unbound method": case(
        "unittest.TestCase.assertEqual(self, f(3), 6)", "unittest.TestCase.assertIn(self, 6, [f(3)])"
    ),
    "digits that are looked for": plain(
        'assert f("09:30") in ["%02d:%02d" % (hour, minute) * 2 for hour in range(24) for minute in range(60)]',
        'assert "09:30" in ["%02d:%02d" % (hour, minute) for hour in range(f(12)) for minute in range(60)]',
        'assert "10007" in " ".join(map(str, range(f(10000))))',
    ),
    "tests of a base of the module": case(
        "self.assertEqual(f(self.x), self.want)",
        before="class Doubled:\n    x, want = 2, 4\n\n    def test_it_doubles(self):\n        assert f(self.x) == self.want\n\n"
        "    def test_it_is_left_out(self):\n        assert f(self.x) == 7\n\n",
        base="Doubled, unittest.TestCase",
        inside="    test_it_is_left_out = None\n    want = 4\n\n",
    ),
    "tests of a base that skips": case(
        "self.assertEqual(f(2), 4)",
        before="class Skipping(unittest.TestCase):\n    def test_it_skips(self):\n        self.skipTest('no more')\n\n",
        base="Skipping",
    ),
}
