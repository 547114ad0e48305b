"""Reaching a Docker daemon, its errors, and starting one."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path

import aiodocker
import pytest
from stopwatch import Stopwatch

import sandboxes
from sandboxes.base import DaemonError, DaemonUnavailable, SandboxError
from sandboxes.docker import DockerBackend, daemon


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
        monkeypatch.setattr(daemon, "_APT_PAUSE_S", 0.01)
        return tmp_path / "calls"

    async def test_where_another_program_uses_apt_it_is_waited_for(self, busy_apt):
        await daemon.install("docker.io")
        install, *updates, again = busy_apt.read_text().splitlines()
        assert "DPkg::Lock::Timeout" in install
        assert updates == ["update"] * 3
        assert again == install

    async def test_an_apt_that_never_gets_free_is_given_up(self, busy_apt, monkeypatch):
        monkeypatch.setattr(daemon, "_APT_TRIES", 2)
        with pytest.raises(DaemonUnavailable, match="install it by hand"):
            await daemon.install("docker.io")


@pytest.mark.docker
class TestDaemon:
    @pytest.mark.parametrize("url", ["unix:///no/such.sock", "tcp://127.0.0.1:9"])
    async def test_a_daemon_that_is_not_there_says_what_to_do(self, url):
        watch = Stopwatch()
        with pytest.raises(DaemonUnavailable, match="python -m sandboxes setup"):
            async with DockerBackend(url=url):
                pass
        assert watch.seconds < 6

    @pytest.mark.parametrize("address", ["tcp://", "foo://x", "127.0.0.1:2375"])
    async def test_what_is_no_address_is_told_and_not_waited_for(self, address, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(SandboxError, match="is no address of a Docker daemon; set DOCKER_HOST") as caught:
            async with daemon.connect():
                pass
        assert not isinstance(caught.value, DaemonUnavailable)

    async def test_a_daemon_that_does_not_answer_is_given_up(self, monkeypatch):
        monkeypatch.setattr(daemon, "PATIENCE_S", 1.0)
        hung_up = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            await writer.wait_closed()
            hung_up.set()

        server = await asyncio.start_server(silent, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(DaemonUnavailable, match="did not answer within"):
                async with DockerBackend(url=f"tcp://127.0.0.1:{port}"):
                    pass
            await hung_up.wait()

    async def test_a_daemon_that_is_slow_at_the_start_is_waited_for(self, monkeypatch, caplog):
        monkeypatch.setattr(daemon, "_REMIND_S", 0.5)
        pauses = [6.0, 0.0]

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    assert b"/version" in head
                    await asyncio.sleep(pauses.pop(0))
                    body = b'{"ApiVersion": "1.41", "Arch": "amd64"}'
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                        % (len(body), body)
                    )
            writer.close()

        server = await asyncio.start_server(slow, "127.0.0.1")
        async with server, daemon.connect(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
            pass
        assert "has not answered for" in caplog.text

    async def test_beside_a_daemon_that_hangs_no_other_is_started(self, monkeypatch, tmp_path):
        @asynccontextmanager
        async def silent():
            raise daemon.DaemonSilent("it hangs")
            yield

        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setattr(daemon, "connect", silent)
        monkeypatch.setattr(daemon, "_LOCK", tmp_path / "lock")
        monkeypatch.setattr(daemon, "_start_daemon", None)
        with pytest.raises(daemon.DaemonSilent):
            await daemon.ensure_daemon()


class TestErrors:
    async def test_a_name_conflict_and_a_server_error_may_pass(self):
        for status in (409, 500, 503):
            with pytest.raises(DaemonError):
                async with daemon.daemon_errors("create"):
                    raise aiodocker.DockerError(status, {"message": "Conflict. The name is already in use"})

    async def test_a_full_disk_says_so(self):
        with pytest.raises(SandboxError, match="no space left"):
            async with daemon.daemon_errors("create"):
                raise aiodocker.DockerError(500, {"message": "write: no space left on device"})


def test_nobody_connects_past_the_tunnel():
    """Clients of other kinds are made nowhere but where the tunnel is."""
    rooms = [
        Path(sandboxes.__file__).parent,
        *(Path(sandboxes.__file__).parents[1] / name for name in ("envs", "tools")),
    ]
    client = re.compile(r"aiodocker\.Docker\(|docker\.(APIClient|DockerClient|from_env)|DaemonClient\(")
    found = {file.name for room in rooms for file in room.rglob("*.py") if client.search(file.read_text())}
    assert found == {"daemon.py"}


class TestWhereTheDaemonIs:
    """Where nothing is given, it is where the Docker command line would look."""

    @pytest.fixture
    def context(self, tmp_path, monkeypatch):
        """A user whose present context is a Docker daemon behind ssh."""
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
            monkeypatch.delenv(name, raising=False)
        docker = tmp_path / ".docker"
        meta = docker / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest() / "meta.json"
        meta.parent.mkdir(parents=True)
        meta.write_text(json.dumps({"Name": "far", "Endpoints": {"docker": {"Host": "ssh://far.invalid"}}}))
        (docker / "config.json").write_text(json.dumps({"currentContext": "far"}))
        return docker

    async def test_a_context_behind_ssh_goes_through_the_tunnel(self, context):
        with pytest.raises(DaemonUnavailable, match=r"no ssh connection for ssh://far.invalid"):
            async with daemon.connect():
                pass

    async def test_DOCKER_HOST_comes_before_the_context_and_a_given_address_before_both(self, context, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", "unix:///of/the/environment.sock")
        for url, said in [(None, "of/the/environment"), ("unix:///given.sock", "given")]:
            with pytest.raises(DaemonUnavailable, match=said):
                async with daemon.connect(url):
                    pass

    @pytest.mark.parametrize("wrong", ["no context of that name", "no JSON"])
    async def test_a_broken_context_is_told(self, context, wrong):
        config = json.dumps({"currentContext": "lost"}) if wrong == "no context of that name" else "{"
        (context / "config.json").write_text(config)
        with pytest.raises(DaemonUnavailable, match=r"No Docker daemon found .*python -m sandboxes setup"):
            async with daemon.connect():
                pass
