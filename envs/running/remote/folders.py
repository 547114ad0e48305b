"""Send the folders of a task: worker machines need not share a file system with the driver."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SENT = Path("/.atropos-sent")
"""Place of a task's folders while it is on its way: no file system has this name."""

_PREFIX = "atropos-workplace-"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder of this process's own. It is removed in the end, like the folders of killed processes:
    a lock that ends with its process tells them apart."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), _lock_folder(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(left, ignore_errors=True)
    while True:
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            with suppress(FileNotFoundError):
                stack.enter_context(_lock_folder(folder, fcntl.LOCK_EX))
            if folder.exists():  # else it was taken for one that was left, before it had its lock
                yield folder
                return


@contextmanager
def _lock_folder(folder: Path, how: int) -> Iterator[None]:
    """Hold a folder's lock for the block. Raises OSError."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(place, how)
        yield
    finally:
        os.close(place)


class Folders:
    """Packs folders. A folder's name on the way is the digest of its content when it was first packed."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}

    def replace_paths(self, task: T) -> tuple[T, dict[str, Path]]:
        """Return a task with digests in place of its existing paths, and the paths by digest. It reads folders: not
        in the event loop."""
        used: dict[str, Path] = {}

        def change(path: Path) -> Path:
            if not path.exists():
                return path
            if path not in self._digests:
                self._digests[path] = hashlib.sha256(pack(path)).hexdigest()[:32]
            used[self._digests[path]] = path
            return _SENT / self._digests[path]

        return map_paths(task, change), used


def restore_paths(task: T, folder: Path) -> T:
    """Return a received task, with its paths in `folder`, unpacked there by their digests."""
    return map_paths(task, lambda path: folder / path.name if path.parent == _SENT else path)


def map_paths(value: T, change: Callable[[Path], Path]) -> T:
    """Return a value with each path in it changed, in dataclasses, mappings, lists and tuples."""
    return _map_paths(value, change)  # type: ignore[no-any-return]


def _map_paths(value: Any, change: Callable[[Path], Path]) -> Any:
    if isinstance(value, Path):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        inner = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        new = {name: _map_paths(held, change) for name, held in inner.items()}
        return replace(value, **{name: held for name, held in new.items() if held is not inner[name]})
    if isinstance(value, Mapping):
        return {key: _map_paths(held, change) for key, held in value.items()}
    if isinstance(value, list | tuple):
        new_items = [_map_paths(held, change) for held in value]
        return new_items if isinstance(value, list) else tuple(new_items)
    return value


def pack(path: Path) -> bytes:
    """Return a folder or a file as an archive, the same bytes each time."""
    stream, path = io.BytesIO(), path.resolve()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for found in _walk(path):
            archive.add(found, arcname=str(found.relative_to(path)), recursive=False)
    return zlib.compress(stream.getvalue(), 1)


def unpack(packed: bytes, to: Path) -> None:
    """Write a packed folder or file to `to`."""
    stream = io.BytesIO(zlib.decompress(packed))
    with tarfile.open(fileobj=stream) as archive:
        members = archive.getmembers()
        alone = len(members) == 1 and members[0].name == "." and members[0].isfile()
        if not alone:
            # Who sends it is the driver, and modes are part of a task's digest.
            archive.extraction_filter = lambda member, _to: member  # `filter=` came with Python 3.11.4
            archive.extractall(to, numeric_owner=True)
            return
        found = archive.extractfile(members[0])
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(b"" if found is None else found.read())
        to.chmod(members[0].mode)


def _walk(path: Path) -> Iterator[Path]:
    """Yield a path and all paths under it, in the same order each time. Links are not followed."""
    yield path
    for folder, inner, files in os.walk(path):
        inner.sort()
        yield from (Path(folder) / name for name in sorted([*files, *inner]))
