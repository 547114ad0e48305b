"""Files of sandboxes as layers of overlay mounts: the images' own, ours, and sandboxes' written files."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.base import SandboxError
from sandboxes.docker.crun import kernel

MOUNT_FLAGS = kernel.NO_DEV
_OPTIONS = "index=off,redirect_dir=off,metacopy=off"
"""As the Docker daemon mounts: a layer is the contents of its folder, and nothing points elsewhere."""
_PAGE = 4095
"""The most bytes of a mount's options."""
_LEVELS = 30


@dataclass(eq=False, slots=True)
class Layer:
    """A folder of unchanging files.

    name: a short path from the Docker daemon's directory, since all paths of a mount have to fit into a page.
    users: how many sandboxes and forks need it; with the last one it goes, but for an image's or the backend's own
        layers, which are `kept`.
    """

    path: Path
    name: str
    kept: bool = True
    users: int = 0


Stack = tuple[Layer, ...]
"""A sandbox's view of others' files, the uppermost first."""


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """A sandbox's files at one moment. mode, uid, gid: the root directory's own."""

    stack: Stack
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


def acquire_layers(stack: Stack) -> None:
    for layer in stack:
        layer.users += 1


async def release_layers(stack: Stack) -> None:
    """Remove layers without users."""
    for layer in stack:
        layer.users -= 1
        if not layer.kept and layer.users == 0:
            await asyncio.to_thread(remove_tree, layer.path)


def has_all_layers(storage: Path, stack: Stack) -> bool:
    """Return whether all layers are still there. The Docker daemon removes a layer's short path first,
    so a layer with its path was whole until now. storage: the Docker daemon's directory."""
    try:
        return all((storage / layer.name).exists() for layer in stack)
    except OSError:
        return False


def image_layers(driver: Mapping[str, Any]) -> Stack:
    """Return the layers of an image, by the Docker daemon's description of its storage. Raises SandboxError if they
    are not here."""
    data = driver.get("Data") or {}
    folders = [data.get("UpperDir") or "", *(data.get("LowerDir") or "").split(":")]
    layers = []
    for folder in filter(None, folders):
        try:
            name = (Path(folder).parent / "link").read_text(encoding="ascii").strip()
        except OSError as error:
            raise SandboxError(f"a layer of the image is not to be found on this host: {error}") from error
        layers.append(Layer(Path(folder), f"overlay2/l/{name}"))
    return tuple(layers)


def snapshot_layers(process: int, links: Path, name: str, proc: Path = Path("/proc")) -> Stack:
    """Return the layers of the image of a running container, by its root directory's mount. Raises SandboxError.

    For containerd's image store, which tells no folders. process: the container's first one. links: a folder for the
    short paths; name: its path from the Docker daemon's directory."""
    try:
        mounts = (proc / str(process) / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        root = next(line.split() for line in mounts if line.split()[4] == "/")
        mount = dict(option.partition("=")[::2] for option in root[-1].split(","))
        # Of many layers the paths are relative to the folder of all.
        below = [Path(mount["upperdir"]).parents[1] / folder for folder in mount["lowerdir"].split(":")]
        links.mkdir(mode=0o700, parents=True, exist_ok=True)
        layers = []
        for folder in below:
            if folder is below[0] and (folder / ".dockerenv").exists():
                continue  # the container's own
            link = links / folder.parent.name
            if not link.is_symlink():
                link.symlink_to(folder)
            if not link.is_dir():
                raise FileNotFoundError(f"{folder} is not here")
            layers.append(Layer(folder, f"{name}/{link.name}"))
    except (OSError, KeyError, IndexError, StopIteration) as error:
        raise SandboxError(f"a layer of the image is not to be found on this host: {error!r}") from error
    return tuple(layers)


def mount_overlay(target: Path, upper: Path, work: Path, stack: Sequence[Layer]) -> None:
    """Mount a stack with a folder to write to. The present directory is the Docker daemon's."""
    lower = ":".join(layer.name for layer in stack)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{_OPTIONS}"
    if len(options.encode()) > _PAGE:
        raise SandboxError(
            f"these files are forks of forks, {len(stack)} layers deep, of which no more fit into one mount; "
            "download them, and upload them to a new sandbox"
        )
    kernel.mount("overlay", str(target), "overlay", MOUNT_FLAGS, options)


def copy_layer(source: Path, target: Path) -> None:
    """Copy a sandbox's written files, with everything that makes up a layer. Raises OSError."""
    command = ["cp", "-a", "--reflink=auto", "--", str(source), str(target)]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise OSError(f"what a sandbox has written can't be copied: {done.stderr.decode(errors='replace')[-500:]}")


def remove_tree(path: Path) -> None:
    """Remove a tree, however deep, as far as possible. Each level takes a descriptor: beyond some level `rm` does
    it."""
    try:
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _remove(parent, path.name, _LEVELS)
        finally:
            os.close(parent)
    except OSError:
        if path.exists():
            subprocess.run(["rm", "-rf", "--", str(path)], check=False, stdin=subprocess.DEVNULL, capture_output=True)


def _remove(parent: int, name: str, levels: int) -> None:
    if levels == 0:
        raise OSError(errno.EMFILE, "too deep", name)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for one, is_folder in found:
            if is_folder:
                _remove(folder, one, levels - 1)
            else:
                os.unlink(one, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
