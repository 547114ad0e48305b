"""Archives of directories of ours, and untrusted ones."""

import io
import tarfile

import pytest
from tree_samples import archive, folder, member, symlink

from envs.judging.archives import pack_directory, regular_files


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


def _extended(**headers):
    buffer, info = io.BytesIO(), tarfile.TarInfo("a")
    info.pax_headers = headers
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    return buffer.getvalue()


def _nested():
    info = tarfile.TarInfo()
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    return (info.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * 3000


@pytest.mark.parametrize("archive", [_extended(**{"GNU.sparse.map": "a,b"}), _nested()], ids=["number", "nested"])
def test_headers_that_tarfile_stumbles_over_are_a_broken_archive(archive):
    with pytest.raises(tarfile.TarError):
        list(regular_files(archive, 100))
