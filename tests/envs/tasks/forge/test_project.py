"""The project that tasks are made from."""

import pytest

from envs.tasks.forge.project import obtain, read_project
from envs.types import BadTask


def test_a_source_tree_is_sorted_into_library_and_tests(library):
    (library / "src/shapes_test.py").write_text("")
    (library / "conftest.py").write_text("")
    (library / "setup.py").write_text("")
    project = read_project(library)
    assert project.import_path == "src"
    assert project.modules == ("src/shapes.py",)
    assert project.top_level == ("shapes",)
    assert project.tests == ("src/shapes_test.py", "tests/test_area.py", "tests/test_halves.py")
    assert project.test_roots == ("conftest.py", "src/shapes_test.py", "tests")


@pytest.mark.parametrize("gone, missing", [("src/shapes.py", "Python module"), ("tests", "test module")])
def test_a_tree_without_library_or_tests_is_refused(library, gone, missing):
    path = library / gone
    for file in [path] if path.is_file() else path.iterdir():
        file.unlink()
    with pytest.raises(BadTask, match=f"holds no {missing}"):
        read_project(library)


async def test_a_name_that_pip_could_take_for_an_option_is_refused(tmp_path):
    with pytest.raises(BadTask, match="neither a directory nor a package name"):
        await obtain("--index-url=x", tmp_path)
