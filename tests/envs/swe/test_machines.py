"""Three machines: one here, one over ssh, one over TLS. One is cut off, one killed, one full; all come back."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
import yaml
from machines import Machine, authority, certificates
from own_sshd import need_sshd
from programs import Program
from scripted_engine import ScriptedEngine

from envs.swe import STARTER
from sandboxes.base import DaemonRefused, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.fleet import FleetBackend, read_hosts

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

TASK = "create-notes"
GROUPS, SIZE = 50, 4


def solves(prompt):
    if "<tool_response>\n" in prompt.rsplit("<|im_start|>user", 2)[-1]:
        return '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    script = (STARTER / TASK / "solution" / "solve.sh").read_text()
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': script}})}</tool_call>"


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(solves, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.5) as engine:
        yield engine


def ssh_server(machine, folder):
    """Start an ssh server in a machine. Returns the folder for the PATH whose `ssh` knows it as "elsewhere"."""
    folder.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "known_hosts").write_text(f"elsewhere {(folder / 'host.pub').read_text()}")
    (folder / "sshd_config").write_text(
        f"ListenAddress {machine.address}:22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\n"
    )
    (folder / "ssh_config").write_text(
        f"Host elsewhere\nHostName {machine.address}\nUser root\nIdentityFile {folder}/user\nIdentitiesOnly yes\n"
        f"HostKeyAlias elsewhere\nUserKnownHostsFile {folder}/known_hosts\nStrictHostKeyChecking yes\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "bin").mkdir()
    client = folder / "bin" / "ssh"
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    client.chmod(0o755)
    command = ["ip", "netns", "exec", machine.name, "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "log").open("wb") as log:
        return folder / "bin", subprocess.Popen(command, stderr=log)


@pytest.fixture
async def three(tmp_path, base_image, monkeypatch):
    """The machines, and the file that names them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    need_sshd()
    authority(tmp_path / "ca")
    certificates(tmp_path / "ca", tmp_path / "server", "server", server="10.213.3.2")
    certificates(tmp_path / "ca", tmp_path / "client", "client")
    machines = [
        Machine(tmp_path / "m1", 1),
        Machine(tmp_path / "m2", 2),
        Machine(tmp_path / "m3", 3, certificates=tmp_path / "server"),
    ]
    async with AsyncExitStack() as stack:
        for machine in machines:
            stack.push_async_callback(machine.leave)
            await machine.start()
        path, sshd = ssh_server(machines[1], tmp_path / "ssh")
        stack.callback(sshd.wait)
        stack.callback(sshd.terminate)
        monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
        machines[0].has(base_image)  # the others are to get it from there
        hosts = tmp_path / "hosts.yaml"
        hosts.write_text(
            f"- {machines[0].socket}\n"
            f"- ssh://elsewhere{machines[1].socket.removeprefix('unix://')}\n"
            f"- url: tcp://{machines[2].address}:2376\n  certificates: {tmp_path / 'client'}\n"
        )
        yield machines, hosts


async def test_sandboxes_open_on_each_with_an_image_that_one_of_them_had(three, base_image):
    machines, hosts = three
    async with FleetBackend(read_hosts(str(hosts))) as fleet, AsyncExitStack() as stack:
        assert await fleet.ensure_image(base_image) == base_image
        boxes = [await stack.enter_async_context(fleet.open(SandboxSpec(base_image))) for _ in range(9)]
        for box in boxes:
            assert (await box.exec("echo fine")).output == "fine\n"
        assert min(len(machine.containers()) for machine in machines) >= 1
    assert [machine.containers() for machine in machines] == [[], [], []]


async def test_without_the_right_certificates_nobody_is_let_in(three, tmp_path):
    authority(tmp_path / "other-ca")
    certificates(tmp_path / "other-ca", tmp_path / "stranger", "client")
    with pytest.raises(DaemonRefused, match="put its CA's certificate into"):
        async with DockerBackend(url="tcp://10.213.3.2:2376", certificates=tmp_path / "stranger"):
            pass
    (tmp_path / "stranger" / "ca.pem").write_bytes((tmp_path / "ca" / "ca.pem").read_bytes())
    # It is the right server now, which does not know us.
    with pytest.raises(DaemonRefused, match="it refuses our certificate"):
        async with DockerBackend(url="tcp://10.213.3.2:2376", certificates=tmp_path / "stranger"):
            pass


def start(folder, options):
    """Start a run of one task in a folder."""
    (folder / "tasks").mkdir()
    (folder / "tasks" / TASK).symlink_to(STARTER / TASK)
    own = {"env.tasks": folder / "tasks", "env.run_dir": folder / "run", "env.ensure_scores_are_not_same": "false"}
    return Program(
        ["-m", "envs.swe", "process", *(f"--{name}={value}" for name, value in {**own, **options}.items())],
        stdout=folder / "log",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def rate(folder, url, hosts, room):
    """Make rollouts of tasks that wait on some hosts with so much room together. Returns how many there were a minute,
    while all were at work."""
    options = {"env.hosts": hosts, "env.total_steps": 4 * room, "env.group_size": 1, "env.max_num_workers": room}
    process = start(folder, {"openai.base_url": url, "env.max_concurrent_rollouts": room, **options})
    done, at = 0, []
    while process.poll() is None:
        path = folder / "run/groups.jsonl"
        there = path.read_bytes().count(b"\n") if path.exists() else 0
        at += [time.monotonic()] * (there - done)
        done = there
        await asyncio.sleep(0.05)
    assert process.wait() == 0, (folder / "log").read_text()[-3000:]
    return 60 * 3 * room / (at[-1] - at[room - 1])


async def test_three_hosts_with_room_for_two_sandboxes_each_make_more_than_one_of_them(three, engine, tmp_path):
    """Commands wait, as all three have the processors of this machine."""
    engine.policy = lambda prompt: solves(prompt).replace('"command": "', '"command": "sleep 15; ')
    hosts = yaml.safe_load(three[1].read_text())
    hosts = [{"capacity": 2, **({"url": host} if isinstance(host, str) else host)} for host in hosts]
    found = {}
    for count in (1, 3):
        (folder := tmp_path / f"with-{count}").mkdir()
        (folder / "hosts.yaml").write_text(yaml.safe_dump(hosts[:count]))
        found[count] = await rate(folder, engine.url, folder / "hosts.yaml", 2 * count)
    print(f"rollouts a minute: {found[1]:.1f} on one, {found[3]:.1f} on three, {found[3] / found[1]:.2f} times as many")
    assert found[3] > 1.8 * found[1]


async def test_a_run_loses_nothing_while_hosts_are_cut_off_killed_and_filled(three, engine, tmp_path):
    machines, hosts = three
    one, two, three_ = machines
    run = tmp_path / "run"
    options = {"env.hosts": hosts, "env.total_steps": GROUPS, "env.group_size": SIZE}
    process = start(tmp_path, {"openai.base_url": engine.url, "env.max_concurrent_rollouts": 12, **options})

    def written():
        path = run / "groups.jsonl"
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def wait_for(groups):
        deadline = time.monotonic() + 600
        while len(written()) < groups:
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.1)

    wait_for(5)
    two.pull_cable()
    wait_for(12)
    await three_.kill()
    wait_for(18)
    two.plug_in()
    wait_for(25)
    await three_.boot()
    one.fill()
    wait_for(35)
    one.clear()
    assert process.wait(600) == 0, (tmp_path / "log").read_text()[-3000:]

    groups = written()
    rollouts = Counter(row for group in groups for row in group["generation_params"]["rollout_ids"])
    assert len(groups) == GROUPS
    assert [group["scores"] for group in groups] == [[1.0] * SIZE] * GROUPS, "no zero is ours"
    assert len(rollouts) == GROUPS * SIZE and set(rollouts.values()) == {1}
    # One that was not back before the end has what was left; the next start, or this, removes it.
    reap = [sys.executable, "-m", "sandboxes", "reap", "--hosts", str(hosts)]
    done = await asyncio.to_thread(subprocess.run, reap, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [machine.containers() for machine in machines] == [[], [], []]
