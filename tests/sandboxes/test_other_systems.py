"""Systems that are not Linux: what is imported there, and what a command says there."""

import os
import subprocess
import sys
from pathlib import Path

from sandboxes.docker.crun.availability import Obstacle, find_crun

ROOT = Path(__file__).parents[2]
# What macOS's Python has not. Other people's packages are imported before it is taken away: theirs differ there.
WITHOUT_LINUX = """
import importlib, os, pkgutil, resource, select, signal, socket, sys

OURS = ("sandboxes", "tools")
LINUX = {
    os: "O_PATH O_TMPFILE O_DIRECT O_NOATIME pidfd_open P_PIDFD memfd_create MFD_CLOEXEC eventfd EFD_CLOEXEC "
    "sched_getaffinity sched_setaffinity sched_setscheduler sched_param SCHED_IDLE SCHED_BATCH setresuid setresgid "
    "getresuid getresgid getrandom GRND_NONBLOCK posix_fallocate posix_fadvise splice copy_file_range getxattr "
    "setxattr listxattr removexattr pipe2 fdatasync",
    signal: "pidfd_send_signal sigwaitinfo sigtimedwait SIGRTMIN SIGRTMAX SIGSTKFLT SIGPWR SIGPOLL SIGCLD",
    select: "epoll EPOLLIN",
    socket: "AF_VSOCK AF_PACKET AF_NETLINK SO_PEERCRED TCP_USER_TIMEOUT SOCK_CLOEXEC SOCK_NONBLOCK",
    resource: "prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING",
}

def ours(root):
    yield root
    for module in pkgutil.walk_packages(importlib.import_module(root).__path__, root + "."):
        # Adapters need the frameworks of others, which an extra brings.
        if not any(part in module.name for part in ("__main__", ".inside", ".adapters.")):
            yield module.name

names = [name for root in OURS[:2] for name in ours(root)]
for name in names:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
    del sys.modules[name]
for module, lacking in LINUX.items():
    for name in lacking.split():
        vars(module).pop(name, None)
sys.platform = "darwin"
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_everything_can_be_imported_without_linux():
    done = subprocess.run([sys.executable, "-c", WITHOUT_LINUX], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 20


def test_elsewhere_the_docker_daemon_starts_sandboxes(monkeypatch, tmp_path):
    class Client:
        here = True

    (tmp_path / "overlay2").mkdir()
    info = {"DockerRootDir": str(tmp_path), "Driver": "overlay2", "SecurityOptions": ["name=seccomp"]}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delattr(os, "O_PATH")
    found = find_crun(Client(), info)
    assert isinstance(found, Obstacle) and "not Linux" in found.why
