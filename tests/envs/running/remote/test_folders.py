"""Folders of tasks on their way to another machine."""

import fcntl
import tarfile
import tempfile
from pathlib import Path

import pytest

from envs.running.remote.folders import Folders, map_paths, pack, restore_paths, temporary_folder, unpack
from envs.types import Hidden, Step, Task


def folder(path):
    (path / "inner").mkdir(parents=True)
    (path / "inner/run.sh").write_text("#!/bin/sh\n")
    (path / "inner/run.sh").chmod(0o750)
    (path / "link").symlink_to("inner/run.sh")
    (path / "dangling").symlink_to("nowhere")
    return path


def test_a_folder_arrives_as_it_was(tmp_path):
    there = tmp_path / "there"
    unpack(pack(folder(tmp_path / "here")), there)
    assert (there / "inner/run.sh").read_text() == "#!/bin/sh\n"
    assert (there / "inner/run.sh").stat().st_mode & 0o777 == 0o750
    assert (there / "link").readlink() == Path("inner/run.sh")
    assert (there / "dangling").is_symlink()


def test_a_folder_arrives_with_a_python_before_3_11_4(tmp_path, monkeypatch):
    extract = tarfile.TarFile.extractall

    def without_filter(archive, path, members=None, *, numeric_owner=False):
        extract(archive, path, members, numeric_owner=numeric_owner)

    monkeypatch.setattr(tarfile.TarFile, "extractall", without_filter)
    unpack(pack(folder(tmp_path / "here")), tmp_path / "there")
    assert (tmp_path / "there/inner/run.sh").read_text() == "#!/bin/sh\n"


def test_a_file_arrives_as_it_was(tmp_path):
    (tmp_path / "data").write_bytes(b"\0\1")
    unpack(pack(tmp_path / "data"), tmp_path / "a/b")
    assert (tmp_path / "a/b").read_bytes() == b"\0\1"


def test_the_same_folder_is_packed_to_the_same_bytes(tmp_path):
    assert pack(folder(tmp_path / "here")) == pack(tmp_path / "here")


def test_a_tasks_paths_lead_to_what_was_unpacked(tmp_path):
    hidden = Hidden(tests=folder(tmp_path / "tests"), shared_tests=tmp_path / "tests")
    task = Task("t", "Do it.", hidden, context=folder(tmp_path / "context"), steps=[Step("s", "First.", hidden)])
    sent, used = Folders().replace_paths(task)
    assert len(used) == 2, "a folder that is named several times is sent once"
    for digest, path in used.items():
        unpack(pack(path), tmp_path / "there" / digest)
    there = restore_paths(sent, tmp_path / "there")
    for path in (there.context, there.hidden.tests, there.hidden.shared_tests, there.steps[0].hidden.tests):
        assert path.is_relative_to(tmp_path / "there")
        assert (path / "inner/run.sh").is_file()
    assert (there.id, there.instruction) == (task.id, task.instruction)


def test_a_path_that_leads_nowhere_stays(tmp_path):
    task = Task("t", "Do it.", metadata={"where": [tmp_path / "nowhere"]})
    sent, used = Folders().replace_paths(task)
    assert (sent.metadata, used) == (task.metadata, {})
    assert restore_paths(sent, tmp_path) == task


def test_paths_are_found_in_whatever_holds_them():
    held = {"a": (Path("x"), [Path("y")]), "b": 1}
    assert map_paths(held, lambda path: path / "z") == {"a": (Path("x/z"), [Path("y/z")]), "b": 1}


class TestAWorkersOwnFolder:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path

    def test_it_is_removed_in_the_end(self, place):
        with temporary_folder() as folder:
            (folder / "tokenizer").mkdir()
        assert list(place.iterdir()) == []

    def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_in_use_is_not(self, place):
        with temporary_folder() as living:
            unpack(pack(folder(place / "task")), place / "atropos-workplace-killed/task")
            (place / "another-program").mkdir()
            with temporary_folder():
                assert not (place / "atropos-workplace-killed").exists()
                assert living.exists()
                assert (place / "another-program").exists()

    def test_a_folder_that_another_process_has_taken_for_one_that_was_left_is_made_again(self, place, monkeypatch):
        flock, taken = fcntl.flock, []

        def late(place_, how):
            if not taken and how == fcntl.LOCK_EX:
                taken.append(next(place.iterdir()))
                taken[0].rmdir()
            flock(place_, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with temporary_folder() as folder:
            assert folder.exists() and folder not in taken
