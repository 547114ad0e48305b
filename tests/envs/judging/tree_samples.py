"""Archives of small trees."""

import asyncio
import io
import tarfile

from envs.judging.areas import scan_tree
from envs.judging.changes import Changes, compare
from envs.judging.tree import tree_of
from sandboxes.base import Sandbox

ROOT = "/app"


def member(name, data=b"", *, kind=tarfile.REGTYPE, mode=0o644, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
    return info, data


def folder(name, mode=0o755):
    return member(name, kind=tarfile.DIRTYPE, mode=mode)


def symlink(name, target):
    return member(name, kind=tarfile.SYMTYPE, link=target)


def archive(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def start(*members):
    return tree_of(archive(*members), ROOT)


def changes_of(before, after, protected=(), *, git=False, root=ROOT):
    """The changes from a tree to that in an archive."""
    try:
        scan = asyncio.run(scan_tree(Stopped({root: after}, root), root, git=git, start=before))
        return compare(before, scan, protected, git=git)
    except ValueError as problem:
        return Changes(problem=str(problem))


def carried(changes):
    with tarfile.open(fileobj=io.BytesIO(changes.archive)) as tar:
        return {info.name: (info.type, tar.extractfile(info).read() if info.isreg() else info.linkname) for info in tar}


class Stopped(Sandbox):
    """A sandbox of archives by path. ran: what was called."""

    def __init__(self, archives, workdir=ROOT):
        self.archives, self.workdir, self.ran = archives, workdir, []

    async def exec(self, command, **options):
        self.ran.append((command, options))

    async def stop(self):
        self.ran.append("stopped")

    async def download(self, path, *, max_bytes):
        if path not in self.archives:
            raise FileNotFoundError(path)
        return self.archives[path]
