"""What the adapters share: records read from files, their fields, and the Harbor directory written from them."""

from __future__ import annotations

import glob
import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.tasks.adapters.hub import Dataset
from envs.tasks.harbor import load_task
from envs.types import BadTask, Task

JUDGE = Path(__file__).parent / "inside"
TEST_FOLDERS = frozenset({"tests", "Tests", "test", "Test", "testing"})
ROWS = ".jsonl, .jsonl.gz, .json or .parquet, a dataset's folder, or its name on the Hugging Face hub (owner/name)"


@dataclass(frozen=True, slots=True)
class Record:
    """One row. where: its file and number, for messages."""

    values: Mapping[str, Any]
    where: str

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of the named fields that holds text. Raises BadTask when none does and there is no default."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str) and value.strip():
                return value
            if value not in (None, "") and not isinstance(value, str):
                raise BadTask(f"{self.where}: {name} is {type(value).__name__}, not text")
        if default is None:
            raise BadTask(f"{self.where}: {' or '.join(names)} is missing or empty")
        return default

    def table(self, name: str) -> dict[str, Any]:
        """An object, also where it was written as a JSON string. Raises BadTask when there is none."""
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
        """A list of texts, also where it was written as a JSON string."""
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


class BadRecords(BadTask):
    """Some records can't be used. usable: the tasks that the others became."""

    def __init__(self, what: str, problems: Sequence[str], usable: list[Task]) -> None:
        super().__init__(f"{len(problems)} {what} can't be used:\n" + "\n".join(f"- {problem}" for problem in problems))
        self.usable = usable


def read_records(path: Path) -> Iterator[Record]:
    """The rows of a .jsonl, .jsonl.gz, .json (a list) or .parquet file, or of a dataset.

    path: the file, or what `Dataset.parse` takes. Raises BadTask.
    """
    if not path.is_file():
        dataset = Dataset.parse(str(path))
        if dataset is None:
            raise BadTask(f"{path} is not a file; give rows as {ROWS}")
        yield from (Record(row, where) for where, row in dataset.rows())
        return
    if path.suffix == ".parquet":
        try:
            # Here alone: it is large, and few need it.
            from pyarrow import parquet  # type: ignore[import-untyped] # has no stubs
        except ImportError:
            raise BadTask(f"{path.name} needs the package pyarrow (pip install atropos-agent[datasets])") from None

        rows = [(number, row) for number, row in enumerate(parquet.read_table(path).to_pylist(), 1)]
    else:
        rows = list(_json_rows(path))
    for number, row in rows:
        where = f"{path.name}:{number}"
        if not isinstance(row, dict):
            raise BadTask(f"{where} is no JSON object")
        yield Record(row, where)


def convert_records(path: Path, out: Path, convert: Callable[[Record, Path], Task]) -> list[Task]:
    """Convert every row. Raises one BadRecords that lists all rows that can't be used."""
    tasks: dict[str, Task] = {}
    problems = []
    for record in read_records(path):
        try:
            task = convert(record, out)
        except BadTask as problem:
            problems.append(str(problem))
            continue
        if task.id in tasks:
            problems.append(f"{record.where}: a second record with the id {task.id}")
        tasks[task.id] = task
    if problems:
        raise BadRecords(f"records of {path}", problems, list(tasks.values()))
    return list(tasks.values())


def write_task(out: Path, task_id: str, files: Mapping[str, str | bytes | Path]) -> Task:
    """Write a Harbor directory, in place of one with the same id, and read it.

    files: text, bytes, or a file or directory to copy, by path in the task directory.
    """
    directory = out / re.sub(r"[^A-Za-z0-9._-]+", "-", task_id).strip("-.")
    shutil.rmtree(directory, ignore_errors=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            if content.is_dir():
                shutil.copytree(content, path, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_task(directory)


def config(
    kind: str,
    *,
    timeout_s: float = 600,
    memory_mb: int = 1024,
    territory: Iterable[str] = (),
    folders: Iterable[str] = (),
    tags: Sequence[str] = (),
) -> str:
    """A `task.toml`. timeout_s: of the judge. territory: as in `Hidden`, but paths; folders: with all below them."""
    kept = sorted([*map(glob.escape, set(territory)), *(f"{glob.escape(folder)}/*" for folder in set(folders))])
    more = f"tags = {json.dumps(tags)}\n" if tags else ""
    more += f"territory = {json.dumps(kept)}\n" if kept else ""
    return (
        f'schema_version = "1.4"\n\n[metadata]\nband = "adapted"\nkind = {json.dumps(kind)}\n{more}\n'
        f"[verifier]\ntimeout_sec = {timeout_s}\n\n"
        f'[environment]\nnetwork_mode = "no-network"\nmemory_mb = {memory_mb}\n'
    )


def test_folder(path: str) -> str:
    """The innermost folder of tests that a path is in, "" where it is in none."""
    folders = path.split("/")[:-1]
    last = max((at for at, folder in enumerate(folders, 1) if folder in TEST_FOLDERS), default=0)
    return "/".join(folders[:last])


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode()
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
        raise BadTask(f"{path.name} is not valid JSON: {error}") from None
