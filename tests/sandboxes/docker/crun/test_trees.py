"""Trees of a sandbox, read and written from outside, whatever is in the way."""

import contextlib
import io
import os
import tarfile

import pytest
from small_archives import archive

from sandboxes.docker.crun.trees import read_tree, unpack_tree
from sandboxes.trees import Archive

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to their owners")


@pytest.fixture
def root(tmp_path):
    """A sandbox's root directory, with a secret of the machine's beside it."""
    (tmp_path / "secret").write_text("host")
    (tmp_path / "root" / "app").mkdir(parents=True)
    opened = os.open(tmp_path / "root", os.O_PATH | os.O_DIRECTORY)
    yield opened
    os.close(opened)


@pytest.fixture
def app(tmp_path):
    return tmp_path / "root" / "app"


def member(name, kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tar_of(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in members:
            info.size = 1 if info.isreg() else 0
            tar.addfile(info, io.BytesIO(b"x") if info.isreg() else None)
    return buffer.getvalue()


def pack_tree(root, path, max_bytes):
    made = Archive(path, max_bytes)
    read_tree(root, path, made)
    return made.to_bytes()


def packed(root, path, max_bytes=10_000_000):
    with tarfile.open(fileobj=io.BytesIO(pack_tree(root, path, max_bytes))) as tar:
        return {info.name: info for info in tar}


@pytest.mark.parametrize("name", ["../../secret", "/../secret", "app/../../../secret", "up/secret", "absolute/secret"])
def test_nothing_is_written_outside_of_the_root(root, app, tmp_path, name):
    (app / "up").symlink_to("../../..")
    (app / "absolute").symlink_to(tmp_path)
    with contextlib.suppress(OSError, ValueError):
        unpack_tree(root, tar_of(member(name)), "/app")
    assert (tmp_path / "secret").read_text() == "host"


def test_a_link_in_an_archive_leads_the_next_member_no_further(root, app, tmp_path):
    evil = tar_of(member("out", tarfile.SYMTYPE, linkname=str(tmp_path)), member("out/secret"))
    with pytest.raises(FileNotFoundError, match="leads nowhere"):
        unpack_tree(root, evil, "/app")
    hard = tar_of(member("hard", tarfile.LNKTYPE, linkname="../../secret"))
    with pytest.raises(FileNotFoundError):
        unpack_tree(root, hard, "/app")
    assert (tmp_path / "secret").read_text() == "host"


def test_what_is_there_is_replaced_and_not_written_through(root, app):
    (app / "target").write_text("old")
    (app / "link").symlink_to("target")
    (app / "pipe").mkdir()
    unpack_tree(root, tar_of(member("link"), member("pipe", tarfile.FIFOTYPE)), "/app")
    assert ((app / "target").read_text(), (app / "link").read_text()) == ("old", "x")
    assert (app / "pipe").is_fifo()


def test_members_keep_owner_mode_and_time(root, app):
    made = tar_of(member("d", tarfile.DIRTYPE, mode=0o1751, uid=7, gid=8, mtime=5), member("d/f", mode=0o4640, mtime=6))
    unpack_tree(root, made, "/app")
    seen = packed(root, "/app")
    assert [(m.mode, m.uid, m.gid, m.mtime) for m in seen.values()] == [(0o1751, 7, 8, 5), (0o4640, 0, 0, 6)]


def test_a_tree_comes_back_as_it_went_in(root, app):
    tree = {"a/b/c": b"1", "ä/n\nl": b"2", "x" * 200 + "/y": b"", "big": bytes(range(256)) * 9000}
    unpack_tree(root, archive(tree), "/app")
    (app / "hard").hardlink_to(app / "a/b/c")
    os.mkfifo(app / "pipe")
    again = packed(root, "/app/")
    assert again["hard"].islnk() or again["a/b/c"].islnk()
    assert again["pipe"].isfifo()
    unpack_tree(root, pack_tree(root, "/app", 10_000_000), "/")
    for name, data in tree.items():
        assert (app.parent / name).read_bytes() == data


def test_links_are_not_followed(root, app, tmp_path):
    (app / "secret").symlink_to(tmp_path / "secret")
    (app / "folder").symlink_to("/")
    assert {name: m.linkname for name, m in packed(root, "/app").items()} == {
        "secret": str(tmp_path / "secret"),
        "folder": "/",
    }
    assert packed(root, "/app/secret")["secret"].issym()
    with pytest.raises(FileNotFoundError):
        pack_tree(root, "/app/secret/x", 1000)


def test_too_much_is_refused_before_it_is_read(root, app):
    with (app / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        pack_tree(root, "/app", 1_000_000)


def test_a_path_that_is_too_long_is_an_error_and_no_crash(root, app):
    above = os.open(app, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=above)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = inner
    os.close(above)
    with pytest.raises(OSError, match="too long"):
        pack_tree(root, "/app", 10_000_000)


@pytest.mark.parametrize("depth", [1, 1100])
def test_a_folder_is_replaced_however_deep(root, app, depth):
    unpack_tree(root, archive({"t/" + "a/" * depth + "x": b"1"}), "/app")
    unpack_tree(root, archive({"t": b"file"}), "/app")
    assert (app / "t").read_bytes() == b"file"


def test_what_is_no_archive_is_refused(root):
    with pytest.raises(ValueError, match="not a tar archive"):
        unpack_tree(root, b"x" * 1024, "/app")
    with pytest.raises(FileNotFoundError):
        unpack_tree(root, tar_of(), "/nowhere")
