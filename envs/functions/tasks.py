"""Tasks as scripts have them: texts, mappings or `Task`s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from envs.tasks.selection import check_ids
from envs.types import BadTask, Task

Tasks = Iterable[Task | str | Mapping[str, Any]] | Callable[[], Iterable[Task | str | Mapping[str, Any]]]
"""Tasks, or a function that returns them."""

_FIELDS = frozenset(field.name for field in fields(Task))


def read_tasks(given: Tasks) -> Sequence[Task]:
    """Return tasks as `Task`s. A text is an instruction. A mapping holds fields of `Task`; its other entries
    become the task's `metadata`. Without ids they are numbered.

    Raises BadTask with the place."""
    given = given() if callable(given) else given
    if isinstance(given, Mapping):
        raise BadTask(
            f"the tasks are a {type(given).__name__} with {_list_names(given)}; give one of its entries, or a list"
        )
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadTask(f"the tasks are {given!r:.80}, which holds none; give a list, or a function that reads them")
    found = [_read_task(one, place) for place, one in enumerate(given)]
    if not found:
        raise BadTask("there are no tasks; give at least one")
    check_ids(found)
    return found


def _read_task(one: object, place: int) -> Task:
    if isinstance(one, Task):
        return one
    if isinstance(one, str):
        return Task(f"task-{place}", one)
    if not isinstance(one, Mapping):
        raise BadTask(f"tasks[{place}] is a {type(one).__name__}; give a Task, a text, or a mapping")
    if "instruction" not in one:
        raise BadTask(
            f"tasks[{place}] has no instruction, but {_list_names(one)}; rename the one that tells the model what to do"
        )
    if not isinstance(one["instruction"], str):
        raise BadTask(f"tasks[{place}].instruction: {one['instruction']!r} is no text; tell the model what to do")
    own = {name: value for name, value in one.items() if name in _FIELDS}
    more = {name: value for name, value in one.items() if name not in _FIELDS}
    about = own.get("metadata") or {}
    own["metadata"] = {**about, **more} if isinstance(about, Mapping) else about
    return Task(**{**own, "id": str(own.get("id", f"task-{place}"))})


def _list_names(entries: Mapping[Any, Any]) -> str:
    """Name the entries, or the first of them."""
    names = [str(name) for name in entries]
    return ", ".join([*names[:8], *(["…"] if len(names) > 8 else [])]) or "nothing"
