"""From a description to a running container."""

from pathlib import Path

import aiodocker
import pytest

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.starter import container_config
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.proxy import PORT


def test_every_executor_is_there():
    folder = Path(__file__).parents[4] / "sandboxes/docker/executor"
    for architecture, machine in (("amd64", 0x3E), ("arm64", 0xB7)):
        header = (folder / f"executor-{architecture}").read_bytes()[:20]
        assert header[:4] == b"\x7fELF"
        assert header[18] == machine


@pytest.mark.docker
class TestStarts:
    async def test_a_start_is_tried_again(self, docker_backend, base_image, monkeypatch):
        launcher = docker_backend._sandboxes.starter
        create, tries = launcher._create, []

        async def failing(name, kind):
            tries.append(name)
            if len(tries) == 1:
                raise aiodocker.DockerError(409, {"message": "Conflict. The container name is already in use"})
            return await create(name, kind)

        monkeypatch.setattr(launcher, "_create", failing)
        async with docker_backend.open(SandboxSpec(base_image)) as box:
            assert (await box.exec("echo fine")).output == "fine\n"
        assert len(set(tries)) == 2

    async def test_a_start_asks_the_daemon_no_more_than_it_must(self, docker_backend, base_image, monkeypatch):
        async with docker_backend.open(SandboxSpec(base_image)):
            pass  # the first one asks what the image is
        asked, query = [], aiodocker.Docker._do_query

        async def counted(client, path, *args, **kwargs):
            asked.append((kwargs["method"], str(path).split("?")[0].rsplit("/", 1)[-1]))
            return await query(client, path, *args, **kwargs)

        monkeypatch.setattr(aiodocker.Docker, "_do_query", counted)
        async with docker_backend.open(SandboxSpec(base_image)) as box:
            assert (await box.exec("echo fine")).output == "fine\n"
        starts = [what for _, what in asked if what in ("create", "attach", "start")]
        assert starts == ["create", "attach", "start"]
        assert len(asked) <= 6, "create, show, attach, start, show, delete"

    async def test_a_folder_with_a_file_of_ours_stays_the_images(self, base_image, tmp_path):
        (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nRUN chown games /etc && chmod 711 /etc\n")
        async with (
            DockerBackend(starter="docker") as backend,
            backend.open(SandboxSpec(await backend.ensure_image(None, tmp_path))) as box,
        ):
            found = await box.exec("stat -c '%U %a' /etc; getent hosts localhost >/dev/null && echo found")
            assert found.output == "games 711\nfound\n"

    async def test_an_engine_of_another_layout_places_files_itself(self, base_image, monkeypatch):
        monkeypatch.setattr("sandboxes.docker.daemon.starter._INITIAL", "of no engine")
        async with DockerBackend(starter="docker") as backend, backend.open(SandboxSpec(base_image)) as box:
            assert (await box.exec("getent hosts localhost")).ok


class TestWhatTheDaemonIsTold:
    def test_by_default_there_is_no_network_and_nothing_to_gain(self):
        config = container_config(Kind.of(SandboxSpec("image")), {"a": "b"})
        host = config["HostConfig"]
        assert (config["NetworkDisabled"], host["NetworkMode"], host["CapDrop"]) == (True, "none", ["ALL"])
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert host["Memory"] == host["MemorySwap"] == 1024 * 2**20
        assert "StorageOpt" not in host and "Runtime" not in host
        assert config["Cmd"] == ["lease=900", f"fsize={2048 * 2**20}", "capabilities=800405fb"]
        assert not {"MKNOD", "NET_RAW", "AUDIT_WRITE", "SYS_ADMIN", "SYS_PTRACE"} & set(host["CapAdd"])

    def test_without_capabilities_only_process_1_has_some(self):
        for switch_users, asked in ((False, []), (True, ["capabilities=c0"])):
            spec = SandboxSpec("image", limits=Limits(capabilities="none"), switch_users=switch_users)
            config = container_config(Kind.of(spec), {})
            assert config["HostConfig"]["CapAdd"] == ["KILL", "SETGID", "SETPCAP", "SETUID"]
            assert config["Cmd"][2:] == asked

    def test_what_the_spec_asks_for_is_passed_on(self):
        spec = SandboxSpec("image", limits=Limits(allowed_hosts=("x",), disk_mb=7, pids=10))
        config = container_config(Kind.of(spec), {}, runtime="runsc", quota=True)
        assert config["Cmd"][1:] == [f"fsize={7 * 2**20}", "capabilities=800405fb", f"tunnels={PORT}"]
        assert config["HostConfig"]["StorageOpt"] == {"size": "7M"}
        assert (config["HostConfig"]["Runtime"], config["HostConfig"]["PidsLimit"]) == ("runsc", 320)

    def test_user_directory_and_environment_make_no_kind_of_their_own(self):
        other = SandboxSpec("image", workdir="/x", user="dev", env={"A": "b"})
        assert Kind.of(other) == Kind.of(SandboxSpec("image"))
        assert Kind.of(SandboxSpec("image", switch_users=True)) != Kind.of(other)
