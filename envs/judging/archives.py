"""Tar archives: of directories of ours, and untrusted ones."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from sandboxes.base import Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands of ours look for programs of the image."""
_READ_S = 60.0


def pack_directory(directory: Path) -> bytes:
    """Return a directory of ours as a tar archive: owned by root, readable by all, writable by its owner."""
    return pack_directories([(".", directory)])


def pack_directories(directories: Sequence[tuple[str, Path]], left_out: Container[str] = ()) -> bytes:
    """Return several directories as one archive, each with its path in the archive. If two files have one path, the
    later counts. left_out: names of members."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in Path(info.name).parts or info.name in left_out:
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for place, directory in directories:
            for path in sorted(directory.iterdir()):
                tar.add(path, arcname=str(Path(place, path.name)), filter=plain)
    return buffer.getvalue()


def regular_files(archive: bytes, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the regular files of an untrusted archive; larger ones are skipped."""
    return ((name, data) for name, data in members(archive, max_bytes) if data is not None)


def members(archive: bytes, max_bytes: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield what an untrusted archive holds but for directories: the names, and the contents of regular files; None for
    larger ones, and for other things. Raises TarError where it is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                name = relative_name(member.name)
                if name and not member.isdir():
                    is_read = member.isreg() and not member.issparse() and member.size <= max_bytes
                    file = tar.extractfile(member) if is_read else None
                    yield name, None if file is None else file.read()
    except (ValueError, RecursionError) as error:  # in extended headers, which tarfile reads without a check
        raise tarfile.ReadError(f"broken headers: {error}") from error


async def pack_some(sandbox: Sandbox, folder: str, paths: Iterable[str], max_bytes: int) -> bytes:
    """Return those of some paths in a sandbox's folder that exist, as an archive made by the image's own tar; b"" if it
    is too large. Raises SandboxError."""
    packed = await sandbox.exec(
        "exec xargs -0 tar -cf - --no-recursion -- 2>/dev/null",
        cwd=folder,
        stdin="".join(f"./{path}\0" for path in paths).encode("utf-8", "surrogateescape"),
        timeout=_READ_S,
        user="root",
        env={"PATH": PATH},
        max_output=max_bytes,
    )
    return b"" if packed.truncated else packed.raw


def relative_name(name: str) -> str | None:
    """Return a member's name without `./` and doubled slashes; "" for the root; None when it is not acceptable."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        return None
    return "/".join(parts)


def add_file(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Add a file of root's, readable by all."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), mode, int(time.time())
    tar.addfile(member, io.BytesIO(data))


def add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add another name of a file that stands in the archive before."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mtime = tarfile.LNKTYPE, target, int(time.time())
    tar.addfile(member)
