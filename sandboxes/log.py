"""Set up the log of a command: all of its own and of your modules' records, and warnings of libraries."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO

TIMED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""The form of a long run's records."""

_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(f"{_ROOT / name}{os.sep}" for name in ("atropos_agent", "envs", "sandboxes", "tools"))
_STANDARD = f"{Path(os.__file__).resolve().parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_control(text: str) -> str:
    """Return a text in which others have a part, without colours and whatever else may steer a terminal."""
    return _CONTROL.sub("", text)


class PlainFormatter(logging.Formatter):
    """Writes records without control characters: they quote servers, and programs of sandboxes."""

    def format(self, record: logging.LogRecord) -> str:
        return without_control(super().format(record))


class OwnRecordsFilter(logging.Filter):
    """Passes records of our packages and of your own modules, and from libraries those that warn.

    own: packages that are yours although they are installed."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        super().__init__()
        self._own = frozenset(own)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or record.name.partition(".")[0] in self._own:
            return True
        return not _is_library(record.pathname)


class LogOnceFilter(logging.Filter):
    """Passes a message at most once in `again_s` seconds; one with a traceback always."""

    again_s = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            return True
        what, now = (record.name, record.getMessage()), record.created
        if now - self._logged.get(what, -self.again_s) < self.again_s:
            return False
        self._logged = {one: at for one, at in self._logged.items() if now - at < self.again_s}
        self._logged[what] = now
        return True


@lru_cache(maxsize=1024)
def _is_library(file: str) -> bool:
    path = str(Path(file).resolve())
    if path.startswith(_OURS):
        return False
    return path.startswith(_STANDARD) or any(part in path for part in _INSTALLED)


def set_up_log(
    level: int | str = logging.INFO,
    form: str = "%(message)s",
    *,
    stream: IO[str] | None = None,
    own: Iterable[str] = (),
) -> None:
    """Write this process's log to stderr, or to `stream`, without repetitions. own: see `OwnRecordsFilter`."""
    ours = logging.StreamHandler(stream or sys.stderr)
    ours.setFormatter(PlainFormatter(form))
    logging.basicConfig(level=level, handlers=[ours])
    for handler in logging.getLogger().handlers:
        handler.addFilter(OwnRecordsFilter(own))
        handler.addFilter(LogOnceFilter())
