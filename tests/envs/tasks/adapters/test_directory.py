"""The Harbor directory that an adapter writes."""

import ast
import tomllib
from functools import partial
from pathlib import Path

import pytest

from envs.tasks.adapters import ADAPTERS
from envs.tasks.adapters.directory import convert_each, make_task_toml, parsing_python, test_folder, write_task
from envs.tasks.harbor import directory_digest, load_task
from envs.types import BadTask

test_folder.__test__ = False  # not a test for pytest

FILES = {
    "task.toml": make_task_toml("sample"),
    "instruction.md": "Do it.",
    "environment/Dockerfile": b"FROM scratch\n",
    "tests/test.sh": "true",
}


def test_a_task_is_written_in_place_of_an_older_one_with_its_id(tmp_path):
    for files in ({**FILES, "tests/old": "x"}, FILES):
        making = partial(write_task, task_id="owner/name 1", files=files)
        (task,) = convert_each([("here", making)], tmp_path, "task", "here")
    assert (task.id, task.instruction, task.tags) == ("owner-name-1", "Do it.", ("adapted", "sample"))
    assert [path.name for path in task.hidden.tests.iterdir()] == ["test.sh"]


def test_a_file_with_the_tasks_name_is_not_replaced(tmp_path):
    (tmp_path / "one").write_text("mine")
    with pytest.raises(BadTask, match="one is a file; give another --out, or rename it"):
        convert_each([("here", partial(write_task, task_id="one", files=FILES))], tmp_path, "task", "here")
    assert (tmp_path / "one").read_text() == "mine"


def test_files_and_folders_are_copied_with_their_links(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    (source / "b").symlink_to("a")
    files = {**FILES, "environment/repo": source, "environment/a": source / "a"}
    task = load_task(write_task(tmp_path / "out", "one", files))
    assert (task.context / "a").read_text() == "1"
    assert (task.context / "repo/b").is_symlink()


def test_protected_paths_are_taken_as_they_are_and_folders_with_all_below_them(tmp_path):
    odd = ["tests/\U0001f600.py", "tests/a\x7fb.py", 'tests/"é".py']
    text = make_task_toml("sample", protected=odd, tags=["\U0001f600"])
    assert tomllib.loads(text)["metadata"]["protected_paths"] == sorted(odd)
    text = make_task_toml("sample", protected=["tests/test_[a].py"], folders=["tests"], tags=["slow"])
    task = load_task(write_task(tmp_path, "one", {**FILES, "task.toml": text}))
    assert task.hidden.protected == ("tests/*", "tests/test_[[]a].py")
    assert "slow" in task.tags


@pytest.mark.parametrize(
    "path, folder",
    [("tests/test_a.py", "tests"), ("lib/tests/deep/x.py", "lib/tests"), ("a/test/b/tests/c.py", "a/test/b/tests")],
)
def test_the_innermost_folder_of_tests_is_found(path, folder):
    assert test_folder(path) == folder
    assert test_folder("src/" + path.rpartition("/")[2]) == ""


SOURCES = {
    "harbor": {"instruction.md": "Do it.", "tests/test.sh": "true"},
    "terminal-bench": {
        "task.yaml": "instruction: Do it.",
        "Dockerfile": "FROM scratch",
        "run-tests.sh": "true",
        "tests/test_outputs.py": "",
    },
    "folder": {"instruction.md": "Do it.", "repo/a.py": "", "tests/test_a.py": "def test_a(): assert True"},
}


def test_a_task_is_read_once_for_its_digest(tmp_path, monkeypatch):
    (tmp_path / "data").write_bytes(b"x" * 2**21)
    reads = 0

    def opened(path, *args, real=Path.open, **options):
        nonlocal reads
        reads += path.name == "data" and args == ("rb",)
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    making = partial(write_task, task_id="one", files={**FILES, "environment/data": tmp_path / "data"})
    (task,) = convert_each([("here", making)], tmp_path / "out", "task", "here")
    assert reads == 1
    assert task.digest == directory_digest(tmp_path / "out/one")


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("source", "out"), [("set", "set"), ("set", "set/out"), ("set/one", "set")])
def test_a_task_is_never_written_over_the_directory_that_it_is_made_of(tmp_path, kind, source, out):
    for name, text in SOURCES[kind].items():
        (tmp_path / "set/one" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set/one" / name).write_text(text)
    with pytest.raises(BadTask, match="tasks could be written over; give another --out"):
        ADAPTERS[kind](tmp_path / source, tmp_path / out)
    assert {name: (tmp_path / "set/one" / name).read_text() for name in SOURCES[kind]} == SOURCES[kind]


@pytest.mark.parametrize(
    "source", ["x = (", "x = '\ud83d'", "x = '\0'", f"x = {'-' * 20_000}1"], ids=["open", "half", "nul", "deep"]
)
def test_a_source_that_can_not_be_parsed_is_named(source):
    with pytest.raises(BadTask, match=r"row 3: test_a\.py is not Python: .+"), parsing_python("row 3: test_a.py"):
        ast.parse(source)
