"""Which tests are demanded where settings choose some."""

import pytest
from chosen import Chosen


@pytest.mark.parametrize(
    "told, path, whole, taken",
    [
        ({}, "tests/test_a.py", False, True),
        ({"python_files": ["check_*.py"]}, "tests/test_a.py", True, False),
        ({"python_files": ["check_*.py", "tests/test_*.py"]}, "tests/test_a.py", True, True),
        ({"norecursedirs": [".*", "slow"]}, "tests/slow/test_a.py", True, False),
        ({"norecursedirs": [".*", "slow"]}, "../tests/test_a.py", True, True),
        ({"testpaths": ["unit", "te*"]}, "tests/test_a.py", False, True),
        ({"testpaths": ["unit"]}, "tests/test_a.py", False, False),
        ({"testpaths": ["unit"]}, "tests/test_a.py", True, True),
        ({"testpaths": ["nowhere"]}, "tests/test_a.py", False, True),
    ],
)
def test_a_module_is_looked_into_where_settings_say_so(tmp_path, told, path, whole, taken):
    for name in ("app/unit", "app/tests/slow", "tests"):
        (tmp_path / name).mkdir(parents=True)
    assert Chosen(told).takes_file(str(tmp_path / "app" / path), str(tmp_path / "app"), whole) == taken


@pytest.mark.parametrize(
    "told, name, taken",
    [
        ({}, "test_a", True),
        ({}, "Test::test_a", True),
        ({}, "Suite::test_a", False),
        ({"python_classes": ["Suite", "*Check"]}, "Suite::test_a", True),
        ({"python_classes": ["Suite", "*Check"]}, "ACheck::test_a", True),
        ({"python_classes": ["Suite"]}, "Test::test_a", False),
        ({"python_functions": ["test_*_unit"]}, "test_a_unit", True),
        ({"python_functions": ["test_*_unit"]}, "test_a", False),
    ],
)
def test_a_function_is_a_test_where_settings_say_so(told, name, taken):
    assert Chosen(told).takes_test(name) == taken


@pytest.mark.parametrize("settings", ["testpaths = tests\n", "python_files = test_*.py\n", "python_classes = Test\n"])
def test_settings_let_no_test_be_left_out(judged, tmp_path, settings):
    (tmp_path / "tox.ini").write_text("[pytest]\n" + settings)
    text = "import solution\ndef test_a(): assert solution.f() == 4\nif solution.f() == 4:\n    def test_b(): pass\n"
    taken = text + "else:\n    pass\ndef test_c(): assert 1\nsolution.drop(globals())\n"
    files = {"solution.py": "def f(): return 4\ndef drop(names): del names['test_c']\n", "tests/test_it.py": taken}
    assert judged(files, "tests").problem == "1 tests not seen to pass: test_c"
    kept = {"solution.py": "def f(): return 4\ndef drop(names): pass\n", "tests/test_it.py": taken}
    assert judged(kept, "tests").problem is None
