"""File trees as tar archives, on the host's side."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import tarfile
from pathlib import Path

_DEEPEST = 3_500
"""Bytes of a directory's path in a sandbox: a name below it, with its path on the machine, stays within the kernel's
4,096."""


def pack(path: Path, *, max_bytes: int | None = None, only: set[str] | None = None) -> bytes:
    """Pack the directory `path`, or one file, into a tar archive with names relative to `path`.

    only: the names of the members to pack; None for all.

    Links are packed as links, unfollowed; owners are left out; devices and sockets are skipped.
    Raises FileNotFoundError, or ValueError when the files hold more than `max_bytes`.
    """
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"no such file or directory: {path}")
    single = path.is_symlink() or not path.is_dir()
    members = [path] if single else sorted(path.rglob("*"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            name = member.name if single else member.relative_to(path).as_posix()
            if only is not None and name not in only:
                continue
            info = tar.gettarinfo(member, arcname=name)
            if not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
                continue
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if max_bytes is not None and buffer.tell() + info.size > max_bytes:
                raise ValueError(f"{path} holds more than {max_bytes} bytes")
            if info.isreg():
                with member.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    return buffer.getvalue()


def check_archive(archive: bytes) -> None:
    """Raise ValueError unless this is a tar archive for a directory: no name in it may lead out of the directory."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if posixpath.normpath(member.name.lstrip("/")).startswith("../"):
                    raise ValueError(f"{member.name!r} leads out of the directory that the archive is unpacked into")
    except tarfile.TarError as error:
        raise ValueError(f"not a tar archive: {error}") from error


def check_depth(target: str, path: str) -> None:
    """Raise OSError for a directory so deep in a tree that its contents may have too long a path."""
    if len(os.fsencode(f"{target}/{path}")) > _DEEPEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{target}/{path}")


def rebase(archive: bytes, of: str) -> bytes:
    """Return an archive of the Docker daemon's (every name below one top name) with names relative to this top.

    The top directory itself is dropped; a single file keeps its name.
    of: its path. Raises OSError if it is deeper than the Docker daemon looks: the daemon leaves deeper files out.
    """
    source = tarfile.open(fileobj=io.BytesIO(archive))  # noqa: SIM115  closed by the `with` below
    buffer = io.BytesIO()
    with source, tarfile.open(fileobj=buffer, mode="w") as target:
        members = source.getmembers()
        top = members[0].name if members else ""
        for member in members:
            if member is members[0] and member.isdir():
                continue
            data = source.extractfile(member) if member.isreg() else None
            if member is not members[0]:
                member.name = member.name.removeprefix(top + "/")
                if member.isdir():
                    check_depth(of, member.name)
                if member.islnk():  # a hard link's target is a member's name; a symbolic link's is not
                    member.linkname = member.linkname.removeprefix(top + "/")
            member.pax_headers = {k: v for k, v in member.pax_headers.items() if k not in ("path", "linkpath")}
            target.addfile(member, data)
    return buffer.getvalue()
