"""Downloads of published sets of tasks."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from huggingface_hub import snapshot_download

from atropos_agent.hub import unavailable_reason
from envs.records.disk import replace_file
from envs.tasks.adapters.sets import SETS, PublishedSet
from envs.tasks.harbor import directory_digest
from envs.types import BadTask

SOURCE = "source.json"
"""The file in a folder of tasks that says where they come from."""
_ELSEWHERE = "where it can be reached, download it and give its file or folder with --from"


def download(found: PublishedSet, cache: Path) -> Path:
    """Return a folder with the set's files; an interrupted download goes on. Raises BadTask.

    cache: for checkouts of git; datasets are in huggingface_hub's own."""
    if "://" in found.place:
        return _checkout(found, cache / found.revision)
    away = unavailable_reason()
    try:
        return Path(
            snapshot_download(
                found.place,
                repo_type="dataset",
                revision=found.revision,
                allow_patterns=list(found.files),
                local_files_only=away is not None,
            )
        )
    except (OSError, ValueError) as error:  # the hub's errors, also of a full disk or a wrong revision
        reason = away or str(error).strip().splitlines()[0]
        raise BadTask(f"{found.place} can't be downloaded from the Hugging Face hub: {reason}; {_ELSEWHERE}") from error


def _checkout(found: PublishedSet, folder: Path) -> Path:
    """Return the repository at its commit."""
    done = folder.with_suffix(".done")
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for words in (
            ["init", "-q"],
            ["fetch", "-q", "--depth", "1", found.place, found.revision],
            ["checkout", "-q", "FETCH_HEAD"],
        ):
            try:
                subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
            except FileNotFoundError:
                raise BadTask(f"{found.place} needs git; install it, or {_ELSEWHERE}") from None
            except subprocess.CalledProcessError as error:
                reason = error.stderr.strip().splitlines()[-1:] or [f"git {words[0]} failed"]
                raise BadTask(f"{found.place} can't be downloaded: {reason[0]}; {_ELSEWHERE}") from error
        done.touch()
    return folder


def write_origin(out: Path, name: str, given: Path | None) -> None:
    """Note in `out` where its tasks come from. given: the user's own copy, noted by its content.

    Raises BadTask if `out` holds another revision or set."""
    found = SETS[name]
    what = {"revision": found.revision} if given is None else {"sha256": _content_digest(given)}
    source = json.dumps({"set": name, "place": found.place, **what})
    path = out / SOURCE
    if path.is_file() and (before := path.read_text(encoding="utf-8").strip()) != source:
        raise BadTask(f"{out} holds other tasks ({before}); give another --out, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{source}\n".encode())


def _content_digest(path: Path) -> str:
    """Return the sha256 of a file or folder."""
    if path.is_dir():
        return directory_digest(path)
    if not path.is_file():
        raise BadTask(f"{path} is neither a file nor a folder")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
