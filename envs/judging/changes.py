"""The agent's changes: the difference between its source tree at the start and at the end.

The tree is read from outside, after every process was killed, so no program of the agent's (a replaced git, a hook,
a shell profile) can change its content. The content is hostile all the same (see `envs.judging.tree`). The
configuration of the tests (`PROTECTED`, pytest's options in `KEPT_WHOLE` files, and the paths that the task names)
stays as the clean image has it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from envs.judging.areas import Start, graded_git, inside, is_ours, scan_of, scan_tree
from envs.judging.path_rules import obeyed_by_git, stays
from envs.judging.pytest_options import merged
from envs.judging.tree import KEPT_WHOLE, MAX_CHANGED_BYTES, Entry, Scan, Tree, is_built, parents
from envs.types import Failure, Hidden, InfraError
from sandboxes.base import Sandbox, SandboxError

MAX_CHANGED_ENTRIES = 100_000
PROTECTED = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth"),
)
"""Names of files that change how tests are run, in any directory."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The agent's changes, carried into the verifier's sandbox.

    archive: tar of everything added or changed, names relative to the working directory.
    dropped: existing paths that are not carried (devices, links out of the tree, ...).
    withheld: added, changed or deleted paths that decide about the work, and stay as they were.
    folders: those of `changed` that were folders before: their contents stay.
    elsewhere: the changes outside of the working directory, by the folder to which their names are relative.
    problem: why nothing can be judged (too big, the tree is gone); None normally.
    """

    archive: bytes = b""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    elsewhere: tuple[tuple[str, Changes], ...] = ()
    problem: str | None = None

    def written(self) -> list[str]:
        """Return the paths of added and changed files, those outside of the working directory from /."""
        others = [f"{folder}/{path}" for folder, one in self.elsewhere for path in one.written()]
        return [*self.added, *self.changed, *others]

    def __bool__(self) -> bool:
        """Return whether the agent changed anything."""
        return bool(self.added or self.changed or self.deleted or self.elsewhere or self.problem)


async def collect_changes(sandbox: Sandbox, start: Start, hidden: Hidden, *, stop: bool = True) -> Changes:
    """Stop the sandbox and take the differences from `start`, as the task says.

    stop: False leaves it running, for the next step of a task. Its actions meanwhile can spoil its own work alone.
    A tree that is too big or gone is a result with a `problem`, since the agent did it.
    Raises InfraError when the Docker daemon fails.
    """
    changes = Changes()
    try:
        for hook in hidden.collect:  # what it prints or ends with is the agent's to say, and decides nothing
            await sandbox.exec(hook.command, user=hook.user, timeout=hook.timeout_s)
        if stop:
            await sandbox.stop()
        if start.tree is not None:
            git = graded_git(hidden)
            scan = await scan_tree(sandbox, sandbox.workdir, git=git, start=start.tree)
            changes = await asyncio.to_thread(compare, start.tree, scan, hidden.protected, git=git)
        if start.elsewhere:
            changes = await _with_elsewhere(changes, sandbox, start, hidden)
    except (SandboxError, tarfile.TarError, OSError, ValueError) as error:
        if is_ours(error):
            raise InfraError(Failure.SANDBOX, f"could not read what the agent made: {error}") from error
        if isinstance(error, ValueError):
            return Changes(problem=str(error))
        return Changes(problem=f"the working directory is gone ({error})")
    return changes


def compare(start: Tree, scan: Scan, protected: Sequence[str] = (), *, git: bool = False) -> Changes:
    """Return the changes that lead from `start` to a tree, which was read with it. Raises ValueError when they are over
    the caps. git: `.git` is part of the tree."""
    obeyed = obeyed_by_git(scan.tree, start) if git else set()
    return _difference(start, scan, lambda path: _is_protected(path, protected), obeyed.__contains__)


async def _with_elsewhere(changes: Changes, sandbox: Sandbox, start: Start, hidden: Hidden) -> Changes:
    """Return the changes with those outside of the working directory. Raises as `Sandbox.download`, and ValueError when
    one is over the caps."""
    found: list[tuple[str, Changes]] = []
    for path, before in start.elsewhere.items():
        try:
            git = graded_git(hidden) or not inside(path, sandbox.workdir)
            after = await scan_of(sandbox, path, git=git, compares=True, before=before)
            parts = await asyncio.to_thread(list, _area(path, after, start, sandbox.workdir, hidden))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        for folder, one in parts:
            if one:
                found.append((folder, one))
            named = partial("{}/{}".format, folder.rstrip("/"))
            changes = replace(
                changes,
                dropped=(*changes.dropped, *map(named, one.dropped)),
                withheld=(*changes.withheld, *map(named, one.withheld)),
            )
    return replace(changes, elsewhere=tuple(found))


def _area(
    path: str, after: tuple[str, Scan] | None, start: Start, workdir: str, hidden: Hidden
) -> Iterator[tuple[str, Changes]]:
    """Yield the changes of one path, each with the folder to which its names are relative."""
    parent, _, name = ("/" + path.strip("/")).rpartition("/")
    before = start.elsewhere[path]
    if before is not None and (after is None or after[0] != before.folder):  # gone, or of another kind
        if not stays(path, start=True, gone=True):
            yield parent or "/", Changes(deleted=(name,))
        before = None
    if after is None:
        return
    folder, scan = after
    tree = {} if before is None else before.tree
    obeyed = obeyed_by_git(scan.tree, tree)

    def is_kept(one: str) -> bool:
        whole = f"{folder.rstrip('/')}/{one}"
        if one in obeyed:
            return True
        if inside(whole, workdir):  # then it is compared with the source tree
            return start.tree is not None
        # In an image of the verifier's own the same programs may stand there.
        there = one in tree or (hidden.own is not None and whole.startswith(("/usr/", "/bin/", "/sbin/", "/lib")))
        return stays(whole, there, gone=one not in scan.tree)

    def is_protected(one: str) -> bool:
        whole = f"{folder.rstrip('/')}/{one}"
        ours = inside(whole, workdir)
        return _is_protected(whole[len(workdir.rstrip("/")) + 1 :] if ours else whole, hidden.protected)

    yield folder, _difference(tree, scan, is_protected, is_kept)


def _difference(
    start: Tree, scan: Scan, is_protected: Callable[[str], bool], is_kept: Callable[[str], bool]
) -> Changes:
    """Return the changes that lead from one tree to another.

    is_protected: tells of a path whether it decides about the work. is_kept: whether another one stays as it was."""
    differing = {path for path, entry in scan.tree.items() if start.get(path) != entry}
    differing.update(path for path in start if path not in scan.tree)
    kept = set(filter(is_kept, differing))
    if scan.spares or len(differing & scan.tree.keys()) > MAX_CHANGED_ENTRIES:
        kept |= set(filter(is_built, differing))
    contents: dict[str, bytes] = {}
    withheld = {path for path in differing if is_protected(path)}
    for path in differing - withheld:
        if path.rpartition("/")[2] in KEPT_WHOLE and _options_differ(
            start.get(path), scan.tree.get(path), path, contents
        ):
            withheld.add(path)
    carried_merged = withheld & contents.keys()
    stay = (withheld - carried_merged) | kept
    # A path of another kind would take away what stays below it, or have no place to be.
    stay |= {path for path in _above(stay) if path in differing and path in scan.tree and path in start}
    stay |= {path for path in differing if stay.intersection(parents(path))}
    going = differing - stay
    added = [path for path in scan.tree if path in going and path not in start]
    changed = [path for path in scan.tree if path in going and path in start]
    carried = sorted([*added, *changed], key=lambda path: (scan.tree[path].kind == "link", path))
    size = sum(scan.tree[path].size for path in carried)
    if len(carried) > MAX_CHANGED_ENTRIES or size > MAX_CHANGED_BYTES or not scan.unread.isdisjoint(carried):
        raise ValueError(
            f"{len(carried)} changed paths with {size >> 20} MiB are more than the "
            f"{MAX_CHANGED_ENTRIES} paths and {MAX_CHANGED_BYTES >> 20} MiB that are carried"
        )
    quiet, above = kept - withheld, _above(stay)
    return Changes(
        archive=scan.pack(carried, contents),
        added=tuple(sorted(added)),
        changed=tuple(sorted(changed)),
        deleted=tuple(sorted(path for path in going if path not in scan.tree and path not in above)),
        dropped=tuple(sorted(scan.dropped | quiet)),
        withheld=tuple(sorted((stay | carried_merged) - quiet)),
        folders=tuple(sorted(path for path in changed if start[path].kind == scan.tree[path].kind == "dir")),
    )


def _is_protected(path: str, protected: Sequence[str]) -> bool:
    """Return whether a path decides about the work by its name."""
    name = path.rpartition("/")[2]
    patterns = (*PROTECTED, *protected)
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _options_differ(before: Entry | None, after: Entry | None, path: str, contents: dict[str, bytes]) -> bool:
    """Return whether a file gives other pytest options than the image's. The content to carry goes into `contents`,
    unless the file must stay as it was."""
    image = None if before is None else before.data
    if before is not None and image is None:
        return True  # a link, a directory, or too large
    name = path.rpartition("/")[2]
    if after is None:
        return merged(name, b"", image) != b""
    if after.data is None:
        return True
    found = merged(name, after.data, image)
    if found is not None and found != after.data:
        contents[path] = found
    return found != after.data


def _above(kept: set[str]) -> set[str]:
    """Return the folders around paths."""
    return {folder for path in kept for folder in parents(path)}
