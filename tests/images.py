"""Images that the conformance suite can run in: `--image NAME`."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path

from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.startup import install
from sandboxes.docker.images.base_image import find_mirror, import_image

_WITHOUT = {
    "no-bash": "rm -f /bin/bash /usr/bin/bash",
    "no-tmp": "rm -rf /tmp",
}
_PACKAGES = ("git", "procps", "python3")


async def made(name: str, base: str) -> str:
    """Return the name of an image, once it is there: the base image without something, "i386" (Debian for 32 bits),
    "trixie" (Debian 13, with Python 3.13), a root file system's archive, or any that is present or can be pulled."""
    if name in _WITHOUT:
        return await _built(base, _WITHOUT[name])
    if name == "i386":
        return await _debian("bookworm", "i386")
    if name == "trixie":
        return await _debian("trixie", "amd64")
    if await asyncio.to_thread(Path(name).is_file):
        return await _imported(Path(name))
    async with DockerBackend() as backend:
        return await backend.ensure_image(name)


async def _built(base: str, command: str) -> str:
    with tempfile.TemporaryDirectory() as context:
        await asyncio.to_thread((Path(context) / "Dockerfile").write_text, f"FROM {base}\nRUN {command}\n")
        async with DockerBackend() as backend:
            return await backend.ensure_image(None, Path(context))


async def _imported(archive: Path) -> str:
    digest = hashlib.sha256(await asyncio.to_thread(archive.read_bytes)).hexdigest()
    tag = f"atropos-test-image:{digest[:16]}"
    async with connect() as client:
        await import_image(client, archive, tag)
    return tag


async def _debian(suite: str, architecture: str) -> str:
    tag = f"atropos-test-debian:{suite}-{architecture}"
    async with connect() as client:
        if any(tag in (image["RepoTags"] or []) for image in await client.images.list()):
            return tag
        with tempfile.TemporaryDirectory() as place:
            root = Path(place) / "root.tar"
            await make_root(root, suite, architecture, *_PACKAGES)
            await import_image(client, root, tag)
    return tag


async def make_root(root: Path, suite: str, architecture: str, *packages: str) -> None:
    """Make a root directory, or its archive, of one of Debian's releases with some packages."""
    await install("mmdebstrap", "debian-archive-keyring")  # half the time of debootstrap
    mirror = find_mirror(Path("/etc/apt"))
    command = ["mmdebstrap", f"--arch={architecture}", "--variant=minbase", f"--include={','.join(packages)}"]
    command += ['--aptopt=Acquire::Check-Valid-Until "false"', suite, str(root), *([mirror] if mirror else [])]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"mmdebstrap --arch={architecture} failed: {said.decode()[-2000:]}")
