"""File trees as tar archives, on the host's side."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Literal, Protocol, TypeVar

_DEEPEST = 3_500
"""Bytes of a directory's path in a sandbox: a name below it, with its path on the machine, stays within the kernel's
4,096."""
_PLACES = ("path", "linkpath")
"""Extended headers that stand for a member's name and link, which may be others by now."""
_MOST_MEMBERS = 2_000_000
"""A program inside can make more files than anybody reads in a reasonable time."""


class _LinearRegex:
    """The module `re` for tarfile before Python 3.11.10 and 3.12.6, whose patterns try each digit of a run as the first
    (CVE-2024-6232): a link to 4,000 digits took 16 ms with the interpreter held."""

    compile = staticmethod(re.compile)

    @staticmethod
    def search(pattern: bytes, text: bytes) -> re.Match[bytes] | None:
        return re.search(rb"(?<!\d)" + pattern, text)

    @staticmethod
    def finditer(pattern: bytes, text: bytes) -> Iterator[re.Match[bytes]]:
        return re.finditer(rb"(?<!\d)" + pattern, text)


if not hasattr(tarfile, "_header_length_prefix_re"):
    tarfile.re = _LinearRegex  # type: ignore[attr-defined]


class Content(Protocol):
    """A file's content, to be read while its member is taken in. It may end early if the file becomes shorter."""

    def read(self, size: int = -1, /) -> bytes: ...


class TreeReader(Protocol):
    """Takes in a tree of files, member by member, as `Sandbox.read_tree` goes through it."""

    def add(self, member: tarfile.TarInfo, content: Content | None) -> None:
        """Take in a member. content: of a regular file; None for all else. Raises ValueError to end the reading."""


Reader = TypeVar("Reader", bound=TreeReader)


class Archive:
    """A reader that writes a tar archive. of: the tree's path. max_bytes: the most that it may hold."""

    def __init__(self, of: object, max_bytes: int | None = None) -> None:
        self._of, self._max_bytes = of, max_bytes
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115  `to_bytes` closes it

    def add(self, member: tarfile.TarInfo, content: Content | None) -> None:
        """See `TreeReader`. Raises ValueError for more than `max_bytes`."""
        self._check(0 if content is None else member.size)
        data = b"" if content is None else content.read(member.size)
        if content is not None:
            member.size = len(data)
        member.pax_headers = {name: value for name, value in member.pax_headers.items() if name not in _PLACES}
        self._tar.addfile(member, io.BytesIO(data))
        self._check(0)

    def to_bytes(self) -> bytes:
        """Return the archive. Raises ValueError for more than `max_bytes`."""
        self._tar.close()
        self._check(0)
        return self._buffer.getvalue()

    def _check(self, more: int) -> None:
        if self._max_bytes is not None and self._buffer.tell() + more > self._max_bytes:
            raise ValueError(f"{self._of} holds more than {self._max_bytes} bytes")


class SelectingReader:
    """A reader that passes members on to `reader`, but for those with a name of `skip`, and all below them.

    Raises ValueError for a tree of too many files."""

    def __init__(self, reader: TreeReader, of: str, skip: Collection[str] = ()) -> None:
        self._reader, self._of, self._skip = reader, of, frozenset(skip)
        self._count = 0

    def add(self, member: tarfile.TarInfo, content: Content | None) -> None:
        self._count += 1
        if self._count > _MOST_MEMBERS:
            raise ValueError(f"{self._of} holds more than {_MOST_MEMBERS} files")
        if not self._skip or self._skip.isdisjoint(member.name.split("/")):
            self._reader.add(member, content)


class RebasingReader:
    """A reader of an archive of the Docker daemon's: each name is below one top name. It passes members on to `reader`
    with names relative to this top.

    The top directory itself is dropped; a single file keeps its name. of: its path.
    Raises OSError if it is deeper than the Docker daemon looks: the daemon leaves deeper files out.
    """

    def __init__(self, reader: TreeReader, of: str) -> None:
        self._reader, self._of = reader, of
        self._top: str | None = None

    def add(self, member: tarfile.TarInfo, content: Content | None) -> None:
        if self._top is None:
            self._top = member.name + "/"
            if member.isdir():
                return
        else:
            member.name = member.name.removeprefix(self._top)
            if member.isdir():
                check_depth(self._of, member.name)
            if member.islnk():  # a hard link's target is a member's name; a symbolic link's is not
                member.linkname = member.linkname.removeprefix(self._top)
        self._reader.add(member, content)


class LimitedFile:
    """The first bytes of an open file, also if it grows meanwhile."""

    def __init__(self, file: IO[bytes], left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int = -1, /) -> bytes:
        piece = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece


def read_archive(file: Content, reader: TreeReader, mode: Literal["r:", "r|"] = "r:") -> None:
    """Give the members of a plain tar archive to a reader. mode: "r|" reads the file once, from here on.

    Raises TarError, and what the reader raises."""
    with tarfile.open(fileobj=file, mode=mode, bufsize=1 << 20) as tar:  # type: ignore[call-overload]  # "r|" reads alone
        while (member := tar.next()) is not None:
            tar.members.clear()  # it would keep them all
            reader.add(member, tar.extractfile(member) if member.isreg() else None)


def pack(path: Path, *, max_bytes: int | None = None, only: set[str] | None = None) -> bytes:
    """Pack the directory `path`, or one file, into a tar archive with names relative to `path`.

    only: the names of the members to pack; None for all.

    Links are packed as links, unfollowed; owners are left out; devices and sockets are skipped.
    Raises FileNotFoundError, or ValueError when the files hold more than `max_bytes`.
    """
    archive = Archive(path, max_bytes)
    read_folder(path, archive, only=only)
    return archive.to_bytes()


def read_folder(
    path: Path, reader: TreeReader, *, skip: Collection[str] = (), only: Collection[str] | None = None
) -> None:
    """Give the members of the directory `path`, or one file, to a reader, as `pack` packs them.

    skip: names that are left out with all below them."""
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"no such file or directory: {path}")
    single = path.is_symlink() or not path.is_dir()
    members = [path] if single else sorted(path.rglob("*"))
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as tar:  # it knows which files are one
        for member in members:
            name = member.name if single else member.relative_to(path).as_posix()
            if (only is not None and name not in only) or not set(skip).isdisjoint(name.split("/")):
                continue
            info: tarfile.TarInfo | None = tar.gettarinfo(member, arcname=name)  # None for a socket
            if info is None or not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
                continue
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.isreg():
                with member.open("rb") as file:
                    reader.add(info, LimitedFile(file, info.size))
            else:
                reader.add(info, None)


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
