"""Which modules of tests a call of pytest runs, and what need not run."""

import ast
import time
from pathlib import Path

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
    assert runners.Pytest([], here=True).collects("TestIt::test_a", method) == demanded


NEEDS = "import pytest\npytest.importorskip({!r})\n" + TEST


def test_a_module_that_needs_what_is_not_there_need_not_run(judged):
    seen = judged({**FILES, "test_c.py": NEEDS.format("no_such_package")}, "tests/test_a.py", "test_c.py")
    assert (seen.problem, list(seen.tests.values())) == (None, ["passed"])


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
