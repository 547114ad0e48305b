"""What an agent made is kept exactly, or not at all."""

import json

import pytest
from tree_samples import archive, member, symlink

from envs.judging.changes import Changes
from envs.judging.saved_changes import NotSaved, pack_changes, unpack_changes

CHANGES = Changes(
    archive(member("a.py", b"x = 1\n"), member("caf\udce9.txt", b"\xff\x00"), symlink("l", "a.py")),
    added=("caf\udce9.txt", "l"),
    changed=("a.py",),
    deleted=("old/b.py",),
    dropped=("fifo",),
    withheld=("conftest.py",),
    folders=("a",),
    elsewhere=(("/etc/\udcff", Changes(archive(member("hosts", b"1")), added=("hosts",))),),
)


@pytest.mark.parametrize("changes", [CHANGES, Changes(), Changes(problem="it is gone")])
def test_what_is_kept_comes_back_as_it_was(changes):
    assert unpack_changes(json.loads(json.dumps(pack_changes(changes, 10**6)))) == changes


def test_what_is_too_large_is_left_out_and_says_so():
    entry = pack_changes(CHANGES, 100)
    assert entry["bytes"] > 100
    with pytest.raises(NotSaved, match=f"has {entry['bytes']} bytes, and the run kept up to 100"):
        unpack_changes(entry)


@pytest.mark.parametrize("damage", [{"archive": "AAAA"}, {"archive": "?"}, {"names": "{}"}, {"elsewhere": [1]}])
def test_what_is_damaged_is_refused(damage):
    with pytest.raises(NotSaved, match="is damaged"):
        unpack_changes({**pack_changes(CHANGES, 10**6), **damage})


def test_an_archive_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr("envs.judging.saved_changes._MAX_ARCHIVE", 1000)
    with pytest.raises(NotSaved, match="more than 1000 bytes"):
        unpack_changes(pack_changes(Changes(bytes(2000), added=("a",)), 10**6))
