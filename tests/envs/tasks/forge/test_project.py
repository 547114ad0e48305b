"""The project that tasks are made from."""

import zipfile

import pytest

from envs.tasks.forge.project import fetch_project, read_project
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
        await fetch_project("--index-url=x", tmp_path)


@pytest.mark.parametrize("trees", [0, 2])
async def test_a_release_of_another_form_is_refused_with_the_remedy(tmp_path, monkeypatch, trees):
    async def downloaded(requirement, folder):
        folder.mkdir()
        with zipfile.ZipFile(folder / "shapes-1.zip", "w") as archive:
            for number in range(trees):
                archive.writestr(f"{number}/a.py", "")

    monkeypatch.setattr("envs.tasks.forge.project._download", downloaded)
    with pytest.raises(BadTask, match=r"shapes-1\.zip is no archive of one source tree: .*; give the tree itself"):
        await fetch_project("shapes", tmp_path)
