"""Tarballs of others, with and without the filter that Python 3.11.4 brought."""

import io
import tarfile

import pytest

from envs.tasks.tarballs import unpack


@pytest.fixture(params=["of this Python", "without the filter"], autouse=True)
def python(request, monkeypatch):
    if request.param == "without the filter":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        # What a Python does that knows no filter.
        monkeypatch.setattr(tarfile.TarFile, "extraction_filter", staticmethod(lambda member, _: member), raising=False)


def tarball(folder, *members):
    path = folder / "some.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, given in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid = kind, 0o666, 1234
            if kind == tarfile.REGTYPE:
                member.size = len(given)
                tar.addfile(member, io.BytesIO(given.encode()))
            else:
                member.linkname = given
                tar.addfile(member)
    return path


def test_files_folders_and_links_within_are_unpacked(tmp_path):
    path = tarball(
        tmp_path,
        ("task", tarfile.DIRTYPE, ""),
        ("task/file", tarfile.REGTYPE, "text"),
        ("task/link", tarfile.SYMTYPE, "file"),
        ("task/same", tarfile.LNKTYPE, "task/file"),
    )
    unpack(path, tmp_path / "out")
    assert [(tmp_path / "out/task" / name).read_text() for name in ("file", "link", "same")] == ["text"] * 3
    found = (tmp_path / "out/task/file").stat()
    assert (found.st_mode & 0o777, found.st_uid) == (0o644, tmp_path.stat().st_uid)


@pytest.mark.parametrize(
    "members",
    [
        [("../file", tarfile.REGTYPE, "text")],
        [("link", tarfile.SYMTYPE, "/etc")],
        [("link", tarfile.SYMTYPE, "../..")],
        [("same", tarfile.LNKTYPE, "../file")],
        [("here", tarfile.SYMTYPE, "."), ("far", tarfile.SYMTYPE, "here/here/../..")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
    ],
)
def test_what_leads_out_of_the_folder_is_refused(tmp_path, members):
    (tmp_path / "file").write_text("ours")
    with pytest.raises(tarfile.TarError):
        unpack(tarball(tmp_path, *members), tmp_path / "out")
    assert (tmp_path / "file").read_text() == "ours"
