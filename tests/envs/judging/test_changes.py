"""What the agent's work is: what is carried, and what stays as it was."""

import errno
import io
import tarfile

import pytest
from stopwatch import Stopwatch
from tree_samples import ROOT, archive, carried, folder, member, start, symlink

from envs.judging import changes
from envs.judging.areas import Start
from envs.judging.changes import collect_changes, compare
from envs.types import InfraError


def test_new_changed_and_deleted_paths_are_told_apart():
    before = start(member("kept", b"1"), member("changed", b"1"), member("deleted", b"1"))
    after = archive(member("kept", b"1"), member("changed", b"2"), member("new", b"\x00\xff"), folder("empty"))
    changes = compare(before, after, ROOT)
    assert (changes.added, changes.changed, changes.deleted) == (("empty", "new"), ("changed",), ("deleted",))
    assert carried(changes) == {
        "changed": (tarfile.REGTYPE, b"2"),
        "empty": (tarfile.DIRTYPE, ""),
        "new": (tarfile.REGTYPE, b"\x00\xff"),
    }


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [
        ([member("x")], [member("x", mode=0o755)], 0o755),
        ([], [member("x", mode=0o6755)], 0o755),
        ([], [folder("x", 0)], 0o700),
    ],
    ids=["a mode alone", "setuid and setgid", "a directory that its owner must open"],
)
def test_permissions_are_carried_and_no_other_modes(before, after, mode):
    with tarfile.open(fileobj=io.BytesIO(compare(start(*before), archive(*after), ROOT).archive)) as tar:
        assert tar.getmember("x").mode == mode


def test_a_directory_of_another_mode_keeps_what_is_in_it():
    before, after = [folder("x"), member("x/y"), folder("z"), member("w")], [folder("x", 0o700), member("x/y")]
    changes = compare(start(*before), archive(*after, member("z"), folder("w")), ROOT)
    assert (changes.changed, changes.folders, changes.deleted) == (("w", "x", "z"), ("x",), ())


def test_a_directory_in_place_of_a_file_is_carried():
    changes = compare(start(member("x", b"1")), archive(folder("x"), member("x/y", b"2")), ROOT)
    assert (changes.changed, changes.added) == (("x",), ("x/y",))


def test_links_come_last_so_that_nothing_is_written_through_them():
    tree = [symlink("a", "z"), folder("z"), member("z/f", b"1")]
    changes = compare({}, archive(*tree), ROOT)
    assert list(carried(changes)) == ["z", "z/f", "a"]


def test_too_much_change_is_a_result(monkeypatch):
    monkeypatch.setattr(changes, "MAX_CHANGED_BYTES", 10)
    tree = [member("old", b"1" * 50)]
    assert compare(start(*tree), archive(*tree, member("new", b"1" * 10)), ROOT).problem is None
    assert "changed paths" in compare(start(*tree), archive(*tree, member("new", b"1" * 11)), ROOT).problem


def test_a_tree_that_became_something_else_is_a_result():
    assert compare({}, archive(symlink(".", "/etc")), ROOT).problem == "the working directory is no longer a directory"


@pytest.mark.parametrize(("error", "told"), [(errno.ENOENT, True), (errno.EMFILE, False), (errno.EIO, False)])
async def test_work_that_can_not_be_read_is_worth_nothing_only_where_its_files_are_at_fault(error, told):
    class Sandbox:
        workdir = "/app"

        async def stop(self):
            return

        async def download(self, path, *, max_bytes):
            raise OSError(error, "no")

    if told:
        assert "is gone" in (await collect_changes(Sandbox(), Start({}))).problem
    else:
        with pytest.raises(InfraError):
            await collect_changes(Sandbox(), Start({}))


def test_very_many_paths_that_stay_are_compared_in_linear_time():
    before = start(*(member(f"a/{number}") for number in range(10_000)))
    after = archive(folder("a"), *(member(f"b{number}/conftest.py") for number in range(10_000)))
    watch = Stopwatch()
    changes = compare(before, after, ROOT)
    assert (len(changes.deleted), len(changes.withheld)) == (10_000, 10_000)
    assert watch.seconds < 6.0
