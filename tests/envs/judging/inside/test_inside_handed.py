"""The modules of tests, as they are handed on."""

import marshal
import sys

import handed
import pytest
import sites
from handed import handed_on
from key import Key
from written import Written


@pytest.fixture
def handing(tmp_path):
    """Hands on modules; returns their code, and the key."""

    def hand(files, args=(), readable=False):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        written, key = Written([str(tmp_path / name) for name in files if name.startswith("test")]), Key()
        spared = {path: set() for path in written.files}
        found = [marshal.loads(code) for code in handed_on(written, key, str(tmp_path), args, spared, readable)]
        return found, key

    return hand


CASES = """
import pytest

@pytest.mark.parametrize("x, twice", [(4, 8)])
def test_f(x, twice):
    assert x * 2 == twice
"""


def test_each_module_is_compiled_with_what_it_expects_among_decoys(handing):
    (code,), key = handing({"test_a.py": "def test_a():\n    assert len('abc') == 3\n"})
    names = {}
    exec(code, names)
    assert "@probe" in names["test_a"].__code__.co_names
    assert len(key.asked) == 1


def test_a_module_that_is_no_python_is_handed_on_as_its_error(handing):
    (error, code), _ = handing({"test_a.py": "def test_a(:\n", "test_b.py": "def test_b(): pass\n"})
    assert isinstance(error, str)
    assert "test_b" in code.co_names


def test_tests_are_judged_as_they_are_where_we_fail(handing, monkeypatch):
    def fails(path, tree, key, *_):
        key.asked[key.site(path, tree)] = [1]
        raise RecursionError

    monkeypatch.setattr(sites, "plant", fails)
    (code,), key = handing({"test_a.py": "def test_a():\n    assert len('abc') == 3\n"})
    names = {}
    exec(code, names)
    names["test_a"]()
    assert key.asked == {}


@pytest.mark.parametrize(
    ("args", "files"),
    [
        (("-k", "f"), {}),
        (("test_a.py::test_f[4-8]",), {}),
        ((), {"conftest.py": "def pytest_collection_modifyitems(items): print(items[0].nodeid)\n"}),
    ],
)
def test_ids_of_tests_stay_where_something_speaks_of_them(handing, monkeypatch, args, files):
    renamed = []
    monkeypatch.setattr(sites, "plant", lambda *rest: renamed.append(rest[5]))
    handing({"test_a.py": CASES})
    handing({"test_a.py": CASES, **files}, args)
    assert renamed == [True, False]
    assert handed.sites is sites


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no columns before")
@pytest.mark.parametrize("readable", [False, True])
def test_how_long_an_expected_value_was_written_can_not_be_read_off_the_code(handing, readable):
    text = "def test_a():\n    assert 'ab'.upper() == 'AB' and not\\\n 0\n"
    (code,), _ = handing({"test_a.py": text}, readable=readable)
    places = [place for one in code.co_consts if hasattr(one, "co_positions") for place in one.co_positions()]
    assert any(end != start for _, _, start, end in places) == readable
    assert any(first != last for first, last, _, _ in places) == readable
    assert {2} <= {first for first, _, _, _ in places}
