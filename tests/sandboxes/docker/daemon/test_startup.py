"""Starting a missing Docker daemon, and installing it."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import pytest

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon import startup
from sandboxes.docker.daemon.client import DaemonSilent


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
        monkeypatch.setattr(startup, "connect", connect)
        monkeypatch.setattr(startup, "_LOG", tmp_path / "log")
        monkeypatch.setattr(startup, "_LOCK", tmp_path / "lock")
        monkeypatch.setattr(os, "geteuid", lambda: 0)

    async def test_once_when_several_want_one(self, no_daemon):
        pids = await asyncio.gather(*(startup.ensure_daemon() for _ in range(4)))
        [pid] = [pid for pid in pids if pid is not None]
        await startup.stop_daemon(pid)

    async def test_again_where_its_containerd_was_too_slow(self, no_daemon, tmp_path):
        """dockerd waits 15 s for it, and ends."""
        working, tried = (tmp_path / "dockerd").rename(tmp_path / "working"), tmp_path / "tried"
        slow = "failed to start containerd: timeout waiting for containerd to start"
        (tmp_path / "dockerd").write_text(
            f"#!/bin/sh\n[ -e {tried} ] && exec {working}\n>{tried}; echo {slow}; exit 1\n"
        )
        (tmp_path / "dockerd").chmod(0o755)
        await startup.stop_daemon(await startup.ensure_daemon())

    async def test_once_where_it_ends_for_another_reason(self, no_daemon, tmp_path):
        (tmp_path / "log").write_text("of an earlier one: timeout waiting for containerd to start\n")
        (tmp_path / "dockerd").write_text(f"#!/bin/sh\nmkdir {tmp_path}/started || exit 1\necho no room; exit 1\n")
        with pytest.raises(DaemonUnavailable, match=r"dockerd ended; the end of .*\nno room$"):
            await startup.ensure_daemon()

    async def test_beside_a_daemon_that_hangs_no_other_is_started(self, monkeypatch, tmp_path):
        @asynccontextmanager
        async def silent():
            raise DaemonSilent("it hangs")
            yield

        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setattr(startup, "connect", silent)
        monkeypatch.setattr(startup, "_LOCK", tmp_path / "lock")
        monkeypatch.setattr(startup, "_start_daemon", None)
        with pytest.raises(DaemonSilent):
            await startup.ensure_daemon()


class TestPackagesAreInstalled:
    @pytest.fixture
    def busy_apt(self, tmp_path, monkeypatch):
        """An apt-get that knows no package yet, and whose lists another program updates at the first two calls."""
        program = tmp_path / "apt-get"
        program.write_text(
            "#!/bin/sh\n"
            f'cd {tmp_path}; echo "$*" >>calls\n'
            'case "$*" in *install*) test -e lists; exit ;; esac\n'
            "for busy in busy*; do test -e $busy && rm $busy && exit 100; done; >lists\n"
        )
        program.chmod(0o755)
        for number in range(2):
            (tmp_path / f"busy{number}").touch()
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(startup, "_APT_PAUSE_S", 0.01)
        return tmp_path / "calls"

    async def test_where_another_program_uses_apt_it_is_waited_for(self, busy_apt):
        await startup.install("docker.io")
        install, *updates, again = busy_apt.read_text().splitlines()
        assert "DPkg::Lock::Timeout" in install
        assert updates == ["update"] * 3
        assert again == install

    async def test_an_apt_that_never_gets_free_is_given_up(self, busy_apt, monkeypatch):
        monkeypatch.setattr(startup, "_APT_TRIES", 2)
        with pytest.raises(DaemonUnavailable, match="install it by hand"):
            await startup.install("docker.io")


def test_a_daemon_starts_with_no_signal_ignored(tmp_path):
    """Its containers would inherit that."""
    program, log = tmp_path / "dockerd", tmp_path / "log"
    program.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    program.chmod(0o755)
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGHUP, signal.SIGINT)]
    try:
        os.waitpid(startup._spawn(str(program), log), 0)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    assert int(log.read_text().split()[1], 16) & ~(3 << 31) == 0, "but for two of the C library's own"
