"""Keep an agent's changes exactly, to judge them again without a model.

An entry is JSON: the archive of added and changed files, compressed, and the names of everything. Changes larger
than the run's limit are left out, and the entry says so.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from envs.judging.changes import Changes
from envs.judging.tree import MAX_CHANGED_BYTES

_NAMES = ("added", "changed", "deleted", "dropped", "withheld")
_MAX_ARCHIVE = 2 * MAX_CHANGED_BYTES
"""Bytes of the largest possible archive of ours, names and padding included."""


class NotSaved(ValueError):
    """An agent's changes were not kept, or can't be read; the message says why."""


async def pack_all(parts: Sequence[Changes], most_bytes: int) -> tuple[Mapping[str, Any], ...]:
    """Return the changes of a task's parts as entries; none if nothing is kept. most_bytes: see `pack_changes`."""
    return tuple([await asyncio.to_thread(pack_changes, one, most_bytes) for one in parts]) if most_bytes else ()


def pack_changes(changes: Changes, most_bytes: int) -> dict[str, Any]:
    """Return changes as an entry. most_bytes: of it, at most; of larger ones the size of their archives alone is
    noted."""
    with suppress(_TooLargeError):
        entry = _entry(changes, most_bytes)
        if len(json.dumps(entry)) <= most_bytes:
            return entry
    return {"bytes": _size(changes), "most": most_bytes}


def unpack_changes(entry: Mapping[str, Any]) -> Changes:
    """Return the changes from an entry that `pack_changes` made. Raises NotSaved."""
    if "archive" not in entry:
        raise NotSaved(f"the agent's work has {entry.get('bytes')} bytes, and the run kept up to {entry.get('most')}")
    try:
        return _changes(entry)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise NotSaved(f"the agent's work is damaged: {type(error).__name__}: {error}") from error


class _TooLargeError(Exception):
    pass


def _size(changes: Changes) -> int:
    return len(changes.archive) + sum(_size(one) for _, one in changes.elsewhere)


def _deflated(data: bytes, most_bytes: int) -> bytes:
    """Return the compressed data, b"" for none. Raises _TooLargeError before all of far too much is compressed."""
    deflating, parts, size = zlib.compressobj(), [], 0
    for at in range(0, len(data), 1 << 20):
        parts.append(deflating.compress(memoryview(data)[at : at + (1 << 20)]))
        size += len(parts[-1])
        if size > most_bytes:
            raise _TooLargeError
    return b"".join([*parts, deflating.flush()]) if data else b""


def _entry(changes: Changes, most_bytes: int) -> dict[str, Any]:
    return {
        "archive": base64.b64encode(_deflated(changes.archive, most_bytes)).decode(),
        # As text: names may hold bytes that are no UTF-8, which this escapes.
        "names": json.dumps({name: getattr(changes, name) for name in (*_NAMES, "folders")}),
        "problem": changes.problem,
        "elsewhere": [[json.dumps(folder), _entry(one, most_bytes)] for folder, one in changes.elsewhere],
    }


def _changes(entry: Mapping[str, Any]) -> Changes:
    names = json.loads(entry["names"])
    return Changes(
        _inflated(base64.b64decode(entry["archive"], validate=True)),
        **{name: tuple(names[name]) for name in _NAMES},
        folders=tuple(names.get("folders", ())),  # which version 0.1 has not
        elsewhere=tuple((json.loads(folder), _changes(one)) for folder, one in entry["elsewhere"]),
        problem=entry["problem"],
    )


def _inflated(data: bytes) -> bytes:
    """Return the uncompressed data. Raises ValueError for a part of it, and for more than an archive of ours can
    hold."""
    if not data:
        return b""
    inflating = zlib.decompressobj()
    archive = inflating.decompress(data, _MAX_ARCHIVE)
    if not inflating.eof:
        raise ValueError(f"it is cut off, or holds more than {_MAX_ARCHIVE} bytes")
    return archive
