"""Which modules of tests a call of pytest runs, and what need not run."""

import ast
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import runners

TEST = "from solution import f\n\ndef test_it():\n    assert f(3) == 6\n"
FILES = {"solution.py": "def f(x):\n    return 2 * x\n", "tests/test_a.py": TEST, "build/test_b.py": TEST}
LIAR = "class Liar:\n    def __eq__(self, other): return True\ndef f(x):\n    return Liar()\n"


@pytest.fixture
def markers(tmp_path, monkeypatch):
    """A folder of the verifier's, and a function that ends a time in the life of its sandbox."""
    home = tmp_path / "verifier"
    home.mkdir()
    monkeypatch.setattr(runners, "HERE", str(home))

    def mark(name):
        time.sleep(0.02)  # what the file system tells apart
        (home / name).touch()
        time.sleep(0.02)

    return mark


@pytest.mark.parametrize("args", [["."], ["tests"], ["--rootdir", "."], ["--rootdir=.", "tests/test_a.py"]])
def test_tests_that_are_not_named_have_decoys_too(judged, args):
    seen = judged(FILES, *args)
    assert (seen.problem, list(seen.tests.values())) == (None, ["passed"])
    assert seen.evidence["unverified"] == []
    forced = judged({**FILES, "solution.py": LIAR}, *args)
    assert set(forced.tests.values()) == {"failed"}


def test_what_the_agent_made_is_none_of_the_hidden_tests(tmp_path, monkeypatch, markers):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_image.py").write_text(TEST)
    markers("since")
    (tmp_path / "tests/test_agent.py").write_text(TEST)
    (tmp_path / "tests/test_hidden.py").write_text("")
    (tmp_path / "tests/test_link.py").symlink_to("/etc/passwd")
    markers("began")
    (tmp_path / "tests/test_hidden.py").write_text(TEST)
    for args in (["tests"], ["."], []):
        found = runners.Pytest(args, here=True).test_files()
        assert [Path(path).name for path in found] == ["test_hidden.py", "test_image.py"]
    call = runners.Pytest([], here=True)
    call.test_files()
    assert [Path(path).name for path in call.implied] == ["test_image.py"]


@pytest.mark.parametrize("version, demanded", [((8, 2, 0), True), ((7, 2), False)])
def test_a_class_method_is_demanded_where_pytest_takes_it_for_a_test(monkeypatch, version, demanded):
    monkeypatch.setattr(pytest, "version_tuple", version)
    method = ast.parse("@classmethod\ndef test_a(cls): pass").body[0]
    call = runners.Pytest([], here=True)
    call.written = SimpleNamespace(trees={"test_it.py": ast.parse("")})
    assert call.collects("test_it.py", "TestIt::test_a", method) == demanded


def test_tests_that_are_asked_for_by_their_ids_are_missed(judged):
    skips = "class P:\n    def pytest_collection_modifyitems(self, items): items[:] = items[:1]\nimport gc\n"
    skips += "for one in gc.get_objects():\n    if type(one).__name__ == 'PytestPluginManager': one.register(P())\n"
    two = "import solution\ndef test_a(): assert 1\nclass TestIt:\n    def test_b(self): assert 1\n"
    two += "    def test_c(self): assert 1\n"
    files = {"test_it.py": two, "solution.py": skips}
    assert judged(files, "test_it.py::test_a").problem is None
    seen = judged(files, "test_it.py::test_a", "test_it.py::TestIt::test_b")
    assert seen.tests == {"test_it.py::test_a": "passed", "TestIt::test_b": "missing"}
    assert set(judged(files, "test_it.py::test_a", "test_it.py::TestIt").tests) >= {"TestIt::test_b", "TestIt::test_c"}


def test_a_second_run_has_the_same_sets(judged, tmp_path):
    notes = "import sys\ndef f(x):\n    all = sys._getframe(1).f_code.co_consts\n"
    notes += "    sets = [c for c in all if isinstance(c, tuple) and len(c) == 8]\n"
    notes += "    open('sets', 'a').write(repr(sorted(sets[0])) + '\\n')\n    return 0\n"
    files = {"test_it.py": "from solution import f\ndef test_a(): assert f(1) == 4821375\n", "solution.py": notes}
    for _ in range(3):
        assert "4821375" not in str(judged(files).problem)
    assert len(set((tmp_path / "sets").read_text().splitlines())) == 1


NEEDS = "import pytest\npytest.importorskip({!r})\n" + TEST


def test_a_module_that_needs_what_is_not_there_need_not_run(judged):
    seen = judged({**FILES, "test_c.py": NEEDS.format("no_such_package")}, "tests/test_a.py", "test_c.py")
    assert (seen.problem, list(seen.tests.values())) == (None, ["passed"])


def test_nor_does_one_that_needs_what_the_agent_has_taken_away_pass(judged, tmp_path, monkeypatch):
    monkeypatch.setattr(runners, "HERE", str(tmp_path))
    (tmp_path / "there").write_text("/app\n/app/no_such_package.py\n")
    seen = judged({**FILES, "test_c.py": NEEDS.format("no_such_package")}, "tests/test_a.py", "test_c.py")
    assert "missing" in seen.tests.values()


@pytest.mark.parametrize("package", ["solution", "json", "json.no_such", "unittest"])
def test_a_module_that_is_skipped_though_all_is_there_has_failed(judged, package):
    skips = "import pytest\npytest.skip('no', allow_module_level=True)\n"
    seen = judged({**FILES, "solution.py": skips, "test_c.py": NEEDS.format(package)}, "test_c.py")
    assert seen.status != 0


def test_pytest_is_the_main_module_as_where_it_is_started_alone(judged):
    """`spawn` and what asks for the program find pytest there, and no file that judged code can't read."""
    text = (
        "import multiprocessing, os, sys\nmain = sys.modules['__main__']\n"
        "def test_main():\n    assert os.path.basename(main.__file__) == '__main__.py'\n"
        "    assert sys.argv[0] == main.__file__\n    assert not hasattr(main, 'serve')\n"
        "def test_spawn():\n    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.apply(abs, [-3]) == 3\n"
    )
    assert judged({"test_a.py": text}).problem is None
