"""Tar archives: of directories of ours, and untrusted ones."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path


def pack_directory(directory: Path) -> bytes:
    """Return a directory of ours as a tar archive: owned by root, readable by all, writable by its owner."""
    return pack_directories([(".", directory)])


def pack_directories(directories: Sequence[tuple[str, Path]]) -> bytes:
    """Return several directories as one archive, each with the path at which it is to be. Of two files at one path the
    later counts."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in Path(info.name).parts:
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


def regular_files(archive: bytes, max_bytes: int, owner: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the regular files of an untrusted archive; larger ones are skipped.

    owner: the user id to whom they must belong; None for any."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            name = relative_name(member.name)
            if name and member.isreg() and not member.issparse() and member.size <= max_bytes:
                if owner is not None and member.uid != owner:
                    continue
                yield name, read_member(tar, member)


def relative_name(name: str) -> str | None:
    """Return a member's name without `./` and doubled slashes; "" for the root; None when it is not acceptable."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        return None
    return "/".join(parts)


def read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a regular file. Raises ValueError for a member without one."""
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} has no content")
    return file.read()


def owned_by(user: int, archive: bytes, names: Collection[str] | None) -> bytes:
    """Return an archive of ours with another owner of the members so named; of all of them where they are None."""

    def own(member: tarfile.TarInfo) -> None:
        member.uid = member.gid = user

    return _with_each(archive, names, own)


def readable(archive: bytes, names: Collection[str]) -> bytes:
    """Return an archive of ours in which others than the owner may read the members so named, and come to them."""

    def let_read(member: tarfile.TarInfo) -> None:
        member.mode |= 0o005 if member.isdir() or member.mode & 0o111 else 0o004

    return _with_each(archive, names, let_read)


def _with_each(archive: bytes, names: Collection[str] | None, change: Callable[[tarfile.TarInfo], None]) -> bytes:
    if names is not None and not names:
        return archive
    chosen, buffer = None if names is None else frozenset(names), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        for member in source:
            if chosen is None or member.name in chosen:
                change(member)
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()
