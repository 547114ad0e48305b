"""The Python project to make tasks from: a source tree with tests, or a release downloaded from PyPI."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from envs.tasks.tarballs import unpack
from envs.types import BadTask
from sandboxes.shielding import ending

_TEST_DIRECTORIES = frozenset({"tests", "test"})
_TEST_FILE = re.compile(r"test_.*\.py|.*_tests?\.py|tests?\.py")
_NOT_LIBRARY = frozenset({"docs", "doc", "examples", "benchmarks", "benchmark", "scripts", "tools", "build", "dist"})
_NOT_MUTATED = frozenset({"setup.py", "conftest.py", "_version.py", "__main__.py", "noxfile.py", "version.py"})
_SKIPPED = frozenset({".git", ".hg", "__pycache__", ".tox", ".venv", "venv", "node_modules", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class Project:
    """A source tree, sorted into files to change and files that judge them. Paths are relative, with `/`.

    import_path: the folder to import its packages from: "." or "src".
    modules: library modules. tests: test modules. protected: tests and all their support files.
    test_roots: the topmost protected paths: directories of tests, and single files.
    """

    name: str
    root: Path
    import_path: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    protected: tuple[str, ...]
    test_roots: tuple[str, ...]

    @property
    def top_level(self) -> tuple[str, ...]:
        """Return the names of its modules in imports."""
        prefix = "" if self.import_path == "." else self.import_path + "/"
        return tuple(sorted({m.removeprefix(prefix).split("/")[0].removesuffix(".py") for m in self.modules}))


def read_project(root: Path, name: str | None = None) -> Project:
    """Sort a source tree. Raises BadTask when there is no library or no test in it."""
    files = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and not _SKIPPED.intersection(path.relative_to(root).parts)
    )
    test_roots: set[str] = set()
    protected = []
    for file in files:
        parts = file.split("/")
        at = next((i for i, part in enumerate(parts[:-1]) if part in _TEST_DIRECTORIES), None)
        if at is not None:
            test_roots.add("/".join(parts[: at + 1]))
        elif _TEST_FILE.fullmatch(parts[-1]) or parts[-1] == "conftest.py":
            test_roots.add(file)
        else:
            continue
        protected.append(file)
    tests = [file for file in protected if _TEST_FILE.fullmatch(file.split("/")[-1])]
    import_path = "src" if any(file.startswith("src/") and file.endswith(".py") for file in files) else "."
    hidden = set(protected)
    modules = [file for file in files if file not in hidden and _is_library(file, import_path)]
    if not modules or not tests:
        what = "Python module" if not modules else "test module (test_*.py, *_test.py)"
        raise BadTask(f"{root} holds no {what}; tasks are made from a Python source tree that has tests")
    return Project(
        name or root.name,
        root,
        import_path,
        tuple(files),
        tuple(modules),
        tuple(tests),
        tuple(protected),
        tuple(sorted(test_roots)),
    )


async def fetch_project(source: str, cache: Path) -> Project:
    """Read a directory as it is, else a requirement (`NAME` or `NAME==VERSION`), downloaded once into `cache`.

    pip runs the release's own build code to learn its metadata. Raises BadTask with pip's reason.
    """
    directory = await asyncio.to_thread(Path(source).resolve)
    if await asyncio.to_thread(directory.is_dir):
        return await asyncio.to_thread(read_project, directory)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(==[\w.+!-]+)?", source):
        raise BadTask(f"{source!r} is neither a directory nor a package name (NAME or NAME==VERSION)")
    folder = cache / source.lower()
    if not await asyncio.to_thread((folder / "tree").is_dir):
        await _download(source, folder)
        await asyncio.to_thread(_unpack, folder)
    return await asyncio.to_thread(read_project, folder / "tree", re.split("==", source.lower())[0])


async def _download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--dest", str(folder), requirement),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with ending(process):
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise BadTask(f"pip can't download the source of {requirement}:\n{output.decode(errors='replace')[-1500:]}")


def _unpack(folder: Path) -> None:
    archives = [path for path in folder.iterdir() if path.name.endswith((".tar.gz", ".zip", ".tar.bz2"))]
    if len(archives) != 1:
        raise BadTask(f"{folder} holds {len(archives)} source archives, not one; remove the folder and try again")
    unpacked = folder / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)  # what an interrupted run left
    unpacked.mkdir()
    try:
        if archives[0].suffix == ".zip":
            with zipfile.ZipFile(archives[0]) as archive:
                archive.extractall(unpacked)
        else:
            unpack(archives[0], unpacked)
        (tree,) = unpacked.iterdir()
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError) as error:
        raise BadTask(f"{archives[0]} is no archive of one source tree: {error}; give the tree itself") from None
    tree.rename(folder / "tree")


def _is_library(file: str, import_path: str) -> bool:
    parts = file.split("/")
    if not file.endswith(".py") or parts[-1] in _NOT_MUTATED or _NOT_LIBRARY.intersection(parts[:-1]):
        return False
    return import_path == "." or parts[0] == import_path
