"""Archives as the executor's records and back."""

import io
import tarfile

import pytest

from sandboxes.docker.executor.trees import end_of_records, raise_error, read_records, records_of
from sandboxes.trees import Archive


def archive(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode, info.uid = len(data), 7, 0o640, 1000
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def archive_of(records, target, max_bytes):
    made = Archive(target, max_bytes)
    read_records(records, target, made, max_bytes)
    return made.to_bytes()


def test_a_tree_comes_back_as_it_was():
    back = archive_of(records_of(archive(a=b"1", b=b"22")), "/x", 1 << 20)
    with tarfile.open(fileobj=io.BytesIO(back)) as tar:
        assert [(one.name, one.size, one.mtime, one.mode, one.uid) for one in tar] == [
            ("a", 1, 7, 0o640, 1000),
            ("b", 2, 7, 0o640, 1000),
        ]
        assert tar.extractfile("b").read() == b"22"


def test_a_tree_that_was_cut_off_is_no_tree():
    with pytest.raises(EOFError):
        archive_of(records_of(archive(a=b"1"))[:-40], "/x", 1 << 20)
    with pytest.raises(EOFError):
        end_of_records(b"", "/x")


def test_a_tree_above_its_limit_is_refused():
    with pytest.raises(ValueError, match="more than 100 bytes"):
        archive_of(records_of(archive(a=bytes(200))), "/x", 100)
    with pytest.raises(ValueError, match="more than 9 bytes"):
        raise_error(27, "", "/x", 9)
