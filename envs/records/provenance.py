"""Remember the starts of a run: `run.json` in its directory, with an entry for each start.

The caller redacts secrets.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from envs.records.disk import replace_file
from sandboxes.installing import origin
from sandboxes.naming import lazy_import

logger = logging.getLogger(__name__)

_CACHED = lazy_import("huggingface_hub:try_to_load_from_cache")

FILE_NAME = "run.json"
FORMAT = 1
MAX_STARTS = 200
"""Kept starts: the first, and the last ones."""
_PACKAGES = (
    "atropos-agent",
    "atroposlib",
    "transformers",
    "tokenizers",
    "huggingface-hub",
    "pydantic",
    "aiohttp",
    "torch",
)
_GIT_S = 5.0
_SMALL = 2**20
"""Largest file of a model's folder with its content in the digest; larger ones count by name and size."""


def add_start(directory: Path, run_id: str | None, environment: str, start: Mapping[str, Any]) -> None:
    """Write a start, as of JSON, after the earlier ones. A file without readable starts is kept beside the new one.
    Raises OSError.

    run_id: None for an evaluation, also in the directory of a run.

    A start's command is serve, process or evaluate; arguments: of the process, as the system has them; options: all of
    them, the defaults too; conditions: values that a later start may change only if allowed; changed: allowed
    differences from the start before; model, tokenizer, template: name and digest, sha256, and the revision of a model
    from the hub; engines: the inference servers, each with its program's version if known; at: in UTC, ISO 8601;
    commit: of the package, None outside of a checkout.
    """
    path = directory / FILE_NAME
    there = _read(path)
    known = starts_of(there)
    if not known and path.exists():
        kept = path.replace(path.with_name(f"{path.stem}.damaged-{uuid4().hex[:6]}{path.suffix}"))
        logger.warning("%s named no start that can be read; it is kept as %s", path, kept.name)
    starts = [*known[:1], *known[1:][2 - MAX_STARTS :], start]
    document = {"format": FORMAT, "id": run_id or there.get("id"), "environment": environment, "starts": starts}
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Return the starts in a file; none without a readable file."""
    return starts_of(_read(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s can't be read (%s)", path, error)
        return {}
    return found if isinstance(found, dict) else {}


def starts_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the starts in a file's document, without those of another shape."""
    starts = document.get("starts")
    return [start for start in starts if _is_start(start)] if isinstance(starts, list) else []


def _is_start(value: Any) -> bool:
    kinds = {"options": dict, "versions": dict, "arguments": list}
    return isinstance(value, dict) and all(isinstance(value.get(name, kind()), kind) for name, kind in kinds.items())


def versions() -> dict[str, str]:
    """Return the versions of Python and of the decisive packages, if installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Describe this machine."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "processor": next(named, platform.processor()),
        "cpus": os.cpu_count(),
        "cpus_of_ours": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def commit() -> str | None:
    """Return the package's commit, with "+changes" for changed files; None outside of a checkout."""
    folder = Path(__file__).parent
    try:
        # Only where git knows this file: an environment may lie in another project's checkout.
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        found = _git(folder, "rev-parse", "HEAD")
        return f"{found}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else found
    except (OSError, subprocess.SubprocessError):
        return _installed_commit()


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_S).stdout.strip()


def _installed_commit() -> str | None:
    """Return the commit of a package installed by pip from a repository."""
    try:
        return str(origin()["vcs_info"]["commit_id"])
    except (KeyError, TypeError):
        return None


def digest_of(value: Any) -> str:
    """Return the sha256 of a value's JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_tokenizer(tokenizer: Any) -> str:
    """Return the sha256 of a tokenizer's behaviour without its chat template, or else of its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return digest_of(backend.to_str())
    return digest_of(tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else repr(type(tokenizer)))


def digest_of_model(folder: str | None) -> str | None:
    """Return the sha256 of a model's folder: names and sizes of its files, and the contents of small ones. None for a
    name without a folder on this machine, or with one that this user can't read."""
    digest = hashlib.sha256()
    try:
        if not folder or not Path(folder).is_dir():
            return None
        for path in sorted(path for path in Path(folder).iterdir() if path.is_file()):
            size = path.stat().st_size
            digest.update(f"{path.name}\0{size}\0".encode())
            if size <= _SMALL:
                digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


def revision_of_model(name: str | None) -> str | None:
    """Return a model's commit in this machine's Hugging Face cache; None if the cache has no such name."""
    try:
        found = _CACHED()(name, "config.json") if name and not Path(name).exists() else None
    except (OSError, ValueError):  # it is no name of a model there
        return None
    return Path(found).parent.name if isinstance(found, str) else None
