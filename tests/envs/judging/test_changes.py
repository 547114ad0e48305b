"""What is taken from the agent's tree, and what is not."""

import io
import tarfile

import pytest

from envs.judging import changes as module
from envs.judging.changes import Entry, compare, pack_directory, regular_files, tree_of

ROOT = "/app"


def member(name, data=b"", *, kind=tarfile.REGTYPE, mode=0o644, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
    return info, data


def folder(name, mode=0o755):
    return member(name, kind=tarfile.DIRTYPE, mode=mode)


def symlink(name, target):
    return member(name, kind=tarfile.SYMTYPE, link=target)


def archive(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def start(*members):
    return tree_of(archive(*members), ROOT)


def carried(changes):
    with tarfile.open(fileobj=io.BytesIO(changes.archive)) as tar:
        return {info.name: (info.type, tar.extractfile(info).read() if info.isreg() else info.linkname) for info in tar}


def test_an_untouched_tree_has_no_changes():
    tree = [folder("src"), member("src/a.py", b"a")]
    changes = compare(start(*tree), archive(*tree), ROOT)
    assert not changes
    assert carried(changes) == {}


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


def test_a_change_of_mode_alone_is_a_change():
    changes = compare(start(member("run.sh", b"x")), archive(member("run.sh", b"x", mode=0o755)), ROOT)
    assert changes.changed == ("run.sh",)
    with tarfile.open(fileobj=io.BytesIO(changes.archive)) as tar:
        assert tar.getmember("run.sh").mode == 0o755


def test_setuid_bits_are_lost():
    with tarfile.open(fileobj=io.BytesIO(compare({}, archive(member("x", mode=0o6755)), ROOT).archive)) as tar:
        assert tar.getmember("x").mode == 0o755


def test_a_directory_stays_open_to_its_owner():
    with tarfile.open(fileobj=io.BytesIO(compare({}, archive(folder("x", 0)), ROOT).archive)) as tar:
        assert tar.getmember("x").mode == 0o700


def test_a_directory_in_place_of_a_file_is_carried():
    changes = compare(start(member("x", b"1")), archive(folder("x"), member("x/y", b"2")), ROOT)
    assert (changes.changed, changes.added) == (("x",), ("x/y",))


@pytest.mark.parametrize(
    "name", [".git/config", "a/.git/hooks/x", "__pycache__/a.pyc", "a.pyc", ".pytest_cache/v", "sub/__pycache__/x"]
)
def test_version_control_and_caches_are_no_part_of_the_tree(name):
    assert not compare({}, archive(member(name, b"x")), ROOT)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_names_that_lead_out_are_dropped(name):
    changes = compare({}, archive(member(name, b"x")), ROOT)
    assert changes.dropped == (name,)
    assert carried(changes) == {}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_dropped(kind):
    changes = compare(start(member("x", b"1")), archive(member("x", kind=kind)), ROOT)
    assert (changes.dropped, changes.deleted) == (("x",), ("x",))


@pytest.mark.parametrize("target", ["b", "./b", "../app/b", "/app/b", "/app", "missing", "d/../b", "d/back/b"])
def test_links_that_stay_inside_are_kept(target):
    inside = target != "../app/b"  # it leaves the tree on its way, even if it comes back
    tree = [member("b", b"1"), folder("d"), symlink("d/back", ".."), symlink("a", target)]
    changes = compare({}, archive(*tree), ROOT)
    assert ("a" in changes.added) is inside
    assert ("a" in changes.dropped) is not inside


@pytest.mark.parametrize(
    "links",
    [
        {"a": "/etc/passwd"},
        {"a": "../../etc/passwd"},
        {"a": "/application/x"},
        {"a": "/app/../etc"},
        {"a": "b", "b": "/tests"},
        {"a": "d/up/x", "d/up": "../.."},
        {"a": "b", "b": "a"},
        {"a": ""},
    ],
)
def test_links_that_lead_out_are_dropped(links):
    tree = [folder("d"), *(symlink(name, target) for name, target in links.items())]
    changes = compare({}, archive(*tree), ROOT)
    assert "a" in changes.dropped
    assert "a" not in carried(changes)


def test_links_come_last_so_that_nothing_is_written_through_them():
    tree = [symlink("a", "z"), folder("z"), member("z/f", b"1")]
    changes = compare({}, archive(*tree), ROOT)
    assert list(carried(changes)) == ["z", "z/f", "a"]


def test_files_below_a_link_are_dropped():
    tree = [folder("d"), symlink("l", "d"), member("l/x", b"1")]
    assert compare({}, archive(*tree), ROOT).dropped == ("l/x",)


def test_hard_links_become_files():
    tree = [member("a", b"same"), member("b", kind=tarfile.LNKTYPE, link="a")]
    assert carried(compare({}, archive(*tree), ROOT))["b"] == (tarfile.REGTYPE, b"same")


def test_hard_links_to_elsewhere_are_dropped():
    tree = [member("b", kind=tarfile.LNKTYPE, link="../etc/shadow")]
    assert compare({}, archive(*tree), ROOT).dropped == ("b",)


def test_names_that_are_not_utf8_survive():
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert list(carried(compare({}, archive(member(name, b"x")), ROOT))) == [name]


def test_a_huge_tree_is_a_result(monkeypatch):
    monkeypatch.setattr(module, "MAX_TREE_BYTES", 100)
    assert "more than" in compare({}, archive(member("x", b"1" * 101)), ROOT).problem


def test_hard_links_count_for_what_they_hold(monkeypatch):
    monkeypatch.setattr(module, "MAX_TREE_BYTES", 100)
    links = [member(f"l{n}", kind=tarfile.LNKTYPE, link="x") for n in range(3)]
    assert compare({}, archive(member("x", b"1" * 60), *links), ROOT).problem is not None


def test_too_many_paths_are_a_result(monkeypatch):
    monkeypatch.setattr(module, "MAX_TREE_ENTRIES", 3)
    assert compare({}, archive(*(folder(str(n)) for n in range(4))), ROOT).problem is not None


def test_too_much_change_is_a_result(monkeypatch):
    monkeypatch.setattr(module, "MAX_CHANGED_BYTES", 10)
    tree = [member("old", b"1" * 50)]
    assert compare(start(*tree), archive(*tree, member("new", b"1" * 10)), ROOT).problem is None
    assert "changed paths" in compare(start(*tree), archive(*tree, member("new", b"1" * 11)), ROOT).problem


def test_a_tree_that_became_something_else_is_a_result():
    assert compare({}, archive(symlink(".", "/etc")), ROOT).problem == "the working directory is no longer a directory"


def test_compressed_archives_are_not_unpacked():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    with pytest.raises(tarfile.ReadError):
        compare({}, buffer.getvalue(), ROOT)


def test_entries_say_what_they_are():
    tree = start(folder("d"), member("d/f", b"abc", mode=0o640), symlink("l", "d/f"))
    assert tree["d"] == Entry("dir", 0o755)
    assert (tree["d/f"].kind, tree["d/f"].mode, tree["d/f"].size) == ("file", 0o640, 3)
    assert tree["l"] == Entry("link", content="d/f")


def test_our_own_directories_are_packed_for_root_alone_to_write(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run.sh").write_text("x")
    (tmp_path / "sub/run.sh").chmod(0o777)
    (tmp_path / "a").write_text("y")
    (tmp_path / "a").chmod(0o666)
    with tarfile.open(fileobj=io.BytesIO(pack_directory(tmp_path))) as tar:
        assert {info.name: info.mode for info in tar} == {"a": 0o644, "sub": 0o755, "sub/run.sh": 0o755}
        assert {info.uid for info in tar} == {0}


def test_only_regular_files_of_a_fair_size_are_read():
    packed = archive(member("a", b"1"), symlink("b", "/etc/passwd"), member("c", b"1" * 11), folder("d"))
    assert dict(regular_files(packed, 10)) == {"a": b"1"}
