"""What is taken over from the Docker daemon's description of a container, and when it is refused."""

import json
import os
from pathlib import Path

import pytest

from sandboxes.base import SandboxError
from sandboxes.docker.crun.template import add_filter, describe, newest_system_call, read_template, top_mounts

DESCRIPTION = {
    "ociVersion": "1.0.2",
    "process": {
        "args": ["/x", "lease=900"],
        "env": ["A=theirs"],
        "cwd": "/elsewhere",
        "terminal": True,
        "noNewPrivileges": True,
    },
    "root": {"path": "/merged"},
    "hostname": "theirs",
    "hooks": {"prestart": [{"path": "/hook"}]},
    "mounts": [
        {"destination": "/proc", "type": "proc"},
        {"destination": "/dev", "type": "tmpfs"},
        {"destination": "/dev/shm", "type": "tmpfs", "options": ["size=7k"]},
        {"destination": "/etc/hosts", "type": "bind", "source": "/var/lib/hosts"},
    ],
    "linux": {
        "cgroupsPath": "/docker/theirs",
        "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")] + [{"type": "network", "path": "/x"}],
        "seccomp": {"syscalls": [{"names": ["read"]}]},
        "resources": {"memory": {"limit": 5}},
        "maskedPaths": ["/proc/kcore"],
    },
}


def machine(tmp_path, description) -> Path:
    """A /proc in which process 20 has been started by process 10, which works beside the description."""
    (tmp_path / "10" / "cwd").mkdir(parents=True)
    (tmp_path / "20").mkdir()
    (tmp_path / "10/cwd/config.json").write_text(json.dumps(description))
    (tmp_path / "20/stat").write_text("20 (na) me) S 10 20 20")
    (tmp_path / "20/limits").write_text(Path("/proc/self/limits").read_text())
    return tmp_path


def test_isolation_is_taken_over_and_what_is_the_containers_own_is_not(tmp_path):
    template = read_template(20, machine(tmp_path, DESCRIPTION))
    made = json.loads(describe(template, "/ours/1", ["A=image's"]))
    assert "hooks" not in made and made["root"] == {"path": "root"}
    assert [mount["destination"] for mount in made["mounts"]] == ["/proc", "/dev", "/dev/shm"]
    assert made["linux"]["cgroupsPath"] == "/ours/1"
    assert {"type": "network"} in made["linux"]["namespaces"] and {"type": "cgroup"} in made["linux"]["namespaces"]
    for same in ("seccomp", "resources", "maskedPaths"):
        assert made["linux"][same] == DESCRIPTION["linux"][same]
    process = made["process"]
    assert process["args"] == ["/.atropos-executor", "lease=900", "calls=435"]
    assert (process["cwd"], process["terminal"], process["noNewPrivileges"]) == ("/", False, True)
    assert {"A=image's", "HOSTNAME=sandbox"} < set(process["env"])
    assert any(entry.startswith("PATH=") for entry in process["env"])
    open_files = next(limit for limit in process["rlimits"] if limit["type"] == "RLIMIT_NOFILE")
    assert open_files["soft"] == os.sysconf("SC_OPEN_MAX")
    assert top_mounts(template) == ["dev", "proc"]


@pytest.mark.parametrize(
    ("names", "newest"),
    [(["read", "clone3"], 435), (["close_range", "read"], 436), (["faccessat2", "of_tomorrow"], 439)],
)
def test_the_newest_call_is_the_last_one_that_the_profile_knows(names, newest):
    assert newest_system_call({"syscalls": [{"names": names[:1]}, {"names": names[1:]}]}) == newest


def changed(**linux):
    return DESCRIPTION | {"linux": DESCRIPTION["linux"] | linux}


@pytest.mark.parametrize(
    "description",
    [
        changed(seccomp={}),
        changed(namespaces=[{"type": "mount"}]),
        changed(namespaces=[*DESCRIPTION["linux"]["namespaces"], {"type": "user"}]),
        DESCRIPTION | {"mounts": []},
        {},
    ],
)
def test_less_isolation_than_docker_gives_is_none(tmp_path, description):
    with pytest.raises(SandboxError, match="isolates"):
        read_template(20, machine(tmp_path, description))


def test_a_process_of_another_machine_is_told(tmp_path):
    with pytest.raises(SandboxError, match="can't be read"):
        read_template(20, tmp_path)


@pytest.mark.parametrize("default", ["SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW"])
def test_a_crun_that_does_not_know_the_compiled_profile_may_allow_nothing(default):
    profile = {"defaultAction": default, "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]}
    found = add_filter({"linux": {"seccomp": profile, "cgroupsPath": "x"}}, b"program")
    assert found["linux"] == {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}, "cgroupsPath": "x"}
    assert found["annotations"] == {"run.oci.seccomp_bpf_data": "cHJvZ3JhbQ=="}
