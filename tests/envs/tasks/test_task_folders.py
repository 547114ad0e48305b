"""Folders of tasks: links that lead out of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.tasks.adapters import harbor_folders, plain_folder, terminal_bench
from envs.tasks.harbor import load_tasks
from envs.tasks.task_folders import check_links, find_below
from envs.types import BadTask, BadTasks


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("instruction.md", "task.toml", "tests", "tests/lib/test_a.py", "environment", "environment/Dockerfile"),
        *("steps", "steps/one/instruction.md", "steps/one/workdir", "steps/one/tests/test.sh"),
    ],
)
def test_a_file_that_is_a_link_out_of_the_tasks_is_refused_by_name(tmp_path: Path, name: str) -> None:
    secret = put(tmp_path / "home/secret", "a key")
    link = tmp_path / "set/task" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(secret if "." in link.name or link.name == "Dockerfile" else secret.parent)
    with pytest.raises(BadTask, match=f"^task task: {name} is a link to .*/home.*, outside of .*/set; put a copy"):
        check_links(tmp_path / "set/task", tmp_path / "set")


def test_links_among_the_tasks_and_into_the_sandbox_are_not(tmp_path: Path) -> None:
    put(tmp_path / "shared/tests/test.sh")
    task = put(tmp_path / "task/environment/Dockerfile").parents[1]
    (task / "tests").symlink_to("../shared/tests")
    (task / "environment/python").symlink_to("/bin/sh")
    (task / "tests/gone").symlink_to("/only/in/the/sandbox")
    check_links(task, tmp_path)


@pytest.mark.parametrize(
    ("files", "read"),
    [
        (("task.toml", "tests/test.sh"), lambda root, out: load_tasks(root)),
        (("task.toml", "tests/test.sh"), harbor_folders.load),
        (("repo/a.py", "tests/test_a.py"), plain_folder.load),
        (("task.yaml", "Dockerfile", "run-tests.sh", "tests/test_a.py"), terminal_bench.load),
    ],
)
def test_every_reader_of_tasks_refuses_them(tmp_path: Path, files: tuple[str, ...], read: object) -> None:
    for file in files:
        put(tmp_path / "set/task" / file, "instruction: do it")
    (tmp_path / "set/task/instruction.md").symlink_to(put(tmp_path / "secret", "a key"))
    assert callable(read)
    with pytest.raises(BadTasks, match=r"instruction\.md is a link to"):
        read(tmp_path / "set", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_are_found_once_and_hidden_ones_not_at_all(tmp_path: Path) -> None:
    for name in ("a/task", "b/task", ".git/task", "b/task/inner/task"):
        put(tmp_path / name / "task.toml")
    (tmp_path / "b/loop").symlink_to(tmp_path)
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "odd.tar.gz").symlink_to(tmp_path / "odd.tar.gz")
    found = find_below(tmp_path, lambda path: (path / "task.toml").is_file())
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a/task", "b/task"]
