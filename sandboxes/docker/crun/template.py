"""The isolation of a container: the Docker daemon's own, read from its description for its runtime.

Our containers get everything the Docker daemon gives its own (namespaces, limits, seccomp profile, capabilities,
masked and read-only paths, devices, AppArmor profile), in the form of the Open Container Initiative's runtime
specification.
"""

from __future__ import annotations

import base64
import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxes.base import SandboxError
from sandboxes.docker.crun.owner_directory import HOSTNAME
from sandboxes.docker.executor.program import EXECUTOR

_NAMESPACES = ("pid", "network", "ipc", "uts", "mount", "cgroup")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIMITS = {
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max data size": "RLIMIT_DATA",
    "Max stack size": "RLIMIT_STACK",
    "Max core file size": "RLIMIT_CORE",
    "Max resident set": "RLIMIT_RSS",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max address space": "RLIMIT_AS",
    "Max file locks": "RLIMIT_LOCKS",
    "Max pending signals": "RLIMIT_SIGPENDING",
    "Max msgqueue size": "RLIMIT_MSGQUEUE",
    "Max nice priority": "RLIMIT_NICE",
    "Max realtime priority": "RLIMIT_RTPRIO",
    "Max realtime timeout": "RLIMIT_RTTIME",
}
_UNLIMITED = 2**64 - 1
_VERSION = "1.0.2"
"""Of the specification: a crun of today refuses descriptions of tomorrow's. Newer parts come from Docker daemons that
are newer than crun, which passes them over."""
_KNOWN = 435
"""clone3, known even to old profiles."""

Template = dict[str, Any]


def read_template(process: int, proc: Path = Path("/proc")) -> Template:
    """Return the description of a running container of the Docker daemon's; its first process has this id here.

    Raises SandboxError if it is not to be found.
    """
    try:
        stat = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        parent = stat.rpartition(")")[2].split()[1]
        # What has started it works in the folder that describes it.
        found = json.loads((proc / parent / "cwd" / "config.json").read_bytes())
        limits = (proc / str(process) / "limits").read_text(encoding="ascii")
        return _shared_part(found, limits)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SandboxError(f"how the Docker daemon isolates a container can't be read: {error!r}") from error


def _shared_part(found: Template, limits: str) -> Template:
    """Return the part of a container's description common to all of its kind."""
    kinds = {space["type"] for space in found["linux"]["namespaces"]}
    if "user" in kinds or not {"pid", "network", "ipc", "uts", "mount"} <= kinds:
        raise ValueError(f"its namespaces are {sorted(kinds)}")
    if not found["linux"].get("seccomp", {}).get("syscalls"):
        raise ValueError("it has no seccomp profile")
    process = dict(found["process"], terminal=False, cwd="/", rlimits=_rlimits(limits))
    process["args"] = ["/" + EXECUTOR, *process["args"][1:], f"calls={newest_system_call(found['linux']['seccomp'])}"]
    process.pop("consoleSize", None)
    linux = dict(found["linux"], namespaces=[{"type": kind} for kind in _NAMESPACES])
    template: Template = {
        "ociVersion": _VERSION,
        "process": process,
        "root": {"path": "root"},
        "hostname": HOSTNAME,
        # The Docker daemon binds files with names of hosts; ours are in a layer.
        "mounts": [mount for mount in found["mounts"] if mount.get("type") != "bind"],
        "linux": linux,
    }
    if not any(mount["destination"] == "/dev/shm" for mount in template["mounts"]):
        raise ValueError("it has no /dev/shm of its own")
    return template


def newest_system_call(profile: Mapping[str, Any]) -> int:
    """Return the number of the last system call that a seccomp profile names and crun's library knows.

    A profile can't say whether later ones may be called: for runc, the Docker daemon's runtime, they do not exist.
    Calls have the same numbers on all processors from 424 on, and all profiles know the calls below.
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:  # a crun that has its own: what all know that have been seen
        return _KNOWN
    names = [name.encode() for rule in profile["syscalls"] for name in rule["names"]]
    numbers: list[int] = [library.seccomp_syscall_resolve_name(name) for name in names]
    return max(_KNOWN, *numbers)


def _rlimits(text: str) -> list[dict[str, Any]]:
    """Return the limits in /proc/PID/limits."""
    found = []
    for line in text.splitlines()[1:]:
        name = next((name for name in _LIMITS if line.startswith(name + " ")), None)
        if name is None:
            continue
        soft, hard = (_UNLIMITED if n == "unlimited" else int(n) for n in line.removeprefix(name).split()[:2])
        found.append({"type": _LIMITS[name], "soft": soft, "hard": hard})
    if len(found) != len(_LIMITS):
        raise ValueError("it does not tell all of its limits")
    return found


def describe(
    template: Template, cgroup: str, environment: Sequence[str], folders: Sequence[tuple[str, str]] = ()
) -> bytes:
    """Return the description of one container. environment: the image's. folders: see `Kind.mounts`."""
    known = {entry.partition("=")[0] for entry in environment}
    more = [entry for entry in (_PATH, f"HOSTNAME={HOSTNAME}") if entry.partition("=")[0] not in known]
    process = template["process"] | {"env": [*more, *environment]}
    linux = template["linux"] | {"cgroupsPath": cgroup}
    bound = [
        {"destination": target, "type": "bind", "source": folder, "options": ["bind", "ro", "nosuid", "nodev"]}
        for target, folder in folders
    ]
    mounts = [*template["mounts"], *bound]
    return json.dumps(template | {"process": process, "linux": linux, "mounts": mounts}).encode()


def add_filter(template: Template, program: bytes) -> Template:
    """Return a template with a compiled seccomp profile; to compile it again is half the cost of a start.

    program: crun's program of the profile. A crun without this feature would start nothing: the profile without its
    rules refuses every call.
    """
    profile = template["linux"]["seccomp"] | {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}
    annotations = {"run.oci.seccomp_bpf_data": base64.b64encode(program).decode()}
    return template | {"annotations": annotations, "linux": template["linux"] | {"seccomp": profile}}


def top_mounts(template: Mapping[str, Any]) -> list[str]:
    """Return the mounts in the root directory itself, without slashes."""
    places = {mount["destination"].strip("/").partition("/")[0] for mount in template["mounts"]}
    return sorted(places)
