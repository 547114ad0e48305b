"""Unpack tarballs of others."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(tarball: Path, folder: Path) -> None:
    """Unpack a tarball into a folder, and nothing elsewhere.

    Raises TarError for a member that would be or lead out of the folder, and for a device; EOFError, OSError."""
    with tarfile.open(tarball) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
            return
        for member in tar:  # Python 3.11.4 brought the filter; Debian 12 has 3.11.2
            _check(member, folder.resolve())
            tar.extract(member, folder)


def _check(member: tarfile.TarInfo, folder: Path) -> None:
    """Raise TarError for a member with another effect than on the folder, as it is by now."""
    place = folder / member.name
    reached = [place]
    if member.issym():
        reached.append(place.parent / member.linkname)
    elif member.islnk():
        reached.append(folder / member.linkname)
    elif not (member.isreg() or member.isdir()):
        raise tarfile.ExtractError(f"{member.name!r} is no file, directory or link")
    if not all(path.resolve().is_relative_to(folder) for path in reached):
        raise tarfile.ExtractError(f"{member.name!r} leads out of the folder")
    member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
    member.uid = member.gid = -1  # it belongs to whoever unpacks it
    member.uname = member.gname = ""
