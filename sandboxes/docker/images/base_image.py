"""Makes the base image on machines without a registry: a small Debian with python3, pytest and git."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlencode

from sandboxes.base import ImageMissing, SandboxError
from sandboxes.docker.daemon.client import DaemonClient, connect, daemon_errors
from sandboxes.docker.daemon.startup import install
from sandboxes.docker.images.store import ImageStore
from sandboxes.shielding import ending, finish

logger = logging.getLogger(__name__)

BASE_IMAGE = "atropos-agent/base:debian12"
_SUITE = "bookworm"
_PULLED = "debian:bookworm-slim"
_PACKAGES = ("ca-certificates", "git", "patch", "procps", "python3", "python3-pytest")
_LEFTOVERS = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)
_MODULES = "/usr/lib/python3/dist-packages"
_IMPORT_S = 600.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def ensure_base_image() -> str:
    """Return the base image's name, once it is there. Makes a missing one in a minute or two.

    From Debian's own image if it can be pulled, else by debootstrap, which needs root and a Debian
    mirror. Raises DaemonUnavailable, or ImageMissing with the reason.
    """
    async with connect() as client:
        if await ImageStore(client, None).look_up(BASE_IMAGE) is None:
            await make_base_image(client)
    return BASE_IMAGE


async def make_base_image(client: DaemonClient) -> None:
    """Make the base image. Raises as `ensure_base_image`."""
    images = ImageStore(client, None)
    try:
        await images.ensure(_PULLED, None)
    except ImageMissing:
        logger.info("%s cannot be pulled; making %s with debootstrap, which takes a minute or two", _PULLED, BASE_IMAGE)
        await _debootstrap(client)
    else:
        with tempfile.TemporaryDirectory() as context:
            await asyncio.to_thread((Path(context) / "Dockerfile").write_text, _dockerfile(), encoding="utf-8")
            tag = await images.ensure(None, Path(context))
        async with daemon_errors(f"tag image {BASE_IMAGE}"):
            repository, _, version = BASE_IMAGE.partition(":")
            await client.images.tag(tag, repository, tag=version)


def _dockerfile() -> str:
    return (
        f"FROM {_PULLED}\nENV PATH={_PATH} LANG=C.UTF-8\n"
        f"RUN apt-get update && apt-get install -y --no-install-recommends {' '.join(_PACKAGES)} "
        "&& rm -rf /var/lib/apt/lists/*\nWORKDIR /\n"
    )


async def _debootstrap(client: DaemonClient) -> None:
    if os.geteuid() != 0:
        raise ImageMissing(f"{BASE_IMAGE} cannot be made: no image can be pulled, and debootstrap needs root")
    if not shutil.which("debootstrap"):
        await install("debootstrap", "debian-archive-keyring")
    start = time.monotonic()
    directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="atropos-base-"))
    mirror = await asyncio.to_thread(find_mirror, Path("/etc/apt"))
    try:
        await _program(
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(_PACKAGES)}",
            _SUITE,
            f"{directory}/root",
            *([mirror] if mirror else []),  # without one debootstrap takes its own choice
        )
        # Debian's packages do so themselves, but not under debootstrap: every sandbox would compile pytest again.
        await _program("chroot", f"{directory}/root", "python3", "-m", "compileall", "-q", _MODULES)
        await asyncio.to_thread(_strip, directory / "root")
        await _program("tar", "-C", f"{directory}/root", "--numeric-owner", "-cf", f"{directory}/root.tar", ".")
        await import_image(client, directory / "root.tar", BASE_IMAGE)
    finally:
        await finish(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))
    logger.info("Made %s in %.0f s", BASE_IMAGE, time.monotonic() - start)


def find_mirror(apt: Path) -> str | None:
    """Return the suite's address in apt's source lists, in either of their formats; None without one."""
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            one_line = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(https?://\S+)\s+(\S+)\s+main\b", line)
            if one_line and one_line[2] == _SUITE:
                return one_line[1]
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(URIs|Suites|Types|Components):\s*(.*)$", stanza, re.MULTILINE))
            if _SUITE in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split():
                return str(fields["URIs"].split()[0])
    return None


async def _program(*command: str) -> None:
    pipe = asyncio.subprocess.PIPE
    # Python's variables are this process's: PYTHONPYCACHEPREFIX would put what the image's Python compiles elsewhere.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=env
    )
    async with ending(process, signal.SIGTERM):  # at which debootstrap unmounts what it had mounted
        output, _ = await process.communicate()
    if process.returncode != 0:
        tail = output.decode(errors="replace")[-2000:]
        raise ImageMissing(f"the base image cannot be made: `{' '.join(command)}` failed:\n{tail}")


def _strip(root: Path) -> None:
    for name in _LEFTOVERS:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()


async def import_image(client: DaemonClient, archive: Path, name: str) -> None:
    """Make the tar archive of a root file system an image. Raises SandboxError."""
    repository, _, tag = name.partition(":")
    changes = [f"ENV PATH={_PATH}", "ENV LANG=C.UTF-8", "WORKDIR /", 'CMD ["/bin/sh"]']
    params = [("fromSrc", "-"), ("repo", repository), ("tag", tag), *(("changes", change) for change in changes)]
    file = await asyncio.to_thread(archive.open, "rb")
    with file:
        async with daemon_errors(f"import image {name}", _IMPORT_S):
            request = client._query(
                f"images/create?{urlencode(params, quote_via=quote)}",  # `changes` comes several times
                method="POST",
                data=file,
                headers={"Content-Type": "application/x-tar"},
            )
            async with request as response:
                lines = (await response.text()).strip().splitlines()
    if lines and "error" in (last := json.loads(lines[-1])):
        raise SandboxError(f"import image {name}: {last['error']}")
