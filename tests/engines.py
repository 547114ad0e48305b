"""Engines of a test run's own: `--engine NAME` starts one, and `DOCKER_HOST` leads everything to it.

Each has a socket, a storage and a network namespace of its own and is ended with the run. What they need is installed
from Debian's packages where that can be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from images import make_root
from own_daemon import copy_image, dockerd, tidy_up
from own_sshd import Sshd, need_sshd

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.startup import ensure_daemon, install
from sandboxes.docker.images.base_image import ensure_base_image

_USER, _IDS = "games", (5, 60)
"""Who runs an engine without root; Debian gives this user the same ids everywhere, and it owns nothing."""
_SUBIDS = f"{_USER}:300000:65536\n"
_PROCESSES = 4000
"""What an engine without root may have: on cgroup v1 it can't limit what its containers have."""
_START_S, _END_S = 60.0, 30.0
_NEXT = "forky"
"""Debian's release with a newer Docker daemon."""

Environment = Mapping[str, str]


@contextmanager
def started(name: str) -> Iterator[Environment]:
    """Start an engine that has the base image, and end it. Yields the environment that leads to it."""
    image = asyncio.run(_base_image())
    with tempfile.TemporaryDirectory(prefix="engine-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        folder.chmod(0o755)  # another user's engine passes through it
        with ENGINES[name](folder) as environment:
            if name not in _NO_COPY:
                copy_image(image, f"unix://{folder}/docker.sock")
            yield environment


async def _base_image() -> str:
    await ensure_daemon()
    return await ensure_base_image()


@contextmanager
def _gvisor(folder: Path) -> Iterator[Environment]:
    """Containers of gVisor's runtime, which knows no files of the machine that change under it but by this option."""
    _need("runsc")
    runtimes = {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--file-access=shared"]}}
    (folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))
    with _served(folder, dockerd(folder, f"--config-file={folder}/daemon.json")):
        yield _at(folder)


@contextmanager
def _remapped(folder: Path) -> Iterator[Environment]:
    """A Docker daemon with user namespaces: root in a sandbox is nobody on the machine."""
    folder.chmod(0o711)
    subids = _SUBIDS.replace(_USER, "nobody")
    with _served(folder, dockerd(folder, "--userns-remap=nobody:nogroup", subids=subids)):
        yield _at(folder)


@contextmanager
def _tls(folder: Path) -> Iterator[Environment]:
    """A Docker daemon on a TCP port of loopback that shows a certificate, and asks for one, of an authority of ours."""
    _certificates(folder)
    options = [f"--tls{part}={folder}/{name}" for part, name in (("cacert", "ca.pem"), ("cert", "server.pem"))]
    options += ["--tlsverify", f"--tlskey={folder}/server-key.pem", "--host=fd://"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # The daemon is in a network namespace of its own; the port it is handed is not.
        hand = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{server.fileno()}'
        command = ["bash", "-ec", hand, "bash", *dockerd(folder, *options)]
        with _served(folder, command, files=(server.fileno(),)):
            yield {
                "DOCKER_HOST": f"tcp://localhost:{port}",
                "DOCKER_TLS_VERIFY": "1",
                "DOCKER_CERT_PATH": str(folder),
            }


@contextmanager
def _ssh(folder: Path) -> Iterator[Environment]:
    """The machine's own Docker daemon, by way of an ssh server on loopback."""
    need_sshd()
    with Sshd(folder) as server:
        yield {"DOCKER_HOST": server.url, "PATH": f"{server.path}:{os.environ['PATH']}"}


@contextmanager
def _podman(folder: Path) -> Iterator[Environment]:
    _need("podman", "runc")  # crun starts nothing where both versions of cgroups have controllers
    command = ["unshare", "--net", "podman", f"--root={folder}/data", f"--runroot={folder}/run"]
    command += ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file", f"--tmpdir={folder}/tmp"]
    with _served(folder, [*command, "system", "service", "--time=0", f"unix://{folder}/docker.sock"]):
        yield _at(folder)


@contextmanager
def _podman_rootless(folder: Path) -> Iterator[Environment]:
    _need("podman", "runc", "newuidmap:uidmap", "slirp4netns", "fuse-overlayfs")
    command = ["podman", "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file"]
    command += ["system", "service", "--time=0", f"unix://{folder}/docker.sock"]
    try:
        with _served(folder, _without_root(folder, command)):
            yield _at(folder)
    finally:
        # What keeps its user namespace, for the next `podman`.
        for file in folder.glob("home/**/pause.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)


@contextmanager
def _docker_rootless(folder: Path) -> Iterator[Environment]:
    _need("rootlesskit", "newuidmap:uidmap")
    # What the machine's own daemon has in /run is taken away from the copy that this one sees.
    child = 'rm -rf /run/docker /run/containerd /run/xtables.lock; exec "$@"'
    command = ["rootlesskit", "--net=host", "--copy-up=/etc", "--copy-up=/run", "--propagation=rslave"]
    command += [f"--state-dir={folder}/home/kit", "sh", "-ec", child, "sh", "dockerd", "--rootless"]
    command += [f"--data-root={folder}/home/data", f"--exec-root={folder}/home/exec", "--bridge=none"]
    command += [f"--pidfile={folder}/home/pid", "--iptables=false", "--ip-masq=false"]
    with _served(folder, _without_root(folder, [*command, f"--host=unix://{folder}/docker.sock"])):
        yield _at(folder)


@contextmanager
def _newer(folder: Path, *, store: bool = False) -> Iterator[Environment]:
    """The Docker daemon of Debian's next release (28.5 now) in a root directory of that release.

    store: with containerd's image store, which is the default of Docker 29."""
    root = folder / "root"
    asyncio.run(make_root(root, _NEXT, "amd64", "docker.io", "iptables", "procps"))
    (folder / "daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": store}}))
    inside = [*dockerd(folder, f"--config-file={folder}/daemon.json", "--ip6tables=false")][2:]
    # The folder has the same path inside, so that everybody finds what the daemon names.
    enter = (
        'root=$1 folder=$2; shift 2; mount --bind "$root" "$root"; for name in proc sys dev; do '
        'mount --rbind /$name "$root/$name"; done; mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; '
        'mount -t tmpfs run "$root/run"; exec chroot "$root" "$@"'
    )
    command = ["unshare", "--net", "--mount", "sh", "-ec", enter, "sh", str(root), str(folder), *inside]
    with _served(folder, command):
        yield _at(folder)


ENGINES = {
    "docker-newer": _newer,
    "containerd-store": partial(_newer, store=True),
    "gvisor": _gvisor,
    "userns": _remapped,
    "tls": _tls,
    "ssh": _ssh,
    "podman": _podman,
    "podman-rootless": _podman_rootless,
    "docker-rootless": _docker_rootless,
}
_NO_COPY = {"ssh"}


def _at(folder: Path) -> Environment:
    return {"DOCKER_HOST": f"unix://{folder}/docker.sock"}


def _without_root(folder: Path, command: list[str]) -> list[str]:
    """Return the command that runs another one as a user who may have more ids in user namespaces of its own."""
    uid, gid = _IDS
    home = folder / "home"
    home.mkdir()
    for place in (folder, home):
        os.chown(place, uid, gid)
    (folder / "subids").write_text(_SUBIDS)
    names = f"for name in subuid subgid; do mount --bind {folder}/subids /etc/$name; done"
    switch = f"exec setpriv --reuid={uid} --regid={gid} --clear-groups prlimit --nproc={_PROCESSES} env -i"
    settings = f"HOME={home} XDG_RUNTIME_DIR={home} PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    return ["unshare", "--net", "--mount", "sh", "-ec", f'{names}; cd /; {switch} {settings} "$@"', "sh", *command]


@contextmanager
def _served(folder: Path, command: list[str], *, files: tuple[int, ...] = ()) -> Iterator[None]:
    """Run what serves the folder's socket."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, pass_fds=files)
    try:
        _wait_for(folder, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        tidy_up(folder)


def _wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    async def answers() -> bool:
        try:
            async with connect(f"unix://{folder}/docker.sock"):
                return True
        except DaemonUnavailable:
            return False

    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        if asyncio.run(answers()):
            return
        time.sleep(0.5)
    pytest.fail(f"{process.args} serves nothing: {(folder / 'log').read_text(errors='replace')[-3000:]}")


def _need(*programs: str) -> None:
    """Install the Debian packages of these programs, "program:package" or one name for both, where they are missing."""
    paths = "/usr/local/sbin:/usr/sbin:/sbin:" + os.environ["PATH"]
    named = [(name.partition(":")[0], name.rpartition(":")[2]) for name in programs]
    missing = [package for program, package in named if not _which(program, paths)]
    if missing:
        try:
            asyncio.run(install(*missing))
        except DaemonUnavailable as error:
            pytest.skip(str(error))


def _which(program: str, paths: str) -> bool:
    return any((Path(place) / program).exists() for place in paths.split(":"))


def _certificates(folder: Path) -> None:
    """Make an authority, and a certificate of its for the server and one for the client."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    for name, out, use in (("server", "server", "serverAuth"), ("client", "", "clientAuth")):
        own = f"{out}-key.pem" if out else "key.pem"
        (folder / "use").write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage={use}\n")
        openssl("req", *key, "-keyout", own, "-out", "request", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile", "use"]
        openssl("x509", "-req", "-in", "request", *signed, "-out", f"{out or 'cert'}.pem")
