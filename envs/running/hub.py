"""A run as a dataset for the Hugging Face hub: a folder with its tables, what was checked of its tasks, and its card.

`datasets.load_dataset(FOLDER, "rollouts")` reads the folder as it stands. Needs pyarrow, of the extra `datasets`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from envs.checking.manifest import NAME, CheckResult, read_manifest
from envs.records.exporting import FRAMES
from envs.records.provenance import FILE_NAME, read_starts
from envs.records.read import SavedRollout, read_rollouts
from envs.types import BadTask
from sandboxes.plurals import plural

_CHECK_COLUMNS = (
    "task_id",
    "digest",
    "image",
    "ok",
    "problem",
    "flaky",
    "watched",
    "reference",
    "nothing",
    "notes",
    "blind_spots",
)
"""Columns of a task's check: no record of its tests' values, and no patch of an attack."""
_TABLES = {
    "rollouts": "a rollout each: task, messages, reward, verdict, the verifier's words, sampling",
    "turns": "a turn each: reply, calls, results, times",
    "rows": "a row each, in token ids: `tokens`, `masked_tokens` (-100 where not trained), `logprobs`",
    "tasks": "a task each, as `tasks check` found it: content hash, rewards of the reference and of doing nothing",
}


def write(run: Path, out: Path) -> str:
    """Write a run as a dataset. Returns its tables' names. Raises ModuleNotFoundError, ValueError, OSError."""
    starts = read_starts(run / FILE_NAME)
    FRAMES().write_parquet(run, out / "data")
    checked = _check_results(starts[-1].get("options", {}) if starts else {})
    if checked:
        rows = ({name: getattr(one, name) for name in _CHECK_COLUMNS} for one in checked)
        FRAMES().write_table(rows, out / "data/tasks.parquet")
    names = [name for name in _TABLES if name != "tasks" or checked]
    (out / "README.md").write_text(_card(run, names, starts), encoding="utf-8")
    return ", ".join(names)


def push(folder: Path, name: str, hub: Any) -> None:
    """Upload a written dataset by `huggingface_hub.HfApi`; one that is not there yet is made private."""
    hub.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
    hub.upload_folder(repo_id=name, repo_type="dataset", folder_path=str(folder))


def _check_results(options: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Return what is known of the tasks of a run; nothing without a manifest."""
    folder = options.get("tasks")
    path = options.get("manifest") or (Path(folder).expanduser() / NAME if folder else None)
    try:
        return list(read_manifest(Path(path)).values()) if path and Path(path).is_file() else []
    except BadTask as error:
        raise ValueError(str(error)) from error


def _card(run: Path, names: Sequence[str], starts: Sequence[Mapping[str, Any]]) -> str:
    """Return the dataset's README: settings for the hub, then words."""
    configs = [{"config_name": name, "data_files": f"data/{name}.parquet"} for name in names]
    tags = ["atropos", "reinforcement-learning", "agents", "tool-use"]
    head = yaml.safe_dump({"pretty_name": run.resolve().name, "tags": tags, "configs": configs}, sort_keys=False)
    tables = "\n".join(f"| `{name}` | {_TABLES[name]} |" for name in names)
    facts = "\n".join(f"- {fact}" for fact in _facts(run, starts))
    return f"""---
{head}---

# Rollouts of {run.resolve().name}

{facts}

| `load_dataset(…, NAME)` | |
|---|---|
{tables}

A reward is the verifier's: it judged the agent's changes in a sandbox that the agent never entered. Rollouts lost to
infrastructure failures are left out. Texts are those of models and programs; secrets known to the run were replaced
before they were saved, and nobody has read the rest. This card names no licence: it depends on the tasks and on the
model. Made by atropos-agent.
"""


def _facts(run: Path, starts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    models: Counter[str] = Counter()
    rewards = 0.0
    for saved in read_rollouts(run):
        counts["rollouts"] += 1
        counts["solved"] += saved.verdict.solved
        counts["evaluating"] += saved.seat.evaluating
        counts[f"task {saved.task_id}"] += 1
        models[_model(saved)] += 1
        rewards += saved.reward.value
    tasks, made = sum(name.startswith("task ") for name in counts), counts["rollouts"]
    yield f"{plural(made, 'rollout')} of {plural(tasks, 'task')}, {counts['evaluating']} of them in evaluations"
    yield f"{counts['solved']} solved the task; the mean reward is {rewards / made if made else 0:.3f}"
    yield f"models: {', '.join(models)}"
    if starts:
        start = starts[-1]
        versions = start.get("versions") or {}
        yield f"made by `{start.get('command', '')}`, last started {str(start.get('at', ''))[:10]}"
        if versions:
            yield f"versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}"


def _model(saved: SavedRollout) -> str:
    """Return a model's name; of a folder on this machine its last part."""
    name = saved.result.conditions.model or "unnamed"
    return Path(name).name if Path(name).is_absolute() else name
