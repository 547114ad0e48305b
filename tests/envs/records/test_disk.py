"""Files are replaced whole, and writing waits for a full disk."""

import asyncio
import errno
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from descriptors import used_up

from envs.records import disk
from envs.records.disk import (
    NoFolder,
    append_line,
    close_line,
    is_disk_full,
    json_lines,
    make_folder,
    replace_file,
    retry_until_space,
)


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "file.json"
    for data in (b"one", b"two"):
        replace_file(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_content_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    """After a power cut the name could lead to an empty file."""
    path, flushed = tmp_path / "file.json", list[bytes]()
    replace_file(path, b"old")

    def fsync(number):
        assert path.read_bytes() == b"old"
        flushed.append(Path(f"/proc/self/fd/{number}").read_bytes())

    monkeypatch.setattr(disk.os, "fsync", fsync)
    replace_file(path, b"new")
    assert (flushed, path.read_bytes()) == ([b"new"], b"new")


def test_files_that_differ_in_their_suffix_do_not_share_a_temporary_one(tmp_path):
    """With one name for both, a writer would put its content into the other's file."""
    names = [tmp_path / "run.json", tmp_path / "run.html", tmp_path / "run"]
    threads = [
        threading.Thread(target=lambda path=path: [replace_file(path, path.name.encode() * 1000) for _ in range(30)])
        for path in names * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(path.read_bytes() == path.name.encode() * 1000 for path in names)
    assert sorted(tmp_path.iterdir()) == sorted(names)


def test_what_can_not_be_written_leaves_the_old_content(tmp_path):
    path = tmp_path / "file.json"
    replace_file(path, b"old")
    with pytest.raises(TypeError):
        replace_file(path, "no bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_are_added_to_a_file_that_need_not_be_there(tmp_path):
    path = tmp_path / "lines"
    append_line(path, b"one")
    append_line(path, b"two")
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left"), True),
        (OSError(errno.EDQUOT, "Quota"), True),
        (ValueError("database or disk is full"), True),
        (OSError(errno.EACCES, "Denied"), False),
    ],
)
def test_a_full_disk_is_told_from_other_failures(error, full):
    assert is_disk_full(error) is full


async def test_writing_waits_until_there_is_room(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(disk, "PAUSE_S", 0.01)
    left = [OSError(errno.ENOSPC, "No space left")] * 2

    def work():
        if left:
            raise left.pop()
        return "written"

    assert await asyncio.wait_for(retry_until_space(tmp_path, work), 10) == "written"
    assert caplog.text.count("waiting until it can be written") == 2


async def test_writing_waits_while_no_file_can_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "PAUSE_S", 0.01)
    path = tmp_path / "lines"
    with used_up():
        writing = asyncio.create_task(retry_until_space(path, lambda: append_line(path, b"one")))
        await asyncio.sleep(0.2)
        assert not writing.done()
    await asyncio.wait_for(writing, 120)
    assert path.read_bytes() == b"one\n"


async def test_nothing_is_waited_for_when_the_run_stops(tmp_path):
    full, stopping = OSError(errno.ENOSPC, "No space left"), []

    def work():
        raise full

    waiting = asyncio.create_task(retry_until_space(tmp_path, work, lambda: bool(stopping)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    stopping.append(True)
    with pytest.raises(OSError, match="No space left"):
        await asyncio.wait_for(waiting, 2)


def test_a_line_is_added_whole_or_not(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    append_line(path, b"one")

    def torn(file, data):
        file.write(data[:2])
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(disk, "append", torn)
        append_line(path, b"two")
    append_line(path, b"three")
    assert path.read_bytes() == b"one\nthree\n"


def test_a_line_that_was_torn_costs_itself_alone(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    close_line(path)
    close_line(path)
    assert path.read_bytes() == b"one\ntw\n"
    close_line(tmp_path / "none")
    path.write_bytes(b"one\ntw")
    append_line(path, b"three")
    assert path.read_bytes() == b"one\ntw\nthree\n"


async def test_other_failures_are_raised(tmp_path):
    def work():
        raise IsADirectoryError(errno.EISDIR, "Is a directory")

    with pytest.raises(IsADirectoryError, match=tmp_path.name):  # a failed write names no file by itself
        await retry_until_space(tmp_path, work)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EROFS, errno.ENOTCONN, errno.ENXIO])
async def test_a_disk_that_is_away_is_waited_for(tmp_path, monkeypatch, number):
    monkeypatch.setattr(disk, "PAUSE_S", 0.05)
    failures = [number] * 3

    def work():
        if failures:
            raise OSError(failures.pop(), "away")
        return "written"

    assert await retry_until_space(tmp_path / "file", work) == "written"
    assert not failures


@pytest.mark.parametrize("way", ["moved", "an empty folder in its place"])
async def test_nothing_is_written_where_the_run_is_not(tmp_path, monkeypatch, way):
    monkeypatch.setattr(disk, "PAUSE_S", 0.05)
    run = tmp_path / "run"
    run.mkdir()
    (run / disk.LOCK).touch()
    run.rename(tmp_path / "elsewhere")
    if way != "moved":
        run.mkdir()
    writing = asyncio.create_task(
        retry_until_space(run / "lines", lambda: append_line(run / "lines", b"one"), home=run)
    )
    await asyncio.sleep(0.3)
    assert not writing.done()
    if way != "moved":
        run.rmdir()  # nothing was put into it
    (tmp_path / "elsewhere").rename(run)
    await asyncio.wait_for(writing, 120)
    assert (run / "lines").read_bytes() == b"one\n"


def test_of_lines_of_json_torn_and_foreign_ones_are_passed_over(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert json_lines(path) == []
    path.write_bytes(b'{"a": 1}\n[2]\n{"to\n{"b": 2}\n{"c"')
    assert json_lines(path) == [{"a": 1}, {"b": 2}]
    assert json_lines(path, 15) == [{"b": 2}], "the first of the last bytes may be cut off"


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "where results go, can't be written (Not a directory)"), ("file/run", "--run-dir file/run can't be")],
)
def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(NoFolder, match=re.escape(said)) as raised:
        make_folder(given and Path(given), Path("file/usual"), "--run-dir")
    assert str(raised.value).endswith("give another --run-dir")
    assert make_folder(None, Path("usual"), "--run-dir").is_dir() and not list(Path("usual").iterdir())


SMALL = """
import resource
from pathlib import Path
from envs.records.disk import make_folder

resource.setrlimit(resource.RLIMIT_FSIZE, (1_024_000, 1_024_000))
make_folder(None, Path("run"), "--run-dir")
"""


def test_a_limit_of_the_size_of_files_is_told_before_a_run_meets_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", SMALL], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "may write files of 1,024,000 bytes at most" in done.stderr
    assert done.stderr.rstrip().endswith("start it in a shell with `ulimit -f unlimited`")
    assert not (tmp_path / "run").exists()


def test_a_line_that_finds_no_room_takes_none_from_beside_it(tmp_path, monkeypatch):
    path, append, threads = tmp_path / "lines", disk.append, []

    def full(file, data):
        if not data.startswith(b"large"):
            return append(file, data)
        threads.append(threading.Thread(target=append_line, args=(path, b"small")))
        threads[0].start()
        threads[0].join(0.5)
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(disk, "append", full)
    with pytest.raises(OSError, match="No space left"):
        append_line(path, b"large")
    threads[0].join()
    assert path.read_bytes() == b"small\n"
