"""File trees as tar archives, on the host's side."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


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


def rebase(archive: bytes) -> bytes:
    """Return an archive of the Docker daemon's (every name below one top name) with names relative to that top.

    The top directory itself is dropped; a single file keeps its name.
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
                if member.islnk():  # a hard link's target is a member's name; a symbolic link's is not
                    member.linkname = member.linkname.removeprefix(top + "/")
            member.pax_headers = {k: v for k, v in member.pax_headers.items() if k not in ("path", "linkpath")}
            target.addfile(member, data)
    return buffer.getvalue()
