"""What the agent's work is: what is carried, and what stays as it was."""

import errno
import io
import tarfile
import tracemalloc

import pytest
from stopwatch import Stopwatch
from tree_samples import archive, carried, changes_of, folder, member, start, symlink

from envs.judging import changes, tree
from envs.judging.areas import Start, scan_tree
from envs.judging.changes import collect_changes
from envs.types import Hidden, InfraError
from sandboxes.base import Sandbox, SandboxSpec


def test_new_changed_and_deleted_paths_are_told_apart():
    before = start(member("kept", b"1"), member("changed", b"1"), member("deleted", b"1"))
    after = archive(member("kept", b"1"), member("changed", b"2"), member("new", b"\x00\xff"), folder("empty"))
    changes = changes_of(before, after)
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
    with tarfile.open(fileobj=io.BytesIO(changes_of(start(*before), archive(*after)).archive)) as tar:
        assert tar.getmember("x").mode == mode


def test_a_time_that_other_file_systems_do_not_take_is_the_latest_that_all_take():
    info, data = member("new", b"1")
    info.mtime = 2**63  # as `touch -d @9223372036854775807` makes it in memory
    changes = changes_of(start(), archive((info, data)))
    with tarfile.open(fileobj=io.BytesIO(changes.archive)) as tar:
        assert [found.mtime for found in tar] == [8**11 - 1]


def test_a_directory_of_another_mode_keeps_what_is_in_it():
    before, after = [folder("x"), member("x/y"), folder("z"), member("w")], [folder("x", 0o700), member("x/y")]
    changes = changes_of(start(*before), archive(*after, member("z"), folder("w")))
    assert (changes.changed, changes.folders, changes.deleted) == (("w", "x", "z"), ("x",), ())


def test_a_directory_in_place_of_a_file_is_carried():
    changes = changes_of(start(member("x", b"1")), archive(folder("x"), member("x/y", b"2")))
    assert (changes.changed, changes.added) == (("x",), ("x/y",))


def test_links_come_last_so_that_nothing_is_written_through_them():
    tree = [symlink("a", "z"), folder("z"), member("z/f", b"1")]
    changes = changes_of({}, archive(*tree))
    assert list(carried(changes)) == ["z", "z/f", "a"]


@pytest.mark.parametrize("limit", ["bytes", "paths"])
def test_too_much_change_is_a_result(monkeypatch, limit):
    for module in (tree, changes):
        monkeypatch.setattr(module, "MAX_CHANGED_BYTES", 10)
    monkeypatch.setattr(changes, "MAX_CHANGED_ENTRIES", 2)
    old = [member("old", b"1" * 50), member("conftest.py", b"1" * 50)]
    new = [member("new", b"1" * 10)] if limit == "bytes" else [member("a", b"1"), member("b", b"1")]
    more = [member("new", b"1" * 11)] if limit == "bytes" else [member("c", b"1")]
    assert changes_of(start(*old), archive(*old, *new)).problem is None
    assert "changed paths" in changes_of(start(*old), archive(*old, *(new if limit == "paths" else []), *more)).problem


@pytest.mark.parametrize("limit", ["bytes", "paths"])
def test_what_a_build_made_stays_as_it_was_if_all_together_is_too_much(monkeypatch, limit):
    for module in (tree, changes):
        monkeypatch.setattr(module, "MAX_CHANGED_BYTES", 10 if limit == "bytes" else 99)
    monkeypatch.setattr(changes, "MAX_CHANGED_ENTRIES", 9 if limit == "bytes" else 3)
    built = [folder("target"), member("target/debug", b"1" * 8), member("web/node_modules/x/y", b"2" * 8)]
    before = start(member("target/debug", b"old"), member("target/gone", b"old"), member("a", b"1"))
    found = changes_of(before, archive(*built, member("a", b"22"), member("target", kind=tarfile.DIRTYPE)))
    assert (found.problem, carried(found)["a"][1], found.deleted) == (None, b"22", ())
    assert {"target/debug", "web/node_modules/x/y", "target/gone"} <= {*found.dropped}
    installed = changes_of(start(), archive(*(member(f".venv/{n}", b"1" * 4) for n in range(9)), member("a", b"22")))
    assert (installed.problem, [*carried(installed)]) == (None, ["a"])
    less = changes_of(before, archive(member("target/debug", b"1" * 8)))
    assert (less.changed, less.deleted) == (("target/debug",), ("a", "target/gone"))


def test_what_stays_as_it_was_may_be_of_any_size(monkeypatch):
    for module in (tree, changes):
        monkeypatch.setattr(module, "MAX_CHANGED_BYTES", 10)
    found = changes_of(
        start(member("conftest.py", b"1")), archive(member("conftest.py", b"1" * 50), member("new", b"2"))
    )
    assert (found.problem, found.added, found.withheld) == (None, ("new",), ("conftest.py",))


def test_a_changed_file_of_the_same_size_is_carried():
    assert carried(changes_of(start(member("a", b"1" * 9)), archive(member("a", b"2" * 9))))["a"][1] == b"2" * 9


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["after it", "before it"])
def test_another_name_of_an_unchanged_file_is_carried_as_a_file(names):
    first, second = names
    linked = [member(first, b"1"), member(second, kind=tarfile.LNKTYPE, link=first)]
    found = changes_of(start(member("a", b"1")), archive(*linked))
    assert carried(found) == {"b": (tarfile.REGTYPE, b"1")}


def test_a_tree_that_became_something_else_is_a_result():
    assert changes_of({}, archive(symlink(".", "/etc"))).problem == "the working directory is no longer a directory"


@pytest.mark.parametrize(("error", "told"), [(errno.ENOENT, True), (errno.EMFILE, False), (errno.EIO, False)])
async def test_work_that_can_not_be_read_is_worth_nothing_only_where_its_files_are_at_fault(error, told):
    class Unreadable(Sandbox):
        workdir = "/app"

        async def stop(self):
            return

        async def download(self, path, *, max_bytes):
            raise OSError(error, "no")

    if told:
        assert "is gone" in (await collect_changes(Unreadable(), Start({}), Hidden())).problem
    else:
        with pytest.raises(InfraError):
            await collect_changes(Unreadable(), Start({}), Hidden())


def test_very_many_paths_that_stay_are_compared_in_linear_time():
    before = start(*(member(f"a/{number}") for number in range(10_000)))
    after = archive(folder("a"), *(member(f"b{number}/conftest.py") for number in range(10_000)))
    watch = Stopwatch()
    changes = changes_of(before, after)
    assert (len(changes.deleted), len(changes.withheld)) == (10_000, 10_000)
    assert watch.seconds < 6.0


@pytest.mark.docker
async def test_a_large_tree_costs_no_memory_and_its_git_no_limit(docker_backend, base_image):
    async with docker_backend.open(SandboxSpec(base_image, workdir="/app")) as sandbox:
        await sandbox.exec("mkdir -p /app/.git && cd /app && truncate -s 400M .git/pack data && echo 1 >a")
        tracemalloc.start()
        try:
            before = (await scan_tree(sandbox, "/app", git=False, start=None)).tree
            await sandbox.exec("cd /app && echo 2 >b && rm a && truncate -s 300M .git/more")
            found = await collect_changes(sandbox, Start(before), Hidden())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert before["data"].size == 400 * 2**20
    assert (peak >> 20) < 64
    assert (found.added, found.deleted, found.problem) == (("b",), ("a",), None)
