"""Read a source tree that a hostile program may have shaped, member by member: its contents are never held together.

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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from envs.judging.archives import relative_name
from sandboxes.trees import Content, read_archive

MAX_TREE_ENTRIES = 500_000
MAX_CHANGED_BYTES = 256 * 2**20
_DEEPEST = 200
"""Most parts of a path: the comparison looks at each folder above a path."""
MAX_DATA_BYTES = 2**20
_LATEST = 8**11 - 1
"""The latest time in an archive, in 2242: some file systems keep times that no other takes."""
KEPT_WHOLE = frozenset({"setup.cfg", "tox.ini", "pyproject.toml"})
"""Names of files that may hold options of the tests among others: their contents are compared."""
_PYTHON = re.compile(r"python[0-9.]*")
_SYSTEMS_PYTHON = re.compile(r"/usr/(local/)?bin/python[0-9.]*")
_CACHES = frozenset({"__pycache__", ".pytest_cache"})
_BUILT = frozenset(
    {"target", "build", "_build", "obj", "node_modules", ".gradle", ".cache", ".next", ".stack-work", "dist-newstyle"}
    | {".venv", "venv", ".tox", ".nox"}
)
"""Folders of what builds and installers make, which may be larger than can be carried: the verifier builds it again."""


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


def skipped(*, git: bool) -> frozenset[str]:
    """Return the names in a tree that are no part of it. git: `.git` is one."""
    return _CACHES if git else _CACHES | {".git"}


def tree_of(archive: bytes, root: str, git: bool = False) -> Tree:
    """Return the tree in an untrusted archive, taken at `root`. Raises ValueError when it is over the caps."""
    scan = Scan(root, git=git)
    read_archive(io.BytesIO(archive), scan)
    return scan.done().tree


class Scan:
    """The reader of an untrusted tree (`sandboxes.trees.TreeReader`); call `done` at its end.

    root: the path of the directory. git: `.git` directories are part of the tree. start: the tree before the work: the
    contents of files that differ from it are kept, for `pack`; None keeps none. needed: files whose contents are kept
    in any case. spares: what builds have made is not read; it is too large.
    lacking: files whose contents are needed and were not kept; another reading has to ask for them. unread: changed
    files that are too large.
    """

    def __init__(
        self,
        root: str,
        *,
        git: bool = False,
        start: Tree | None = None,
        needed: Collection[str] = (),
        spares: bool = False,
    ) -> None:
        self._root, self._git, self.spares = root, git, spares
        self._compares, self._start, self._needed = start is not None, start or {}, needed
        self._members: dict[str, tarfile.TarInfo] = {}
        self._contents: dict[str, bytes] = {}
        self._held = self._count = 0
        self.tree: dict[str, Entry] = {}
        self.dropped: set[str] = set()
        self.lacking: set[str] = set()
        self.unread: set[str] = set()

    def add(self, member: tarfile.TarInfo, content: Content | None) -> None:
        """Take a member into the tree. Raises ValueError when it is over the caps or no directory."""
        self._count += 1
        if self._count > MAX_TREE_ENTRIES:
            raise ValueError(f"the working directory holds more than {MAX_TREE_ENTRIES} paths")
        path = relative_name(member.name)
        if path == "":
            if not member.isdir():
                raise ValueError("the working directory is no longer a directory")
            return
        # A `.git` that is no directory names another, which git obeys.
        if path is None or (self._git and path.rpartition("/")[2] == ".git" and not member.isdir()):
            self.dropped.add(path or member.name)
            return
        parts = path.split("/")
        if len(parts) > _DEEPEST:
            self.dropped.add(path)
            return
        if path.endswith(".pyc") or not skipped(git=self._git).isdisjoint(parts):
            return
        entry = self._entry(path, member, content)
        if entry is None:
            self.dropped.add(path)
            return
        before = self._start.get(path)
        if entry == before:  # one of both is enough
            entry = before
        elif self._compares:
            self._members[path] = member
        self.tree[path] = entry

    def done(self) -> Scan:
        """Leave out what leads out of the tree. Returns itself."""
        links = [(path, entry.content) for path, entry in self.tree.items() if entry.kind == "link"]
        self._drop([path for path, to in links if _leads_out(path, to, self._root) and not _is_interpreter(path, to)])
        # No file system holds what is below something other than a directory.
        self._drop([path for path in self.tree if any(self.tree.get(p, _DIR).kind != "dir" for p in parents(path))])
        return self

    def pack(self, paths: list[str], contents: Mapping[str, bytes]) -> bytes:
        """Return these paths, which differ from the start, as an archive.

        contents: contents of files in it that differ from the tree's."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as target:
            for path in paths:
                entry, member = self.tree[path], self._members[path]
                info = tarfile.TarInfo(path)
                # The owner may have given away its own access; the verifier must still get in.
                info.mode = entry.mode | 0o700 if entry.kind == "dir" else entry.mode
                info.mtime = min(max(0, int(member.mtime)), _LATEST)
                info.uid, info.gid = member.uid, member.gid
                if entry.kind == "dir":
                    info.type = tarfile.DIRTYPE
                elif entry.kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, entry.content
                data = contents[path] if path in contents else self._contents.get(path, b"")
                info.size = len(data)
                target.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    def _entry(self, path: str, member: tarfile.TarInfo, content: Content | None) -> Entry | None:
        """Return the entry of a member; None if no tree can hold it."""
        mode = stat.S_IMODE(member.mode) & 0o777
        if member.isdir():
            return Entry("dir", mode)
        if member.issym():
            return Entry("link", content=member.linkname)
        if content is not None and not member.issparse():
            return self._file(path, mode, member.size, content)
        original = relative_name(member.linkname) or ""
        if member.islnk() and self.tree.get(original, Entry("")).kind == "file":
            if self._compares and self._start.get(path) != self.tree[original]:
                if original in self._contents:
                    self._contents[path] = self._contents[original]
                elif original in self.unread:
                    self.unread.add(path)
                else:
                    self.lacking.add(original)
            return self.tree[original]
        return None

    def _file(self, path: str, mode: int, size: int, content: Content) -> Entry:
        if self.spares and is_built(path):
            return Entry("file", mode, size)
        before = self._start.get(path)
        fits = self._compares and size <= MAX_CHANGED_BYTES - self._held
        if self._compares and not fits and (before is None or before.size != size):
            self.unread.add(path)
            return Entry("file", mode, size)
        is_kept_whole = path.rpartition("/")[2] in KEPT_WHOLE and size <= MAX_DATA_BYTES
        digest, pieces, size = hashlib.sha256(), [], 0
        while piece := content.read(1 << 20):
            digest.update(piece)
            size += len(piece)
            if fits or is_kept_whole:
                pieces.append(piece)
        data = b"".join(pieces)
        entry = Entry("file", mode, size, digest.hexdigest(), data if is_kept_whole else None)
        if self._compares and (entry != before or path in self._needed):
            if fits:
                self._contents[path] = data
                self._held += size
            else:
                self.unread.add(path)
        return entry

    def _drop(self, paths: list[str]) -> None:
        for path in paths:
            del self.tree[path]
        self.dropped.update(paths)


_DIR = Entry("dir")


def is_built(path: str) -> bool:
    """Tell whether a path lies in a folder of what builds make."""
    return not _BUILT.isdisjoint(path.split("/")[:-1])


def _is_interpreter(path: str, target: str) -> bool:
    """Return whether a link is a virtual environment's Python and points to the system's."""
    return _PYTHON.fullmatch(path.rpartition("/")[2]) is not None and _SYSTEMS_PYTHON.fullmatch(target) is not None


def parents(path: str) -> Iterator[str]:
    """Yield the folders around a path, the innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _leads_out(path: str, target: str, root: str) -> bool:
    """Return whether a link may lead out of the tree at `root`: it climbs higher than that, or after a name, which may
    be another link."""
    depth = path.count("/")
    if target.startswith("/"):
        base = root.rstrip("/") + "/"
        if not (target + "/").startswith(base):
            return True
        depth, target = 0, (target + "/")[len(base) :]
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = parts.count("..")
    return climbs > depth or ".." in parts[climbs:]
