"""Rows of a dataset, read from a file or the hub, with their fields checked."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from envs.tasks.adapters import ROWS
from envs.tasks.adapters.directory import convert_each, refuse
from envs.tasks.adapters.hub import Dataset
from envs.tasks.adapters.patches import Patch, read_patch
from envs.types import BadTask, Task
from sandboxes.installing import install
from sandboxes.naming import lazy_import

_ARROW, _PARQUET = lazy_import("pyarrow"), lazy_import("pyarrow.parquet")
_AT_ONCE = 64
"""Rows of a Parquet file in memory; one of R2E-Gym's takes a megabyte."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dataset. where: its file and number, for messages."""

    values: Mapping[str, Any]
    where: str

    def text(self, *names: str, default: str | None = None) -> str:
        """Return the first text among the named fields, else `default`. Raises BadTask without either."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str) and value.strip():
                return value
            if value not in (None, "") and not isinstance(value, str):
                raise BadTask(f"{self.where}: {name} is {type(value).__name__}, not text")
        if default is None:
            raise BadTask(f"{self.where}: {' or '.join(names)} is missing or empty")
        return default

    def line(self, *names: str, default: str | None = None) -> str:
        """Return the same for a part of a Dockerfile's line. Raises BadTask also if it has several lines."""
        found = self.text(*names, default=default).strip()
        if len(found.splitlines()) > 1:
            raise BadTask(f"{self.where}: {' or '.join(names)} has several lines; give one: {found[:80]!r}")
        return found

    def patch(self, name: str, *, default: str | None = None) -> Patch:
        """Return the patch in a field, with errors of form mended. Raises BadTask if git can't read it."""
        text = self.text(name, default=default)
        return read_patch(text, f"{self.where}: {name}") if text else Patch("", ())

    def table(self, name: str) -> dict[str, Any]:
        """Return an object, also from a JSON string. Raises BadTask without one."""
        value = self.values.get(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise BadTask(f"{self.where}: {name} is neither an object nor one in JSON") from None
        if not isinstance(value, dict):
            raise BadTask(f"{self.where}: {name} is missing or not an object")
        return value

    def texts(self, *names: str) -> list[str]:
        """Return a list of texts, also from a JSON string."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, str):
                try:
                    value = json.loads(value)
                except (ValueError, RecursionError):
                    raise BadTask(f"{self.where}: {name} is neither a list nor a list in JSON") from None
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise BadTask(f"{self.where}: {name} must be a list of texts")
            return value
        return []


def read_rows(path: Path) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield the place of each row in a .jsonl, .jsonl.gz, .json (a list) or .parquet file, or in a dataset, and a
    function to read it, which raises BadTask. Few rows are in memory at once.

    path: the file, or a name for `Dataset.parse`. Raises BadTask, also after the last readable row.
    """
    if path.is_file():
        found = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
        for number, values in found:
            where = f"{path.name}:{number}"
            yield where, partial(_row, values, where)
        return
    dataset = Dataset.parse(str(path))
    if dataset is None:
        of_file = Path(str(path).rpartition(":")[0]).is_file()
        split = "; a split goes after a dataset's folder or name alone" if of_file else ""
        raise BadTask(f"{path} is not a file{split}; give rows as {ROWS}")
    for where, values in dataset.rows():
        yield where, partial(_row, values, where)


def convert_rows(path: Path, out: Path, convert: Callable[[Row, Path], Path]) -> list[Task]:
    """Convert every row, as `convert_each` does. Raises one BadTasks with all unusable rows, and BadTask if not even
    the first one can be reached."""

    def sources() -> Iterator[tuple[str, Callable[[Path], Path]]]:
        begun = False
        try:
            for where, read in read_rows(path):
                begun = True
                yield where, partial(_convert_row, convert, read)
        except BadTask as problem:
            if not begun:
                raise
            yield path.name, partial(refuse, f"{problem}; the rows before were read")

    return convert_each(sources(), out, "row", str(path))


def _convert_row(convert: Callable[[Row, Path], Path], read: Callable[[], Row], out: Path) -> Path:
    return convert(read(), out)


def _row(values: Any, where: str) -> Row:
    if isinstance(values, bytes):
        try:
            values = json.loads(values.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            known = where.rpartition(":")[0].endswith((".jsonl", ".jsonl.gz"))
            raise BadTask(f"{where} is not valid JSON: {error}{'' if known else f'; give rows as {ROWS}'}") from None
    if not isinstance(values, dict):
        raise BadTask(f"{where} is no JSON object")
    return Row(values, where)


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        arrow, parquet = _ARROW(), _PARQUET()
    except ImportError:
        raise BadTask(f"{path.name} needs the package pyarrow ({install('datasets')})") from None
    try:
        with parquet.ParquetFile(path) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=_AT_ONCE))
            yield from enumerate(chain.from_iterable(batches), 1)
    except (arrow.ArrowException, OSError) as error:
        raise BadTask(f"{path} can't be read as Parquet: {str(error).splitlines()[0]}") from error


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a .json file, or the lines of another as bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if path.suffix != ".json":
                yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
                return
            rows = json.loads(file.read().decode("utf-8-sig"))
    except (OSError, EOFError, zlib.error) as error:
        raise BadTask(f"{path.name} can't be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadTask(f"{path.name} is not valid JSON: {error}") from None
    yield from enumerate(rows if isinstance(rows, list) else [rows], 1)
