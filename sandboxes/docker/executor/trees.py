"""Tar archives as the records of the executor's `pack` and `unpack`; `executor/tree.c` describes them."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import stat
import struct
import tarfile

from sandboxes.trees import TreeReader, check_archive, check_depth

_RECORD = struct.Struct("<cIIIqQHH")
_TYPES = {
    b"f": tarfile.REGTYPE,
    b"d": tarfile.DIRTYPE,
    b"l": tarfile.SYMTYPE,
    b"h": tarfile.LNKTYPE,
    b"p": tarfile.FIFOTYPE,
}
_KINDS = {code: kind for kind, code in _TYPES.items()} | {tarfile.AREGTYPE: b"f", tarfile.CONTTYPE: b"f"}


def records_of(archive: bytes) -> bytes:
    """Return an archive as records. Devices and unknown kinds are left out. Raises ValueError if it is none."""
    check_archive(archive)
    parts: list[bytes] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                kind = b"f" if member.isreg() else _KINDS.get(member.type)
                name = _plain(member.name)
                if not name or kind is None:
                    continue
                data = b""
                if kind == b"f" and (source := tar.extractfile(member)) is not None:
                    data = source.read()
                link = _plain(member.linkname) if kind == b"h" else member.linkname if kind == b"l" else ""
                parts += (_record(kind, member, name, link, len(data)), data)
    except tarfile.TarError as error:
        raise ValueError(f"not a tar archive: {error}") from error
    return b"".join([*parts, _RECORD.pack(b"E", 0, 0, 0, 0, 0, 0, 0)])


def _plain(name: str) -> str:
    return posixpath.normpath("/" + name).strip("/")


def _record(kind: bytes, member: tarfile.TarInfo, name: str, link: str, size: int) -> bytes:
    path, to = os.fsencode(name), os.fsencode(link)
    if max(len(path), len(to)) > 65_535:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
    head = (kind, stat.S_IMODE(member.mode), member.uid, member.gid, int(member.mtime), size, len(path), len(to))
    return _RECORD.pack(*head) + path + to


def read_records(records: bytes, target: str, reader: TreeReader, max_bytes: int) -> None:
    """Give the members in records to a reader. Raises the OSError that they end with, ValueError above `max_bytes`,
    EOFError if they have no end, and what the reader raises."""
    at = 0
    while True:
        if at + _RECORD.size > len(records):
            raise EOFError(f"the tree at {target} came without its end")
        kind, mode, uid, gid, seconds, size, path, link = _RECORD.unpack_from(records, at)
        at += _RECORD.size
        name, to = records[at : at + path], records[at + path : at + path + link]
        at += path + link
        if kind == b"E":
            raise_error(mode, os.fsdecode(name), target, max_bytes)
            return
        info = tarfile.TarInfo(os.fsdecode(name))
        info.type, info.linkname = _TYPES[kind], os.fsdecode(to)
        info.mode, info.uid, info.gid, info.mtime, info.size = mode, uid, gid, seconds, size
        if kind == b"d":
            check_depth(target, info.name)
        reader.add(info, io.BytesIO(records[at : at + size]) if kind == b"f" else None)
        at += size


def end_of_records(records: bytes, target: str) -> None:
    """Raise the OSError with which unpacking ended, if it did; EOFError if there is no end."""
    if len(records) < _RECORD.size:
        raise EOFError(f"the tree at {target} was not unpacked to its end")
    _, error, *_ = _RECORD.unpack_from(records)
    raise_error(error, os.fsdecode(records[_RECORD.size :]), target, 0)


def raise_error(error: int, path: str, target: str, max_bytes: int) -> None:
    if error == errno.EFBIG and max_bytes:
        raise ValueError(f"{target} holds more than {max_bytes} bytes")
    if error:
        raise OSError(error, os.strerror(error), path or target)
