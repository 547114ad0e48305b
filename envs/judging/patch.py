"""Show an agent's changes as a diff for people.

The old contents come from the verifier's sandbox, before anything is changed there: the agent never was in it. Nothing
is decided by the diff: a part that can't be made is left out, and the diff names its file.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence

from envs.judging.archives import members, pack_some
from envs.judging.changes import Changes
from sandboxes.base import Sandbox

MAX_PATCH = 200_000
"""Characters of a diff; the rest is cut."""
MAX_FILES = 200
_MAX_FILE = 256 * 2**10
"""Bytes of the largest file shown."""
_MAX_OLD = 8 * 2**20
_MAX_LINES = 500
"""Compared lines between the first and the last difference; more are shown as replaced: an attacker could make their
comparison take minutes."""
_CONTEXT = 3

Files = Mapping[str, bytes | None]
"""Contents of files, by path; None for files that are too large, and for other things than files."""


async def old_files(sandbox: Sandbox, changes: Changes) -> dict[str, Files]:
    """Return the present content of the paths to be changed or deleted, by folder. Raises SandboxError."""
    found: dict[str, Files] = {}
    for folder, one in ((sandbox.workdir, changes), *changes.elsewhere):
        paths = [*one.changed, *one.deleted][:MAX_FILES]
        if paths:
            found[folder] = dict(_files(await pack_some(sandbox, folder, paths, _MAX_OLD)))
    return found


def patch_of(changes: Changes, old: Mapping[str, Files], workdir: str) -> str:
    """Return the diff, in git's form, of at most `MAX_PATCH` characters. old: as `old_files` returns it."""
    parts: list[str] = []
    size = 0
    for folder, one in ((workdir, changes), *changes.elsewhere):
        inside = "" if folder == workdir else f"{folder.strip('/')}/"
        for part in _folder(one, old.get(folder, {}), inside):
            parts.append(part)
            size += len(part)
            if size > MAX_PATCH:
                return "".join(parts)[:MAX_PATCH] + "\n[the rest of the diff is left out]\n"
    return "".join(parts)


def _folder(changes: Changes, old: Files, inside: str) -> Iterator[str]:
    new = dict(_files(changes.archive))
    added, deleted = frozenset(changes.added), frozenset(changes.deleted)
    paths = sorted({*added, *changes.changed, *deleted})
    for path in paths[:MAX_FILES]:
        name = _shown(inside + path)
        if path not in old and (path in deleted or path not in new):  # a directory
            if path in added and not any(one.startswith(f"{path}/") for one in paths):
                yield f"new directory {name}\n"
            continue
        kind = "new file\n" if path in added else "deleted file\n" if path in deleted else ""
        before = b"" if path in added else old.get(path)
        after = b"" if path in deleted else new.get(path)
        sides = ("/dev/null" if path in added else f"a/{name}", "/dev/null" if path in deleted else f"b/{name}")
        yield f"diff --git a/{name} b/{name}\n{kind}{_file(before, after, *sides)}"
    if len(paths) > MAX_FILES:
        yield f"[{len(paths) - MAX_FILES} more paths are left out]\n"


def _file(before: bytes | None, after: bytes | None, *sides: str) -> str:
    if before is None or after is None:
        return "[its content is not shown]\n"
    if b"\0" in before or b"\0" in after:
        return f"Binary files differ ({len(before)} and {len(after)} bytes)\n"
    return "".join(_hunks(_lines(before), _lines(after), *sides))


def _hunks(old: Sequence[str], new: Sequence[str], from_file: str, to_file: str) -> Iterator[str]:
    """Yield a unified diff. Equal lines at the beginning and the end are not compared."""
    start = _same(old, new)
    end = _same(old[start:][::-1], new[start:][::-1])
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    if not before and not after:
        return
    if max(len(before), len(after)) > _MAX_LINES:
        yield f"--- {from_file}\n+++ {to_file}\n@@ -{start + 1},{len(before)} +{start + 1},{len(after)} @@\n"
        yield from (f"-{_ended(line)}" for line in before)
        yield from (f"+{_ended(line)}" for line in after)
        return
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    part = difflib.unified_diff(
        old[first : len(old) - last], new[first : len(new) - last], from_file, to_file, n=_CONTEXT
    )
    for line in part:
        yield _moved(line, first) if line.startswith("@@ ") else _ended(line)


def _moved(line: str, lines: int) -> str:
    """Return the head of a hunk for a file, after so many lines."""
    return re.sub(r"([-+])(\d+)", lambda found: f"{found[1]}{int(found[2]) + lines}", line)


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(data: bytes) -> list[str]:
    """Split at line feeds alone, as diff does."""
    *lines, last = data.decode("utf-8", "replace").split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode("utf-8")


def _files(archive: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Yield the contents of an archive's files, as far as it goes: it may be cut off."""
    if archive:
        with contextlib.suppress(tarfile.TarError):
            yield from members(archive, _MAX_FILE)
