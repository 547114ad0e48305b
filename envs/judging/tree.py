"""Read a source tree from a tar archive that a hostile program may have shaped.

Only regular files, directories and symbolic links within the tree are taken, names are checked, and sizes
and counts have caps. Hard links become files of their own; devices, pipes and sockets are left out. Modes keep their
permission bits and lose setuid, setgid and sticky; owners are not compared. Caches (`__pycache__`, `*.pyc`,
`.pytest_cache`) are not part of the tree, and version control (`.git`) only on request.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from envs.judging.archives import read_member, relative_name

MAX_TREE_BYTES = 256 * 2**20
MAX_TREE_ENTRIES = 200_000
_MAX_LINKS = 40
_MAX_STEPS = 1_000_000
"""Most parts of paths followed to resolve all links of a tree."""
MAX_DATA_BYTES = 2**20
KEPT_WHOLE = frozenset({"setup.cfg", "tox.ini", "pyproject.toml"})
"""Names of files that may hold options of the tests among others: their contents are compared."""
_PYTHON = re.compile(r"python[0-9.]*")
_SYSTEMS_PYTHON = re.compile(r"/usr/(local/)?bin/python[0-9.]*")
_CACHES = frozenset({"__pycache__", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree.

    kind: "file", "dir" or "link".
    mode: permission bits; 0 for links, which have none.
    size: bytes of a file. content: sha256 of a file, target of a link.
    data: content of a file with a name in `KEPT_WHOLE` and not larger than `MAX_DATA_BYTES`; else None.
    """

    kind: str
    mode: int = 0
    size: int = 0
    content: str = ""
    data: bytes | None = field(default=None, compare=False, repr=False)


Tree = Mapping[str, Entry]
"""Paths relative to the working directory, with `/` between their parts."""


def tree_of(archive: bytes, root: str, git: bool = False) -> Tree:
    """Return the tree in an untrusted archive, taken at `root`. Raises ValueError when it is over the caps."""
    return Scan(archive, root, git=git).tree


class Scan:
    """An untrusted archive, read into a tree. Raises ValueError when it is over the caps or no directory.

    root: the path of the archived directory. git: `.git` directories are part of the tree.
    """

    def __init__(self, archive: bytes, root: str, *, git: bool = False) -> None:
        self._archive = archive
        self._git = git
        self._members: dict[str, tarfile.TarInfo] = {}
        self.tree: dict[str, Entry] = {}
        self.dropped: set[str] = set()
        total = 0
        # "r:" takes plain archives only: nothing in it can be a decompression bomb.
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for count, member in enumerate(tar):
                total += max(member.size, 0)
                if count >= MAX_TREE_ENTRIES or total > MAX_TREE_BYTES:
                    raise ValueError(
                        f"the working directory holds more than {MAX_TREE_ENTRIES} paths or {MAX_TREE_BYTES >> 20} MiB"
                    )
                total += self._add(tar, member)
        self._drop_escaping_links(root)
        self._drop_orphans()

    def pack(self, paths: list[str], contents: Mapping[str, bytes] | None = None) -> bytes:
        """Return these paths as an archive. contents: contents of files in it that differ from the tree's."""
        buffer = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(self._archive), mode="r:") as source,
            tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target,
        ):
            for path in paths:
                entry, member = self.tree[path], self._members[path]
                info = tarfile.TarInfo(path)
                # The owner may have given away its own access; the verifier must still get in.
                info.mode = entry.mode | 0o700 if entry.kind == "dir" else entry.mode
                info.mtime = max(0, int(member.mtime))
                info.uid, info.gid = member.uid, member.gid
                if entry.kind == "dir":
                    info.type = tarfile.DIRTYPE
                elif entry.kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, entry.content
                data = read_member(source, member) if entry.kind == "file" else b""
                data = (contents or {}).get(path, data)
                info.size = len(data)
                target.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
        """Take a member into the tree. Returns the bytes that it takes beyond its own size."""
        path = relative_name(member.name)
        if path == "":
            if not member.isdir():
                raise ValueError("the working directory is no longer a directory")
            return 0
        # A `.git` that is no directory names another, which git obeys.
        if path is None or (self._git and path.rpartition("/")[2] == ".git" and not member.isdir()):
            self.dropped.add(path or member.name)
            return 0
        parts = path.split("/")
        if not _CACHES.isdisjoint(parts) or path.endswith(".pyc") or (".git" in parts and not self._git):
            return 0
        mode = stat.S_IMODE(member.mode) & 0o777
        if member.isdir():
            entry = Entry("dir", mode)
        elif member.issym():
            entry = Entry("link", content=member.linkname)
        elif member.isreg() and not member.issparse():
            data = read_member(tar, member)
            kept = data if parts[-1] in KEPT_WHOLE and len(data) <= MAX_DATA_BYTES else None
            entry = Entry("file", mode, member.size, hashlib.sha256(data).hexdigest(), kept)
        elif member.islnk() and self.tree.get(relative_name(member.linkname) or "", Entry("")).kind == "file":
            original = relative_name(member.linkname) or ""
            self.tree[path], self._members[path] = self.tree[original], self._members[original]
            return self.tree[path].size
        else:
            self.dropped.add(path)
            return 0
        self.tree[path], self._members[path] = entry, member
        return 0

    def _drop_escaping_links(self, root: str) -> None:
        links = {path: entry.content for path, entry in self.tree.items() if entry.kind == "link"}
        links = {path: target for path, target in links.items() if not _is_interpreter(path, target)}
        escaping, steps = [], 0
        for path in links:
            inside, taken = _follow(path, links, root)
            steps += taken
            if steps > _MAX_STEPS:
                raise ValueError("the working directory holds chains of links that are too long to follow")
            if not inside:
                escaping.append(path)
        self._drop(escaping)

    def _drop_orphans(self) -> None:
        """Drop paths below something other than a directory: no file system holds them."""
        self._drop([path for path in self.tree if any(self.tree.get(p, _DIR).kind != "dir" for p in parents(path))])

    def _drop(self, paths: list[str]) -> None:
        for path in paths:
            del self.tree[path]
        self.dropped.update(paths)


_DIR = Entry("dir")


def _is_interpreter(path: str, target: str) -> bool:
    """Return whether a link is a virtual environment's Python and points to the system's."""
    return _PYTHON.fullmatch(path.rpartition("/")[2]) is not None and _SYSTEMS_PYTHON.fullmatch(target) is not None


def parents(path: str) -> Iterator[str]:
    """Yield the folders around a path, the innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _follow(path: str, links: Mapping[str, str], root: str) -> tuple[bool, int]:
    """Follow `path` from the tree's root, link by link. Return whether it never leaves the tree, and steps taken."""
    todo = path.split("/")[::-1]
    here = [""]  # the folders on the way, as paths
    followed = steps = 0
    while todo:
        part = todo.pop()
        steps += 1
        if part in ("", "."):
            continue
        if part == "..":
            if len(here) == 1:
                return False, steps
            here.pop()
            continue
        place = f"{here[-1]}/{part}" if here[-1] else part
        target = links.get(place)
        if target is None:
            here.append(place)
            continue
        followed += 1
        if followed > _MAX_LINKS or not target:
            return False, steps
        if target.startswith("/"):
            if target != root and not target.startswith(root.rstrip("/") + "/"):
                return False, steps
            here, target = [""], target[len(root.rstrip("/")) :]
        todo.extend(target.split("/")[::-1])
    return True, steps
