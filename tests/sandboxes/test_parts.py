"""The parts of the sandboxes that need neither a container nor a process."""

import asyncio
import io
import os
import tarfile
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_archives import archive, content, members

from sandboxes.base import DaemonUnavailable
from sandboxes.docker import daemon
from sandboxes.docker.build import pack_context, with_base
from sandboxes.docker.images import find_mirror
from sandboxes.output import BoundedOutput, dropped_line
from sandboxes.owner import Owner
from sandboxes.shielding import finish
from sandboxes.trees import pack, rebase


class TestBoundedOutput:
    @given(st.lists(st.binary(max_size=50)), st.integers(0, 100))
    def test_it_keeps_the_first_and_the_last_half(self, pieces, limit):
        output = BoundedOutput(limit)
        for piece in pieces:
            output.add(piece)
        whole = b"".join(pieces)
        raw, truncated = output.result()
        if len(whole) <= limit:
            assert (raw, truncated) == (whole, False)
        else:
            head, tail = limit // 2, limit - limit // 2
            middle = dropped_line(len(whole) - limit)
            assert (raw, truncated) == (whole[:head] + middle + whole[len(whole) - tail :], True)

    def test_a_negative_limit_is_refused(self):
        with pytest.raises(ValueError, match="negative"):
            BoundedOutput(-1)


class TestOwner:
    def test_labels_make_the_round_trip(self):
        owner = Owner.of_this_process()
        assert Owner.from_labels(owner.labels()) == owner

    def test_this_process_is_not_dead(self):
        assert not Owner.of_this_process().is_dead()

    def test_another_boot_or_start_time_is_dead(self):
        owner = Owner.of_this_process()
        assert replace(owner, boot="another").is_dead()
        assert replace(owner, start="1").is_dead()

    def test_another_host_counts_as_alive(self):
        assert not replace(Owner.of_this_process(), host="another", boot="another").is_dead()

    def test_an_ended_process_is_dead_even_before_it_is_reaped(self):
        pid = os.posix_spawnp("true", ["true"], {})
        owner = replace(Owner.of_this_process(), pid=pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead()
        os.waitpid(pid, 0)

    def test_foreign_labels_are_refused(self):
        with pytest.raises(KeyError):
            Owner.from_labels({"other": "label"})


class TestADaemonIsStarted:
    @pytest.fixture
    def no_daemon(self, tmp_path, monkeypatch):
        """A machine without a Docker daemon, whose dockerd, like the real one, ends where another has been started."""
        started, answers = tmp_path / "started", tmp_path / "answers"
        program = tmp_path / "dockerd"
        program.write_text(f"#!/bin/sh\nmkdir {started} || exit 1\nsleep 0.3\n>{answers}\nexec sleep 60\n")
        program.chmod(0o755)

        @asynccontextmanager
        async def connect():
            if not answers.exists():
                raise DaemonUnavailable("no daemon")
            yield

        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setattr(daemon, "connect", connect)
        monkeypatch.setattr(daemon, "_LOG", tmp_path / "log")
        monkeypatch.setattr(daemon, "_LOCK", tmp_path / "lock")
        monkeypatch.setattr(os, "geteuid", lambda: 0)

    async def test_once_when_several_want_one(self, no_daemon):
        pids = await asyncio.gather(*(daemon.ensure_daemon() for _ in range(4)))
        [pid] = [pid for pid in pids if pid is not None]
        await daemon.stop_daemon(pid)


class TestTrees:
    def test_packing_leaves_links_and_skips_sockets(self, tmp_path):
        (tmp_path / "file").write_bytes(b"1")
        (tmp_path / "link").symlink_to("/etc/passwd")
        os.mkfifo(tmp_path / "pipe")
        found = members(pack(tmp_path))
        assert sorted(found) == ["file", "link"]
        assert found["link"].linkname == "/etc/passwd"

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
        found = members(rebase(buffer.getvalue()))
        assert sorted(found) == ["hard", "soft", "top", "top/a"]
        assert (found["hard"].linkname, found["soft"].linkname) == ("top/a", "top/a")

    def test_rebasing_keeps_a_single_file(self):
        assert content(rebase(archive({"one": b"1"})), "one") == b"1"


class TestBuildContext:
    def test_its_digest_follows_content_mode_and_names_but_not_times(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\n")
        file = tmp_path / "file"
        file.write_text("1")
        seen = {pack_context(tmp_path, None)[1]}
        os.utime(file, (1, 1))
        assert pack_context(tmp_path, None)[1] in seen
        for change in (
            lambda: file.write_text("2"),
            lambda: file.chmod(0o755),
            lambda: file.rename(tmp_path / "other"),
        ):
            change()
            digest = pack_context(tmp_path, None)[1]
            assert digest not in seen
            seen.add(digest)
        assert pack_context(tmp_path, "b")[1] not in seen

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("FROM a\nRUN x\n", "FROM base\nRUN x\n"),
            (
                "from a:1 as build\nFROM --platform=linux/amd64 b AS last\n",
                "from a:1 as build\nFROM --platform=linux/amd64 base AS last\n",
            ),
            ("# FROM c\nFROM a\nRUN echo FROM b\n", "# FROM c\nFROM base\nRUN echo FROM b\n"),
        ],
    )
    def test_the_last_stage_gets_another_base(self, before, after):
        assert with_base(before, "base") == after


class TestMirror:
    def test_both_formats_are_read(self, tmp_path):
        (tmp_path / "sources.list.d").mkdir()
        assert find_mirror(tmp_path) is None, "debootstrap knows one"
        (tmp_path / "sources.list.d" / "debian.sources").write_text(
            "Types: deb\nURIs: http://security.example/x\nSuites: bookworm-security\nComponents: main\n\n"
            "Types: deb\nURIs: http://one.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        )
        assert find_mirror(tmp_path) == "http://one.example/debian"
        (tmp_path / "sources.list").write_text(
            "# deb http://no.example bookworm main\ndeb [arch=amd64] https://two.example/debian bookworm main contrib\n"
        )
        assert find_mirror(tmp_path) == "https://two.example/debian"


class TestFinish:
    async def test_work_is_done_before_a_cancellation_goes_on(self):
        done = asyncio.Event()

        async def work() -> None:
            await asyncio.sleep(0.05)
            done.set()

        task = asyncio.create_task(finish(work()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    async def test_results_and_errors_pass_through(self):
        assert await finish(asyncio.sleep(0, result=3)) == 3
        with pytest.raises(TimeoutError):
            await finish(asyncio.wait_for(asyncio.sleep(5), 0.01))


class TestDockerignore:
    def test_what_it_names_is_left_out_and_changes_no_digest(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\n")
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "file").write_text("1")
        (tmp_path / ".dockerignore").write_text("# a comment\n*.log\nsecret/\n!important.log\n")
        seen = pack_context(tmp_path, None)[1]
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "key").write_text("1")
        (tmp_path / "a.log").write_text("1")
        archive, digest = pack_context(tmp_path, None)
        assert digest == seen
        assert set(members(archive)) == {".dockerignore", "Dockerfile", "kept", "kept/file"}
        (tmp_path / "important.log").write_text("1")
        assert "important.log" in members(pack_context(tmp_path, None)[0])
