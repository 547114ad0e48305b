"""Tell which run a directory holds: its id, and the options that it can be continued with."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from envs.running.database import RunDirectoryError


def is_known(db: sqlite3.Connection, identity: Mapping[str, Any], directory: Path) -> bool:
    """Return whether a database holds an earlier part of this run, whose identity it keeps. Raises RunDirectoryError
    when it holds another run: one that differs in a value of `identity`."""
    known = dict(db.execute("SELECT key, value FROM run WHERE key LIKE 'is:%'"))
    differs = [
        f"{key} is {value!r}, it was {json.loads(known['is:' + key])!r}"
        for key, value in identity.items()
        if "is:" + key in known and known["is:" + key] != json.dumps(value)
    ]
    if differs:
        raise RunDirectoryError(
            f"{directory} holds a run that can't be continued with these options: "
            f"{'; '.join(differs)}. Set them back, or give another --env.run_dir"
        )
    for key, value in identity.items():
        db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", ("is:" + key, json.dumps(value)))
    return bool(known)


def name_run(db: sqlite3.Connection, lock: BinaryIO, path: Path) -> None:
    """Give a new run its id, which stands in the file of the lock as well. path: the database's file. Raises
    RunDirectoryError when that names a run of which the database knows nothing."""
    lock.seek(0)
    named = lock.read(100).decode("ascii", "replace").strip()
    found = db.execute("SELECT value FROM run WHERE key = 'id'").fetchone()
    nothing = found is None and not db.execute("SELECT 1 FROM groups LIMIT 1").fetchone()
    if nothing and (named or _counted(path.parent)):
        raise RunDirectoryError(
            f"{path} is empty, although {path.parent} holds what a run has made. Bring the file back "
            "from a copy to go on with that run; for a new one give another --env.run_dir"
        )
    name = str(found[0]) if found is not None else named or uuid.uuid4().hex[:12]
    db.execute("INSERT OR IGNORE INTO run VALUES ('id', ?)", (name,))
    if named != name:
        lock.truncate(0)
        lock.write(name.encode())
        lock.flush()


def _counted(directory: Path) -> bool:
    """Tell whether a run has counted groups in the directory, of whose number its metrics tell."""
    try:
        states = orjson.loads((directory / "metrics.json").read_bytes())["states"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(states)
