"""What is heard of a process of judged code."""

import json
import os
import time

import processes
import pytest


def listened(*lines, status=3):
    """What is heard of a child that writes lines and ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"\n".join(lines) + b"\n")
        os._exit(status)
    os.close(writer)
    return processes.listen(reader, child, None, set())


def test_messages_are_heard_until_the_child_ends():
    messages, waited = listened(json.dumps({"kind": "test"}).encode(), json.dumps({"kind": "end"}).encode())
    assert messages == [{"kind": "test"}, {"kind": "end"}]
    assert processes.status_of(waited) == 3


def test_what_is_no_message_is_passed_over():
    assert listened(b"\xff\xfe", b"{", b"5", b'{"kind": "end"}')[0] == [{"kind": "end"}]


def test_a_signal_is_a_status_as_a_shell_has_it():
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), 9)
    assert processes.status_of(os.waitpid(child, 0)[1]) == 137


@pytest.mark.parametrize("path, inside", [("lib/a.py", True), ("../a.py", False), ("link/a.py", False), (None, False)])
def test_a_path_is_within_a_folder_by_where_it_leads(tmp_path, path, inside):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to("/etc")
    assert processes.within(path and str(tmp_path / "tree" / path), str(tmp_path / "tree")) is inside


def test_judged_code_runs_as_nobody_unless_the_task_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    monkeypatch.setenv("JUDGED_UID", "0")  # which test.sh may have taken of a file of the agent's
    assert processes.judged_user() == 65534
    (tmp_path / "uid").write_text("1234\n")
    assert processes.judged_user() == 1234


def test_judged_code_may_make_files_in_folders_of_the_tree_that_are_named_to_it(tmp_path, monkeypatch):
    tree, opened = tmp_path / "app", tmp_path / "opened"
    for name in ("here", "named", "other"):
        (tree / name).mkdir(parents=True, mode=0o755)
    (tree / "link").symlink_to(tree / "other")
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    (tmp_path / "workdir").symlink_to(tree)
    monkeypatch.chdir(tree / "here")

    def open_to_all():
        return {path.name for path in tree.iterdir() if not path.is_symlink() and path.stat().st_mode & 0o002}

    processes.hand_over(["../named"])
    assert open_to_all() == set(), "a list of tests keeps the tree as it is"
    opened.touch()
    processes.hand_over(["../named", "../link", str(tmp_path)])
    assert open_to_all() == {"here", "named"}


def test_folders_in_one_in_tmp_that_is_named_are_opened_but_for_what_is_expected(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    monkeypatch.setattr(processes, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(processes, "_let_in", lambda path, root: None)
    (tmp_path / "workdir").symlink_to(tmp_path / "app")
    for name in ("named/made/deep", "named/expected/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "named/link").symlink_to(tmp_path / "opened")
    (tmp_path / "opened").touch(0o600)
    processes.hand_over([str(tmp_path / "named")])
    opened = {path.name for path in tmp_path.glob("named/**/") if path.stat().st_mode & 0o002}
    assert opened == {"named", "made", "deep"} and not (tmp_path / "named/expected/deep").stat().st_mode & 0o002
    assert not (tmp_path / "opened").stat().st_mode & 0o004


def test_what_is_opened_to_judged_code_lies_behind_no_link(tmp_path):
    root, other = tmp_path / "app", tmp_path / "other"
    for folder in (root / "there", other / "there"):
        folder.mkdir(parents=True, mode=0o755)
    (root / "link").symlink_to(other)
    (root / "last").symlink_to(other / "there")
    for path in ("link/there", "last", "../other/there", "nowhere"):
        with pytest.raises(OSError):
            processes.allow(str(root / path), str(root), 0o007)
    processes.allow(str(root / "there"), str(root), 0o007)
    processes.allow(str(root), str(root), 0o001)
    modes = {path: path.stat().st_mode & 0o007 for path in (root / "there", other / "there")}
    assert modes == {root / "there": 0o007, other / "there": 0o005}


def test_settings_that_judged_code_made_are_removed_above_the_tests_too(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "judged_user", os.geteuid)
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    folder = tmp_path / "app/tests/unit"
    folder.mkdir(parents=True)
    (folder / "tox.ini").touch()
    time.sleep(0.02)  # what the file system tells apart
    (tmp_path / "began").touch()
    for place in (tmp_path, tmp_path / "app", tmp_path / "app/tests", folder):
        (place / "pytest.ini").touch()
    (folder / "data.ini").touch()
    processes.open_folders(str(tmp_path / "app"), [str(folder / "test_a.py")])
    assert sorted(path.name for path in tmp_path.rglob("*.ini")) == ["data.ini", "tox.ini"]
