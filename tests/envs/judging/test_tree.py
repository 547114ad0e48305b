"""What is taken from an untrusted archive as a tree, and what is not."""

import io
import tarfile

import pytest
from tree_samples import archive, carried, changes_of, folder, member, start, symlink

from envs.judging import changes, tree
from envs.judging.tree import Entry


@pytest.mark.parametrize(
    ("members", "dropped"),
    [
        *(([member(name, b"x")], name) for name in ("/etc/passwd", "../x", "a/../../x")),
        *(([member("x", kind=kind)], "x") for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)),
        ([member("b", kind=tarfile.LNKTYPE, link="../etc/shadow")], "b"),
        ([folder("d"), symlink("l", "d"), member("l/x", b"1")], "l/x"),
    ],
)
def test_what_no_tree_can_hold_is_dropped(members, dropped):
    changes = changes_of(start(member("x", b"1")), archive(*members))
    assert (changes.dropped, changes.deleted) == ((dropped,), ("x",))
    assert dropped not in carried(changes)


@pytest.mark.parametrize(
    ("links", "kept"),
    [
        *(({"a": target}, True) for target in ("b", "./b", "/app/b", "/app", "/app/d", "missing", "d/back/b")),
        ({"d/a": "../b"}, True),
        ({"d/a": "../../b"}, False),
        ({"a": "../app/b"}, False),  # it leaves the tree on its way
        ({"a": "d/../b"}, False),  # as it would if d were a link
        *(({"a": target}, False) for target in ("/etc/passwd", "../../etc/passwd", "/application/x", "/app/../etc")),
    ],
)
def test_links_that_stay_inside_are_kept_and_others_dropped(links, kept):
    known = {"d/back": "..", **links}
    tree = [member("b", b"1"), folder("d"), *(symlink(name, target) for name, target in known.items())]
    changes = changes_of({}, archive(*tree))
    assert (links.keys() <= carried(changes).keys(), links.keys() <= {*changes.dropped}) == (kept, not kept)


def test_a_virtual_environments_links_to_the_systems_python_are_kept():
    links = {
        "bin/python3": "/usr/bin/python3",
        "bin/python": "python3",
        "bin/sh": "/bin/sh",
        "bin/cat": "/usr/bin/python3",
    }
    links |= {"bin/python3.9": "/usr/bin/../../tests/python3", "bin/python4": "/home/python4"}
    changes = changes_of({}, archive(folder("bin"), *(symlink(*link) for link in links.items())))
    assert set(changes.added) == {"bin", "bin/python", "bin/python3"}
    assert set(changes.dropped) == {"bin/sh", "bin/cat", "bin/python3.9", "bin/python4"}


def test_hard_links_become_files():
    tree = [member("a", b"same"), member("b", kind=tarfile.LNKTYPE, link="a")]
    assert carried(changes_of({}, archive(*tree)))["b"] == (tarfile.REGTYPE, b"same")


def test_names_that_are_not_utf8_survive():
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert list(carried(changes_of({}, archive(member(name, b"x"))))) == [name]


def test_a_tree_of_very_many_paths_is_a_result(monkeypatch):
    monkeypatch.setattr(tree, "MAX_TREE_ENTRIES", 4)
    assert "more than" in changes_of({}, archive(*(folder(str(n)) for n in range(5)))).problem


def test_paths_too_deep_to_compare_are_dropped():
    deep = "/".join("d" * 250)
    changes = changes_of({}, archive(folder("d"), member(deep)))
    assert (changes.added, changes.dropped) == (("d",), (deep,))


def test_many_names_of_a_large_file_are_too_much(monkeypatch):
    for module in (tree, changes):
        monkeypatch.setattr(module, "MAX_CHANGED_BYTES", 100)
    links = [member(f"l{n}", kind=tarfile.LNKTYPE, link="x") for n in range(3)]
    assert "changed paths" in changes_of({}, archive(member("x", b"1" * 60), *links)).problem


def test_compressed_archives_are_not_unpacked():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    with pytest.raises(tarfile.ReadError):
        changes_of({}, buffer.getvalue())


def test_entries_say_what_they_are():
    tree = start(folder("d"), member("d/f", b"abc", mode=0o640), symlink("l", "d/f"))
    assert tree["d"] == Entry("dir", 0o755)
    assert (tree["d/f"].kind, tree["d/f"].mode, tree["d/f"].size) == ("file", 0o640, 3)
    assert tree["l"] == Entry("link", content="d/f")


@pytest.mark.parametrize(
    "name", [".git/config", "a/.git/hooks/x", "__pycache__/a.pyc", "a.pyc", ".pytest_cache/v", "sub/__pycache__/x"]
)
def test_version_control_and_caches_are_no_part_of_the_tree(name):
    assert not changes_of({}, archive(member(name, b"x")))
