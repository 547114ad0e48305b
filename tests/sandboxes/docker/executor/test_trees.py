"""Archives as the executor's records and back."""

import io
import os
import platform
import subprocess
import tarfile

import pytest
from small_archives import archive as small_archive

from sandboxes.docker.executor.program import program_for
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


@pytest.fixture
def unpack(tmp_path):
    """What has the executor's own program unpack an archive into a directory, by a shell's words before it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if platform.system() != "Linux" or machine is None or os.geteuid() != 0:
        pytest.skip("the executor's program gives files to others, as root on Linux")
    program = tmp_path / "executor"
    program.write_bytes(program_for(machine))
    program.chmod(0o755)

    def unpack(data, target, before=":"):
        words = ["sh", "-c", f'{before}; exec "$@"', "sh", program, "unpack", target]
        done = subprocess.run(words, input=records_of(data), capture_output=True, check=False, cwd=target)
        end_of_records(done.stdout, str(target))

    yield unpack
    subprocess.run(["rm", "-rf", tmp_path / "place"], check=True)  # pytest's own way down is not deep enough


def test_a_file_takes_the_place_of_a_directory_of_any_depth(unpack, tmp_path):
    place = tmp_path / "place"
    (place / "a/wide/er").mkdir(parents=True)
    (place / "a/file").touch()
    (place / "a/link").symlink_to("/etc")
    folder = os.open(place / "a", os.O_RDONLY)
    for _ in range(5_000):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    unpack(small_archive({"a": b"1"}), place)
    assert [(one.name, one.read_bytes()) for one in place.iterdir()] == [("a", b"1")]


def test_no_name_that_can_be_guessed_is_in_the_way_of_an_archive(unpack, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    unpack(small_archive({"a": b"1"}), place, before="touch .atropos-$$")
    assert (place / "a").read_bytes() == b"1"
