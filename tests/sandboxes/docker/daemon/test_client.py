"""Reaching a Docker daemon, and its errors."""

import asyncio
import contextlib
import hashlib
import json
import re
from pathlib import Path

import aiodocker
import pytest
from stopwatch import Stopwatch

import sandboxes
from sandboxes.base import DaemonError, DaemonUnavailable, SandboxError, SandboxTimeout
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon import client


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
            async with client.connect():
                pass
        assert not isinstance(caught.value, DaemonUnavailable)

    async def test_a_daemon_that_does_not_answer_is_given_up(self, monkeypatch):
        monkeypatch.setattr(client, "PATIENCE_S", 1.0)
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
        monkeypatch.setattr(client, "_REMIND_S", 0.5)
        pauses, hung_up = [6.0, 0.0], asyncio.Event()

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
            await writer.wait_closed()
            hung_up.set()

        server = await asyncio.start_server(slow, "127.0.0.1")
        async with server:
            async with client.connect(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
                pass
            await hung_up.wait()
        assert "has not answered for" in caplog.text


class TestErrors:
    async def test_a_name_conflict_and_a_server_error_may_pass(self):
        for status in (409, 500, 503):
            with pytest.raises(DaemonError):
                async with client.daemon_errors("create"):
                    raise aiodocker.DockerError(status, {"message": "Conflict. The name is already in use"})

    async def test_an_answer_that_never_comes_is_given_up(self):
        with pytest.raises(SandboxTimeout, match="look for image x: the Docker daemon did not answer in time"):
            async with client.daemon_errors("look for image x", 0.01):
                await asyncio.Event().wait()

    async def test_a_full_disk_says_so(self):
        with pytest.raises(SandboxError, match="no space left"):
            async with client.daemon_errors("create"):
                raise aiodocker.DockerError(500, {"message": "write: no space left on device"})


def test_nobody_connects_past_the_tunnel():
    """Clients of other kinds are made nowhere but where the tunnel is."""
    rooms = [
        Path(sandboxes.__file__).parent,
        *(Path(sandboxes.__file__).parents[1] / name for name in ("envs", "tools")),
    ]
    client = re.compile(r"aiodocker\.Docker\(|docker\.(APIClient|DockerClient|from_env)|DaemonClient\(")
    found = {file.name for room in rooms for file in room.rglob("*.py") if client.search(file.read_text())}
    assert found == {"client.py"}


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
            async with client.connect():
                pass

    async def test_DOCKER_HOST_comes_before_the_context_and_a_given_address_before_both(self, context, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", "unix:///of/the/environment.sock")
        for url, said in [(None, "of/the/environment"), ("unix:///given.sock", "given")]:
            with pytest.raises(DaemonUnavailable, match=said):
                async with client.connect(url):
                    pass

    @pytest.mark.parametrize("wrong", ["no context of that name", "no JSON"])
    async def test_a_broken_context_is_told(self, context, wrong):
        config = json.dumps({"currentContext": "lost"}) if wrong == "no context of that name" else "{"
        (context / "config.json").write_text(config)
        with pytest.raises(DaemonUnavailable, match=r"No Docker daemon found .*python -m sandboxes setup"):
            async with client.connect():
                pass
