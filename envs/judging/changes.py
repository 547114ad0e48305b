"""What the agent made: the difference between its source tree at the start and at the end.

The tree comes as a tar archive that the Docker daemon wrote from outside, after every process was killed,
so no program of the agent's (a replaced git, a hook, a shell profile) can change what is seen. Its
content is hostile all the same (see `envs.judging.tree`). What configures the tests (`PROTECTED`, and what the task
names) stays as the clean image has it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass

from envs.judging.tree import MAX_TREE_BYTES, Scan, Tree, parents
from envs.types import Failure, InfraError
from sandboxes.base import Sandbox, SandboxError

MAX_CHANGED_BYTES = 64 * 2**20
MAX_CHANGED_ENTRIES = 20_000
PROTECTED = ("conftest.py", "pytest.ini", ".pytest.ini", "sitecustomize.py", "usercustomize.py", "*.pth")
"""Names of files that change how tests are run, wherever they are."""
_TEST_OPTIONS = frozenset({"setup.cfg", "tox.ini", "pyproject.toml"})
"""Protected where they say something about pytest; else configuration like any other."""


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
        raise InfraError(Failure.SANDBOX, f"could not read what the agent made: {error}") from error
    except ValueError:
        return Changes(problem=f"the working directory is larger than {MAX_TREE_BYTES >> 20} MiB")
    except OSError as error:
        return Changes(problem=f"the working directory is gone ({error})")
    try:
        return await asyncio.to_thread(compare, start, archive, sandbox.workdir, protected)
    except tarfile.TarError as error:
        raise InfraError(
            Failure.SANDBOX, f"the Docker daemon sent a broken archive of the agent's tree: {error}"
        ) from error


def compare(start: Tree, archive: bytes, root: str, protected: Sequence[str] = ()) -> Changes:
    """Return the changes that lead from `start` to the tree in `archive`, which was taken at `root`."""
    try:
        scan = Scan(archive, root)
    except ValueError as problem:
        return Changes(problem=str(problem))
    differing = {path for path, entry in scan.tree.items() if start.get(path) != entry}
    differing.update(path for path in start if path not in scan.tree)
    withheld = {path for path in differing if _is_protected(scan, path, protected)}
    # A path of another kind would take away what stays below it, or have no place to be.
    withheld |= {path for path in differing if path in scan.tree and path in start and _holds(withheld, path)}
    withheld |= {path for path in differing if withheld.intersection(parents(path))}
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


def _is_protected(scan: Scan, path: str, protected: Sequence[str]) -> bool:
    """Return whether a path decides about the work: by its name, or as configuration that speaks of pytest."""
    name = path.rpartition("/")[2]
    patterns = (*PROTECTED, *protected)
    if any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
        return True
    if name not in _TEST_OPTIONS:
        return False
    if path not in scan.tree or scan.tree[path].kind != "file":
        return True
    return b"pytest" in scan.content(path)


def _holds(withheld: set[str], path: str) -> bool:
    """Return whether something that stays lies below `path`."""
    return any(one.startswith(path + "/") for one in withheld)
