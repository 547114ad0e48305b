"""What the agent made: the difference between its source tree at the start and at the end.

The tree comes as a tar archive that the Docker daemon wrote from outside, after every process was killed,
so no program of the agent's (a replaced git, a hook, a shell profile) can change what is seen. Its
content is hostile all the same: only regular files, directories and symbolic links that resolve
inside the tree are taken, names are checked, and sizes and counts have caps. Hard links
become files of their own; devices, pipes and sockets are left out. Modes keep their permission bits
and lose setuid, setgid and sticky; owners are not compared.

Version control and caches (`.git`, `__pycache__`, `*.pyc`, `.pytest_cache`) are not part of the tree. What
configures the tests (`PROTECTED`, and what the task names) stays as the clean image has it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import io
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.types import InfraError
from sandboxes.base import Sandbox, SandboxError

MAX_TREE_BYTES = 256 * 2**20
MAX_TREE_ENTRIES = 200_000
MAX_CHANGED_BYTES = 64 * 2**20
MAX_CHANGED_ENTRIES = 20_000
_MAX_LINKS = 40
PROTECTED = ("conftest.py", "pytest.ini", ".pytest.ini", "sitecustomize.py", "usercustomize.py", "*.pth")
"""Names of files that change how tests are run, wherever they are."""
_TEST_OPTIONS = frozenset({"setup.cfg", "tox.ini", "pyproject.toml"})
"""Protected where they say something about pytest; else configuration like any other."""
_EXCLUDED = frozenset({".git", "__pycache__", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree.

    kind: "file", "dir" or "link".
    mode: permission bits; 0 for links, which have none.
    size: bytes of a file. content: sha256 of a file, target of a link.
    """

    kind: str
    mode: int = 0
    size: int = 0
    content: str = ""


Tree = Mapping[str, Entry]
"""Paths relative to the working directory, with `/` between their parts."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is carried into the verifier's sandbox.

    archive: tar of everything added or changed, names relative to the working directory.
    dropped: paths that exist and are not carried (devices, links that lead out of the tree, ...).
    withheld: added, changed or deleted paths that decide about the work, and stay as they were.
    problem: why nothing can be judged (too big, the tree is gone); None normally.
    """

    archive: bytes = b""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    problem: str | None = None

    def __bool__(self) -> bool:
        """Return whether the agent changed anything."""
        return bool(self.added or self.changed or self.deleted or self.problem)


async def collect_changes(sandbox: Sandbox, start: Tree, protected: Sequence[str] = ()) -> Changes:
    """Stop the sandbox and take what differs from `start` below its working directory.

    protected: patterns of what is left as it was, beside `PROTECTED`.
    A tree that is too big or gone is a result with a `problem`, since the agent did it.
    Raises InfraError when the Docker daemon fails.
    """
    try:
        await sandbox.stop()
        archive = await sandbox.download(sandbox.workdir, max_bytes=MAX_TREE_BYTES)
    except SandboxError as error:
        raise InfraError("sandbox", f"could not read what the agent made: {error}") from error
    except ValueError:
        return Changes(problem=f"the working directory is larger than {MAX_TREE_BYTES >> 20} MiB")
    except OSError as error:
        return Changes(problem=f"the working directory is gone ({error})")
    try:
        return await asyncio.to_thread(compare, start, archive, sandbox.workdir, protected)
    except tarfile.TarError as error:
        raise InfraError("sandbox", f"the Docker daemon sent a broken archive of the agent's tree: {error}") from error


async def read_tree(sandbox: Sandbox) -> Tree:
    """Return the tree below the working directory of a clean sandbox.

    Raises InfraError of kind "task" when it can't serve as a source tree."""
    if sandbox.workdir.strip("/") == "":
        raise InfraError("task", "the working directory is /; name the source tree in [environment] workdir")
    try:
        archive = await sandbox.download(sandbox.workdir, max_bytes=MAX_TREE_BYTES)
        return await asyncio.to_thread(tree_of, archive, sandbox.workdir)
    except (SandboxError, tarfile.TarError) as error:
        raise InfraError("sandbox", f"could not read the image's {sandbox.workdir}: {error}") from error
    except (OSError, ValueError) as error:
        raise InfraError("task", f"the image's {sandbox.workdir} can't be the source tree: {error}") from error


def tree_of(archive: bytes, root: str) -> Tree:
    """Return the tree in an untrusted archive that was taken at `root`. Raises ValueError when it is over the caps."""
    return _Scan(archive, root).tree


def compare(start: Tree, archive: bytes, root: str, protected: Sequence[str] = ()) -> Changes:
    """Return the changes that lead from `start` to the tree in `archive`, which was taken at `root`."""
    try:
        scan = _Scan(archive, root)
    except ValueError as problem:
        return Changes(problem=str(problem))
    differing = {path for path, entry in scan.tree.items() if start.get(path) != entry}
    differing.update(path for path in start if path not in scan.tree)
    withheld = {path for path in differing if scan.is_protected(path, protected)}
    # A path of another kind would take away what stays below it, or have no place to be.
    withheld |= {path for path in differing if path in scan.tree and path in start and _holds(withheld, path)}
    withheld |= {path for path in differing if withheld.intersection(_parents(path))}
    kept = differing - withheld
    added = [path for path in scan.tree if path in kept and path not in start]
    changed = [path for path in scan.tree if path in kept and path in start]
    carried = sorted([*added, *changed], key=lambda path: (scan.tree[path].kind == "link", path))
    size = sum(scan.tree[path].size for path in carried)
    if len(carried) > MAX_CHANGED_ENTRIES or size > MAX_CHANGED_BYTES:
        return Changes(
            problem=f"{len(carried)} changed paths with {size >> 20} MiB are more than the "
            f"{MAX_CHANGED_ENTRIES} paths and {MAX_CHANGED_BYTES >> 20} MiB that are carried"
        )
    return Changes(
        archive=scan.pack(carried),
        added=tuple(sorted(added)),
        changed=tuple(sorted(changed)),
        deleted=tuple(sorted(path for path in kept if path not in scan.tree and not _holds(withheld, path))),
        dropped=tuple(sorted(scan.dropped)),
        withheld=tuple(sorted(withheld)),
    )


def pack_directory(directory: Path) -> bytes:
    """Return a directory of ours as a tar archive: owned by root, readable by all, writable by its owner."""
    return pack_directories({".": directory})


def pack_directories(directories: Mapping[str, Path]) -> bytes:
    """Return several directories as one archive, by the path at which each is to be."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in Path(info.name).parts:
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for place, directory in directories.items():
            for path in sorted(directory.iterdir()):
                tar.add(path, arcname=str(Path(place, path.name)), filter=plain)
    return buffer.getvalue()


def regular_files(archive: bytes, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the regular files of an untrusted archive; larger ones are skipped."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            name = _relative(member.name)
            if name and member.isreg() and not member.issparse() and member.size <= max_bytes:
                yield name, _read(tar, member)


class _Scan:
    """An untrusted archive, read into a tree. Raises ValueError when it is over the caps or no directory."""

    def __init__(self, archive: bytes, root: str) -> None:
        self._archive = archive
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

    def pack(self, paths: list[str]) -> bytes:
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
                data = _read(source, member) if entry.kind == "file" else b""
                info.size = len(data)
                target.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    def is_protected(self, path: str, protected: Sequence[str]) -> bool:
        """Return whether a path decides about the work: by its name, or as configuration that speaks of pytest."""
        name = path.rpartition("/")[2]
        patterns = (*PROTECTED, *protected)
        if any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            return True
        if name not in _TEST_OPTIONS:
            return False
        if path not in self.tree or self.tree[path].kind != "file":
            return True
        with tarfile.open(fileobj=io.BytesIO(self._archive), mode="r:") as tar:
            return b"pytest" in _read(tar, self._members[path])

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
        """Take a member into the tree. Returns the bytes that it takes beyond its own size."""
        path = _relative(member.name)
        if path == "":
            if not member.isdir():
                raise ValueError("the working directory is no longer a directory")
            return 0
        if path is None:
            self.dropped.add(member.name)
            return 0
        if _EXCLUDED.intersection(path.split("/")) or path.endswith(".pyc"):
            return 0
        mode = stat.S_IMODE(member.mode) & 0o777
        if member.isdir():
            entry = Entry("dir", mode)
        elif member.issym():
            entry = Entry("link", content=member.linkname)
        elif member.isreg() and not member.issparse():
            entry = Entry("file", mode, member.size, hashlib.sha256(_read(tar, member)).hexdigest())
        elif member.islnk() and self.tree.get(_relative(member.linkname) or "", Entry("")).kind == "file":
            original = _relative(member.linkname) or ""
            self.tree[path], self._members[path] = self.tree[original], self._members[original]
            return self.tree[path].size
        else:
            self.dropped.add(path)
            return 0
        self.tree[path], self._members[path] = entry, member
        return 0

    def _drop_escaping_links(self, root: str) -> None:
        links = {path: entry.content for path, entry in self.tree.items() if entry.kind == "link"}
        self._drop([path for path in links if not _stays_inside(path, links, root)])

    def _drop_orphans(self) -> None:
        """Drop what lies below something other than a directory: no file system holds that."""
        self._drop([path for path in self.tree if any(self.tree.get(p, _DIR).kind != "dir" for p in _parents(path))])

    def _drop(self, paths: list[str]) -> None:
        for path in paths:
            del self.tree[path]
        self.dropped.update(paths)


_DIR = Entry("dir")


def _relative(name: str) -> str | None:
    """Return a member's name without `./` and doubled slashes; "" for the root; None when it is not acceptable."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        return None
    return "/".join(parts)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _holds(withheld: set[str], path: str) -> bool:
    """Return whether something that stays lies below `path`."""
    return any(one.startswith(path + "/") for one in withheld)


def _stays_inside(path: str, links: Mapping[str, str], root: str) -> bool:
    """Return whether following `path` from the tree's root, link by link, never leaves the tree."""
    todo = path.split("/")[::-1]
    here: list[str] = []
    followed = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return False
            here.pop()
            continue
        target = links.get("/".join([*here, part]))
        if target is None:
            here.append(part)
            continue
        followed += 1
        if followed > _MAX_LINKS or not target:
            return False
        if target.startswith("/"):
            if target != root and not target.startswith(root.rstrip("/") + "/"):
                return False
            here, target = [], target[len(root.rstrip("/")) :]
        todo.extend(target.split("/")[::-1])
    return True


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} has no content")
    return file.read()
