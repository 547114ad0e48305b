"""Packs: an agent's packages, installed once from their package registry into a folder named by its content.

A pack is mounted read-only into sandboxes. Once it is here, no registry is queried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import re
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

from envs.agents import locks
from envs.agents.recipes import Platform, Recipe
from envs.types import Failure, InfraError
from sandboxes.shielding import ending

logger = logging.getLogger(__name__)

ROOT = Path("~/.cache/atropos-agent/packs")
_INSTALL_S = 1800.0
_REMIND_S = 10.0
_SHOWN = 2000
_PARTIAL = "new-"
_NO_VERSION = re.compile(rb"code ETARGET|\(from versions: (?!none)")
"""npm's and pip's words for a package that is there, but not in this version."""


async def pack_of(agent: str, recipe: Recipe, platform: Platform, root: Path | None = None) -> Path:
    """Return the folder of an agent's pack, installed first if missing.

    root: of the packs. Raises InfraError if the agent can't run on the platform or be installed."""
    packages = recipe.packages_for(platform, agent)
    root = (root or ROOT).expanduser()
    lock = await asyncio.to_thread(locks.find, agent, platform, recipe)
    wanted = json.dumps([[*packages, *recipe.bare], asdict(platform) if recipe.pypi else "", locks.digest(lock)])
    named = root / "by-recipe" / locks.digest(wanted)
    if named.exists():
        return named.resolve()
    async with _lock_installations(root):
        if not named.exists():
            folder = await _install(agent, recipe, platform, root, lock)
            named.parent.mkdir(exist_ok=True)
            named.symlink_to(folder)
    return named.resolve()


async def _install(agent: str, recipe: Recipe, platform: Platform, root: Path, lock: str) -> Path:
    """Return the folder of an installed pack; it gets its place when it is whole."""
    new, began = Path(tempfile.mkdtemp(dir=root, prefix=_PARTIAL)), time.monotonic()
    packages = recipe.packages_for(platform, agent)
    try:
        logger.warning("agent %s: installing %s, once", agent, ", ".join(packages))
        if lock:
            await asyncio.to_thread(locks.write, lock, recipe, platform, new)
        for command in recipe.commands(platform, packages, new, locked=bool(lock)):
            await _run(agent, command, new)
        folder = await asyncio.to_thread(_name_by_content, new, agent)
    finally:
        await asyncio.to_thread(shutil.rmtree, new, ignore_errors=True)
    logger.warning("agent %s: %d MB in %.0f s, in %s", agent, size(folder) >> 20, time.monotonic() - began, folder)
    return folder


async def _run(agent: str, command: Sequence[str], folder: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        what = f"agent {agent} can't be installed: there is no {command[0]} here; install it (Node.js brings npm)"
        raise InfraError(Failure.ENVIRONMENT, what, permanent=True) from None
    reporting = asyncio.create_task(_log_progress(agent, folder))
    try:
        async with ending(process), asyncio.timeout(_INSTALL_S):
            output, _ = await process.communicate()
    finally:
        reporting.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        shown = output.decode(errors="replace").strip()[-_SHOWN:]
        what = f"agent {agent} can't be installed: {' '.join(command[:4])} said: {shown}"
        raise InfraError(Failure.ENVIRONMENT, what, permanent=_NO_VERSION.search(output) is not None)


async def _log_progress(agent: str, folder: Path) -> None:
    while True:
        await asyncio.sleep(_REMIND_S)
        logger.warning("agent %s: %d MB so far", agent, await asyncio.to_thread(size, folder) >> 20)


@contextlib.asynccontextmanager
async def _lock_installations(root: Path) -> AsyncIterator[None]:
    """Hold other installations off, also those of other processes; their partial remains are removed."""
    lock = await asyncio.to_thread(_lock, root)
    try:
        yield
    finally:
        lock.close()


def _lock(root: Path) -> IO[str]:
    root.mkdir(parents=True, exist_ok=True)
    lock = (root / ".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for left in root.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)
    return lock


def _name_by_content(folder: Path, agent: str) -> Path:
    """Make a tree readable for everybody, and give it the name of its content. Returns its new place."""
    total = hashlib.sha256()
    folder.chmod(0o755)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            total.update(f"{name} -> {path.readlink()}\n".encode())
            continue
        mode = path.stat().st_mode
        path.chmod(stat.S_IMODE(mode) | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
        if path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{name} {mode & 0o100:o} {content}\n".encode())
    settled = folder.parent / f"{agent}-{total.hexdigest()[:16]}"
    if not settled.exists():
        folder.rename(settled)
    return settled


def size(folder: Path) -> int:
    """Return the bytes of a tree's files, as far as they are there all the time."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            found += path.lstat().st_size
    return found
