"""Which files judged code may write over, of those that are root's."""

import json
import os
import re
import stat
import time
from contextlib import nullcontext

import processes
import pytest
import writable


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with a file of the image's, before test.sh began."""
    root = tmp_path / "app"
    (root / "data").mkdir(parents=True)
    (root / "data/out.txt").write_text("old")
    for module in (writable, processes):
        monkeypatch.setattr(module, "HERE", str(tmp_path))
    (tmp_path / "kept").write_text("golden/*\nanswers.txt")
    for mark in ("since", "began"):
        time.sleep(0.02)  # what the file system tells apart
        (tmp_path / mark).touch()
    time.sleep(0.02)
    return root


def may_write(path):
    return bool(stat.S_IMODE(path.lstat().st_mode) & 0o002)


def test_a_file_of_the_tree_is_opened(tree):
    writable.open_file(str(tree / "data/out.txt"), str(tree))
    assert may_write(tree / "data/out.txt")


@pytest.mark.parametrize("name", ["data/out.txt", "run.py"])
def test_a_file_goes_for_judged_codes_own_where_that_may_write_it(tree, name):
    file = tree / name
    file.touch(0o644)
    with pytest.raises(ValueError):
        writable.give_away(str(file), str(tree))
    file.chmod(0o646)
    writable.give_away(str(file), str(tree))
    assert not file.exists()


@pytest.mark.parametrize("later", [("began",), ("since", "began")])
def test_programs_are_opened_where_the_agent_made_them(tree, tmp_path, later):
    program, agents = tree / "main.py", later == ("began",)
    program.touch(0o644)
    for mark in later:
        time.sleep(0.02)
        (tmp_path / mark).touch()
    with nullcontext() if agents else pytest.raises(ValueError):
        writable.open_file(str(program), str(tree))
    assert may_write(program) is agents


@pytest.mark.parametrize("system", ["/tmp/", "/nowhere/"])
def test_what_is_graded_elsewhere_can_be_come_to_and_written_but_in_the_systems_folders(tmp_path, monkeypatch, system):
    monkeypatch.setattr(writable, "_SYSTEM", re.compile(system))
    shut, written = tmp_path / "shut", tmp_path / "shut/out"
    written.mkdir(parents=True)
    (written / "log").touch(0o600)
    shut.chmod(0o700)
    writable._open_graded(str(written / "log"))
    assert shut.stat().st_mode & 0o001
    assert may_write(written) == may_write(written / "log") == (system == "/nowhere/")


@pytest.mark.parametrize("most, opened", [(200, {"image.txt", "agent.txt"}), (0, {"agent.txt"})])
def test_data_of_the_agents_are_opened_and_few_of_the_images(tree, tmp_path, monkeypatch, most, opened):
    monkeypatch.setattr(writable, "TESTS", str(tmp_path))
    monkeypatch.setattr(writable, "_MOST_FILES", most)
    monkeypatch.setattr(writable, "workdir", lambda: str(tree))
    (tree / "data/out.txt").rename(tree / "data/image.txt")
    for name in ("since", "agent.txt", "began", "late.txt"):
        time.sleep(0.02)
        (tmp_path / name if name in ("since", "began") else tree / name).write_text("x")
    (tree / "program.py").write_text("x")
    writable.open_tree()
    assert {path.name for path in tree.rglob("*.*") if may_write(path)} == opened
    assert may_write(tree) and may_write(tree / "data")
    (tree / "late.txt").write_text("x")
    writable.open_tree()
    assert not may_write(tree / "late.txt")


@pytest.mark.parametrize("free", [True, False])
def test_modes_stay_where_the_tasks_files_look_at_them(tree, tmp_path, monkeypatch, free):
    monkeypatch.setattr(writable, "TESTS", str(tmp_path))
    if not free:
        (tmp_path / "modes").touch()
    monkeypatch.setattr(writable, "workdir", lambda: str(tree))
    (tmp_path / "since").touch()
    time.sleep(0.02)
    (tree / "agent.txt").write_text("x")
    (tree / "run").touch(0o755)
    (tree / "shut").mkdir(0o700)
    time.sleep(0.02)
    (tmp_path / "began").unlink()
    (tmp_path / "began").touch()
    writable.open_tree()
    assert may_write(tree / "agent.txt") == may_write(tree / "shut") == free
    assert not may_write(tree / "run") and may_write(tree / "data")


def test_a_folder_of_what_decides_or_is_test_shs_can_be_added_to_alone(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(writable, "TESTS", str(tmp_path))
    monkeypatch.setattr(writable, "workdir", lambda: str(tree))
    for name in ("plain/x", "late/y", "repo/.git/config", "golden/z", "in/conftest.py"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("x")
    time.sleep(0.02)
    for name in ("since", "began", "app/late/y"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).write_text("x")
        time.sleep(0.02)
    writable.open_tree()
    held = {path.name for path in tree.rglob("*") if path.is_dir() and path.stat().st_mode & stat.S_ISVTX}
    assert held == {"late", "repo", "golden", "in"}
    assert tree.stat().st_mode & stat.S_ISVTX
    assert not (tree / "repo/.git").stat().st_mode & 0o002


@pytest.mark.parametrize("name", ["conftest.py", "setup.cfg", "answers.txt", "golden/x", ".git/config", "late"])
def test_what_decides_is_not(tree, tmp_path, name):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    if name != "late":
        (tmp_path / "began").unlink()
        time.sleep(0.02)
        (tmp_path / "began").touch()
    with pytest.raises(ValueError):
        writable.open_file(str(path), str(tree))
    assert not may_write(path)


def test_nothing_is_opened_through_links_or_outside(tree, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("x")
    (tree / "link").symlink_to(outside)
    (tree / "folder").symlink_to(tmp_path)
    (tree / "hard").hardlink_to(outside)
    for path in (tree / "link", tree / "folder/outside", tree / "hard", tree / "../outside", tree / "data"):
        with pytest.raises((OSError, ValueError)):
            writable.open_file(str(path), str(tree))
    assert not may_write(outside)


def test_each_question_has_an_answer(tree):
    reader, writer = os.pipe()
    answer = writable.answerer(writer, str(tree))
    for line in (
        {"kind": "write", "path": str(tree / "data/out.txt")},
        {"kind": "write", "path": "/x"},
        {"kind": "end"},
    ):
        answer(json.dumps(line).encode())
    answer(b'"kind": "write" {')
    assert os.read(reader, 9) == b"..."
    assert may_write(tree / "data/out.txt")
