"""Rows of a dataset, read from a file or the hub, with their fields checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from envs.tasks.adapters import ROWS
from envs.tasks.adapters.directory import convert_each
from envs.tasks.adapters.hub import Dataset
from envs.tasks.adapters.patches import Patch, read_patch
from envs.types import BadTask, Task
from sandboxes.naming import later

_ARROW, _PARQUET = later("pyarrow"), later("pyarrow.parquet")


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
            except ValueError:
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
                except ValueError:
                    raise BadTask(f"{self.where}: {name} is neither a list nor a list in JSON") from None
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise BadTask(f"{self.where}: {name} must be a list of texts")
            return value
        return []


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a .jsonl, .jsonl.gz, .json (a list) or .parquet file, or of a dataset.

    path: the file, or a name for `Dataset.parse`. Raises BadTask.
    """
    if not path.is_file():
        dataset = Dataset.parse(str(path))
        if dataset is None:
            of_file = Path(str(path).rpartition(":")[0]).is_file()
            split = "; a split goes behind a dataset's folder or name alone" if of_file else ""
            raise BadTask(f"{path} is not a file{split}; give rows as {ROWS}")
        yield from (Row(values, where) for where, values in dataset.rows())
        return
    if path.suffix == ".parquet":
        try:
            arrow, parquet = _ARROW(), _PARQUET()
        except ImportError:
            raise BadTask(f"{path.name} needs the package pyarrow (pip install atropos-agent[datasets])") from None

        try:
            rows = list(enumerate(parquet.read_table(path).to_pylist(), 1))
        except (arrow.ArrowException, OSError) as error:
            raise BadTask(f"{path} can't be read as Parquet: {str(error).splitlines()[0]}") from error
    else:
        rows = list(_json_rows(path))
    for number, values in rows:
        where = f"{path.name}:{number}"
        if not isinstance(values, dict):
            raise BadTask(f"{where} is no JSON object")
        yield Row(values, where)


def convert_rows(path: Path, out: Path, convert: Callable[[Row, Path], Path]) -> list[Task]:
    """Convert every row, as `convert_each` does. Raises one BadTasks with all unusable rows."""
    return convert_each(((row.where, partial(convert, row)) for row in read_rows(path)), out, "row", str(path))


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError) as error:
        raise BadTask(f"{path.name} can't be read: {error}") from None
    try:
        if path.suffix == ".json":
            rows = json.loads(text)
            yield from enumerate(rows if isinstance(rows, list) else [rows], 1)
            return
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield number, json.loads(line)
    except ValueError as error:
        known = path.name.endswith((".json", ".jsonl", ".jsonl.gz"))
        raise BadTask(f"{path.name} is not valid JSON: {error}{'' if known else f'; give rows as {ROWS}'}") from None
