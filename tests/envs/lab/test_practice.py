"""Made-up tasks as directories."""

from __future__ import annotations

from pathlib import Path

from envs.lab.kinds import KINDS
from envs.lab.practice import write_tasks
from envs.lab.synthetic import Example, examples
from envs.tasks.harbor import load_tasks


def test_made_up_tasks_become_directories_that_share_worlds(tmp_path: Path) -> None:
    folders = write_tasks(examples(60, 3), tmp_path)
    tasks = load_tasks(tmp_path)
    assert len(tasks) == len(folders) > 50
    assert {folder.name.rpartition("-")[0] for folder in folders} == {kind.name.replace("_", "-") for kind in KINDS}
    worlds = {tuple(sorted(str(p.relative_to(f)) for p in (f / "environment").rglob("*"))) for f in folders}
    assert len(worlds) <= 3


def test_tasks_of_a_world_share_no_name(tmp_path: Path) -> None:
    one = Example("a", "Delete x", "rm -r x", {"x/README": "text\n"})
    same = Example("b", "Make x/y", "mkdir -p x/y")
    (folder,) = write_tasks([one, same], tmp_path)
    assert folder.name.startswith("a-")


def test_what_would_change_nothing_is_no_task(tmp_path: Path) -> None:
    nothing = Example("copy_file", "Copy a.txt to a.txt", "true", {"a.txt": "text\n"})
    assert write_tasks([nothing], tmp_path) == []
