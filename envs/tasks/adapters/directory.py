"""The Harbor task directory of an adapter, and its `task.toml`."""

from __future__ import annotations

import glob
import json
import logging
import re
import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from envs.tasks.adapters.patches import read_patch
from envs.tasks.harbor import directory_digest, log_remarks, read_task
from envs.types import BadTask, BadTasks, Task
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

INSIDE = Path(__file__).parent / "inside"
"""Files of converted tasks for the verifier's sandbox."""
_LONGEST = 255
"""Of a file's name on Linux, in bytes."""
TEST_FOLDERS = frozenset({"tests", "Tests", "test", "Test", "testing"})


def convert_each(sources: Iterable[tuple[str, Callable[[Path], Path]]], out: Path, what: str, where: str) -> list[Task]:
    """Convert each source into a Harbor directory below `out`, in place of one with the same name. Equal ones count
    once; of different ones with one name none is used, as nobody can tell which is meant.

    sources: each one's place, for messages, and its conversion into a directory in the given folder; it raises
    BadTask. what: a source, a noun. where: all of them, for messages. Raises one BadTasks with all unusable ones.
    """
    tasks: dict[str, Task] = {}
    digests: dict[str, str] = {}
    problems, repeated = [], []
    remarks: dict[str, list[str]] = defaultdict(list)
    is_new = not out.exists()
    for place, convert in sources:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out, prefix=".new-") as folder:
            try:
                new = convert(Path(folder))
                digest, known = directory_digest(new), digests.get(new.name)
                if known == digest:
                    repeated.append(place)
                    continue
                if (out / new.name).is_file():
                    raise BadTask(f"{out / new.name} is a file; give another --out, or rename it")
                shutil.rmtree(out / new.name, ignore_errors=True)
                digests[new.name] = digest if known is None else ""
                if known is not None:
                    tasks.pop(new.name, None)
                    raise BadTask(
                        f"a second {what} with the id {new.name}, and another content; neither is used: convert the "
                        f"{what}s one by one, each with its own --out"
                    )
                tasks[new.name], found = _install(new, out / new.name, digest)
                for remark in found:
                    remarks[remark].append(new.name)
            except BadTask as problem:
                message = str(problem)
                problems.append(message if message.startswith(place) else f"{place}: {message}")
    log_remarks(remarks)
    if repeated:
        logger.warning("%s in %s, such as %s", plural(len(repeated), f"repeated {what}"), where, repeated[0])
    if problems:
        if is_new and not tasks:
            out.rmdir()
        raise BadTasks(what, problems, list(tasks.values()), f" in {where}")
    return list(tasks.values())


def write_task(out: Path, task_id: str, files: Mapping[str, str | bytes | Path]) -> Path:
    """Write a Harbor directory into a folder, and return it.

    files: text, bytes, or a file or directory to copy, by path in the task directory. Text named *.patch must be
    readable by git; errors of form alone are mended. Raises BadTask.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", task_id).strip("-.")
    if not name:
        raise BadTask(f"the id {task_id!r} makes no folder's name; it needs a letter or digit of ASCII")
    if len(name) > _LONGEST:
        raise BadTask(f"the id {task_id[:60]!r}… has {len(name)} characters, too many for a folder's name; shorten it")
    directory = out / name
    patched = {
        name: read_patch(content, f"{task_id}: {name}").text
        for name, content in files.items()
        if isinstance(content, str) and name.endswith(".patch")
    }
    for name, content in {**files, **patched}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            if content.is_dir():
                shutil.copytree(content, path, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(content, path)
        else:
            path.write_bytes(_encode(content, f"{task_id}: {name}") if isinstance(content, str) else content)
    return directory


def _encode(text: str, where: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        half = text[error.start].encode("ascii", "backslashreplace").decode()
        raise BadTask(f"{where}: half of a surrogate pair ({half}) is no text; remove it") from None


def _install(new: Path, directory: Path, digest: str) -> tuple[Task, Sequence[str]]:
    """Move a new directory to its place, and read it as `read_task` does. Nothing is left of one that raises
    BadTask."""
    try:
        return read_task(new.rename(directory), digest)
    except BadTask:
        shutil.rmtree(directory)
        raise


@contextmanager
def parsing_python(what: str) -> Iterator[None]:
    """Raise BadTask if the block can't parse a source. what: its name in the message."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of old code
            yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: it is nested too deeply
        raise BadTask(f"{what} is not Python: {str(error) or 'it is nested too deeply'}") from None


def refuse(why: str, out: Path) -> Path:
    """Raise BadTask, in place of a conversion."""
    raise BadTask(why)


def check_separate(source: Path, out: Path) -> None:
    """Raise BadTask if a converted task could be written over the directory that it is made of."""
    one, other = source.resolve(), out.resolve()
    if source.is_dir() and (one.is_relative_to(other) or other.is_relative_to(one)):
        raise BadTask(f"{out} is {source}, in it or around it: tasks could be written over; give another --out")


def make_task_toml(
    kind: str,
    *,
    timeout_s: float = 600,
    memory_mb: int = 1024,
    protected: Iterable[str] = (),
    folders: Iterable[str] = (),
    tags: Sequence[str] = (),
) -> str:
    """Return a `task.toml`.

    timeout_s: of the verifier. protected: as in `Hidden`, but paths; folders: with all below them.
    """
    kept = sorted([*map(glob.escape, set(protected)), *(f"{glob.escape(folder)}/*" for folder in set(folders))])
    more = f"tags = {toml_of(tags)}\n" if tags else ""
    more += f"protected_paths = {toml_of(kept)}\n" if kept else ""
    return (
        f'schema_version = "1.4"\n\n[metadata]\nband = "adapted"\nkind = {toml_of(kind)}\n{more}\n'
        f"[verifier]\ntimeout_sec = {timeout_s}\n\n"
        f'[environment]\nnetwork_mode = "no-network"\nmemory_mb = {memory_mb}\n'
    )


def toml_of(value: str | Sequence[str]) -> str:
    """Return a text, or a list of texts, in TOML: as JSON, which has letters beyond 16 bits as two halves."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def test_folder(path: str) -> str:
    """Return the innermost folder of tests around a path, "" without one."""
    folders = path.split("/")[:-1]
    last = max((at for at, folder in enumerate(folders, 1) if folder in TEST_FOLDERS), default=0)
    return "/".join(folders[:last])
