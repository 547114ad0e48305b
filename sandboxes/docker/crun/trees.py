"""Trees of a sandbox's files, read and written from outside.

Programs inside may change everything meanwhile. So the kernel resolves each path, within the sandbox's root
directory; a read gets the very file that was looked at; and nothing but regular files is opened.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import secrets
import stat
import tarfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from sandboxes.docker.crun.kernel import O_PATH, open_in_root
from sandboxes.docker.crun.layers import remove_tree
from sandboxes.trees import LimitedFile, TreeReader, check_archive, check_depth

_FOLDER = O_PATH | os.O_DIRECTORY
_ITSELF = O_PATH | os.O_NOFOLLOW


def unpack_tree(root: int, archive: bytes, target: str) -> None:
    """Unpack a tar archive into the directory `target`; present files stay, unless the archive names them.

    Raises OSError if the path leads nowhere, ValueError if the archive is none.
    """
    check_archive(archive)
    os.close(open_in_root(root, target, _FOLDER))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            _Unpacker(root, target, tar).run()
    except tarfile.TarError as error:
        raise ValueError(f"not a tar archive: {error}") from error


class _Unpacker:
    """One archive on its way into a directory. No name in it leads above this directory, but a link in the way may."""

    def __init__(self, root: int, target: str, tar: tarfile.TarFile) -> None:
        self._root = root
        self._target = target
        self._tar = tar

    def run(self) -> None:
        folders = []
        above, parent = "", self._folder("")
        try:
            for member in self._tar:
                path = posixpath.normpath("/" + member.name).strip("/")
                if not path:
                    continue
                if posixpath.dirname(path) != above:  # neighbours stand beside each other in most archives
                    above, other = posixpath.dirname(path), self._folder(posixpath.dirname(path))
                    os.close(parent)
                    parent = other
                self._make(member, parent, posixpath.basename(path))
                if member.isdir():
                    folders.append((path, member.mtime))
        finally:
            os.close(parent)
        for path, mtime in reversed(folders):  # what was put into them has changed them
            parent = self._folder(posixpath.dirname(path))
            try:
                os.utime(posixpath.basename(path), (mtime, mtime), dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)

    def _folder(self, path: str) -> int:
        """Return a descriptor of a directory, and make it if missing, with those above it."""
        missing: list[str] = []
        while True:
            try:
                folder = self._open(path)
                break
            except FileNotFoundError:
                if not path:
                    raise
                missing.append(path)
                path = posixpath.dirname(path)
        for below in reversed(missing):
            try:
                os.mkdir(posixpath.basename(below), 0o755, dir_fd=folder)
            except FileExistsError:  # a link that leads nowhere
                raise FileNotFoundError(errno.ENOENT, "a link in the archive's way leads nowhere", below) from None
            finally:
                os.close(folder)
            folder = self._open(below)
        return folder

    def _open(self, path: str) -> int:
        return open_in_root(self._root, posixpath.join(self._target, path), _FOLDER)

    def _make(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Make a member's file, in place of a present one. Devices and unknown kinds are left out."""
        try:
            self._create(member, parent, name)
        except FileExistsError:
            if member.isdir():
                self._make_folder(member, parent, name)
            else:
                self._replace(member, parent, name)

    def _make_folder(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            self._set_attributes(member, parent, name)
        else:
            os.unlink(name, dir_fd=parent)
            self._create(member, parent, name)

    def _replace(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Make it under another name first: programs inside might put something there again and again."""
        made = f".{secrets.token_hex(8)}"
        self._create(member, parent, made)
        try:
            try:
                os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
            except IsADirectoryError:
                remove_tree(Path(f"/proc/{os.getpid()}/fd/{parent}", name))
                os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:  # it is there still where it failed, or both were one file before
            with suppress(FileNotFoundError):
                os.unlink(made, dir_fd=parent)

    def _create(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Raise FileExistsError if something is there."""
        if member.isreg():
            self._write(member, parent, name)
        elif member.islnk():
            self._link(member.linkname, parent, name)
        elif member.isdir():
            os.mkdir(name, 0o700, dir_fd=parent)
            self._set_attributes(member, parent, name)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
            os.chown(name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)
            os.utime(name, (member.mtime, member.mtime), dir_fd=parent, follow_symlinks=False)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            self._set_attributes(member, parent, name)

    def _link(self, linked: str, parent: int, name: str) -> None:
        above, last = posixpath.split(posixpath.normpath("/" + linked).strip("/"))
        source = self._folder(above)
        try:
            os.link(last, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    def _write(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        source = self._tar.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            while source is not None and (piece := source.read(1 << 20)):
                while piece:
                    piece = piece[os.write(file, piece) :]
            os.fchown(file, member.uid, member.gid)
            os.fchmod(file, stat.S_IMODE(member.mode))
            os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)

    def _set_attributes(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Give a directory or a pipe its owner and mode."""
        made = open_in_root(parent, name, _ITSELF)
        try:
            if stat.S_ISLNK(os.fstat(made).st_mode):  # it was exchanged for one meanwhile
                return
            os.chown(f"/proc/self/fd/{made}", member.uid, member.gid)
            os.chmod(f"/proc/self/fd/{made}", stat.S_IMODE(member.mode))  # noqa: PTH101
        finally:
            os.close(made)


def read_tree(root: int, target: str, reader: TreeReader, skip: Collection[str] = ()) -> None:
    """Give the members of the tree at `target` to a reader, with names relative to it; a file or link keeps its name.

    Links are given as links; all but files, directories, links and pipes is left out, and so are names of `skip` with
    all below them. Raises OSError if the path leads nowhere, and what the reader raises.
    """
    reading = _TreeWalker(reader, target, skip)
    clean = posixpath.normpath("/" + target)
    # The last name alone may be a link: it is what is requested.
    top = open_in_root(root, target if target.endswith(("/", "/.")) or clean == "/" else clean, _ITSELF)
    try:
        seen = os.fstat(top)
        if not stat.S_ISDIR(seen.st_mode):
            reading.add(top, seen, posixpath.basename(clean))
        else:
            for name in reading.names(top):
                reading.walk(top, name, name)
    finally:
        os.close(top)


class _TreeWalker:
    def __init__(self, reader: TreeReader, target: str, skip: Collection[str]) -> None:
        self._reader = reader
        self._target = target
        self._skip = frozenset(skip)
        self._files: dict[tuple[int, int], str] = {}
        """Names of files with several names."""

    def names(self, folder: int) -> list[str]:
        opened = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return sorted(name for name in os.listdir(opened) if name not in self._skip)  # noqa: PTH208
        finally:
            os.close(opened)

    def walk(self, parent: int, name: str, path: str) -> None:
        """Add the file at a path below the top, and all below it. Files that go meanwhile are left out."""
        for above, last, whole in self._walk_folders(parent, name, path):
            try:
                found = os.open(last, _ITSELF | os.O_CLOEXEC, dir_fd=above)
            except FileNotFoundError:
                continue
            try:
                self.add(found, os.fstat(found), whole)
            finally:
                os.close(found)

    def _walk_folders(self, parent: int, name: str, path: str) -> Iterator[tuple[int, str, str]]:
        """Yield directories before their contents: each one's parent, its name, its whole path. By paths from the
        top, not by a descriptor for each level: a path ends with an error if it is too long."""
        yield parent, name, path
        todo = [path]
        while todo:
            folder = todo.pop()
            try:
                opened = open_in_root(parent, folder, _FOLDER | os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                names = self.names(opened)
                for one in names:
                    yield opened, one, f"{folder}/{one}"
                todo += [f"{folder}/{one}" for one in reversed(names) if _is_folder(opened, one)]
            finally:
                os.close(opened)

    def add(self, found: int, seen: os.stat_result, path: str) -> None:
        info = tarfile.TarInfo(path)
        info.mode, info.uid, info.gid = stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid
        info.mtime = int(seen.st_mtime)
        if stat.S_ISLNK(seen.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink("", dir_fd=found)
        elif stat.S_ISDIR(seen.st_mode):
            check_depth(self._target, path)
            info.type = tarfile.DIRTYPE
        elif stat.S_ISFIFO(seen.st_mode):
            info.type = tarfile.FIFOTYPE
        elif not stat.S_ISREG(seen.st_mode):
            return
        elif (seen.st_dev, seen.st_ino) in self._files:
            info.type, info.linkname = tarfile.LNKTYPE, self._files[seen.st_dev, seen.st_ino]
        else:
            if seen.st_nlink > 1:
                self._files[seen.st_dev, seen.st_ino] = path
            info.size = seen.st_size
            with open(f"/proc/self/fd/{found}", "rb") as file:  # noqa: PTH123
                self._reader.add(info, LimitedFile(file, info.size))
            return
        self._reader.add(info, None)


def _is_folder(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
