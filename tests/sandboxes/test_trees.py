"""File trees as tar archives."""

import io
import os
import socket
import tarfile
import time

from small_archives import archive, content, members

from sandboxes.trees import Archive, RebasingReader, pack, read_archive


def rebase(archive, of):
    made = Archive(of)
    read_archive(io.BytesIO(archive), RebasingReader(made, of))
    return made.to_bytes()


class TestTrees:
    def test_packing_leaves_links_and_skips_sockets(self, tmp_path):
        (tmp_path / "file").write_bytes(b"1")
        (tmp_path / "link").symlink_to("/etc/passwd")
        os.mkfifo(tmp_path / "pipe")
        found = members(pack(tmp_path))
        assert sorted(found) == ["file", "link"]
        assert found["link"].linkname == "/etc/passwd"

    def test_links_to_long_runs_of_digits_are_read_as_fast_as_others(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for number in range(300):
                info = tarfile.TarInfo(f"link-{number}")
                info.type, info.linkname = tarfile.SYMTYPE, "1" * 4000
                tar.addfile(info)
        began = time.process_time()
        found = members(buffer.getvalue())
        assert time.process_time() - began < 2
        assert [member.linkname for member in found.values()] == ["1" * 4000] * 300

    def test_rebasing_strips_the_top_from_names_and_hard_links_alone(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, kind, link in [
                ("top/", tarfile.DIRTYPE, ""),
                ("top/top/", tarfile.DIRTYPE, ""),
                ("top/top/a", tarfile.REGTYPE, ""),
                ("top/hard", tarfile.LNKTYPE, "top/top/a"),
                ("top/soft", tarfile.SYMTYPE, "top/a"),
            ]:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, link
                tar.addfile(info)
        found = members(rebase(buffer.getvalue(), "/app"))
        assert sorted(found) == ["hard", "soft", "top", "top/a"]
        assert (found["hard"].linkname, found["soft"].linkname) == ("top/a", "top/a")

    def test_rebasing_keeps_a_single_file(self):
        assert content(rebase(archive({"one": b"1"}), "/app"), "one") == b"1"


def test_sockets_are_left_out(tmp_path):
    (tmp_path / "file").write_text("x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert list(members(pack(tmp_path))) == ["file"]
