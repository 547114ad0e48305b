"""The tasks of a run: from folders of tasks or the starter pack, and the selection for training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from envs.judging.manifest import NAME as MANIFEST
from envs.judging.watched_tasks import select
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.tasks.harbor import load_tasks
from envs.tasks.selection import checked, of_use, shard, solved_shares, split, tagged
from envs.types import BadTasks, Task

logger = logging.getLogger(__name__)


def load_parts(config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the tasks to train on and those to evaluate on. Raises BadTask."""
    tasks = load_source(config.tasks, config.manifest, config.bad_tasks)
    others = load_source(config.eval_tasks, None, config.bad_tasks) if config.eval_tasks else tasks
    if config.eval_share and not config.eval_tasks:
        tasks, others = split(tasks, config.eval_share, config.seed)
    chosen = tagged(tasks, config.tags, "--env.tags", without=config.skip_tags)
    train = shard(select(chosen, config.unwatched), config.shard, config.seed)
    evaluate = tagged(others, config.eval_tags, "--env.eval_tags", without=config.skip_tags)
    evaluate = shard(evaluate, config.shard, config.seed, least=0)
    if config.difficulty_from:
        train = of_use(train, solved_shares(config.difficulty_from), config.difficulty_rollouts)
    return train, evaluate


def load_source(source: str, manifest: Path | None, bad: str) -> list[Task]:
    """Return the sound tasks of a folder, or of the starter pack. bad: "skip" leaves out and lists the
    others, "refuse" raises BadTasks."""
    folder = STARTER if source == "starter" else Path(source).expanduser()
    try:
        tasks = load_tasks(folder)
    except BadTasks as error:
        tasks = usable_of(error, bad)
    return checked(tasks, folder, manifest)


def usable_of(error: BadTasks, bad: str) -> list[Task]:
    """Return the usable tasks, and list the others. Raises the error if none is left, or if
    bad is "refuse"."""
    if bad == "refuse" or not error.usable:
        raise error
    logger.warning("%s\nThe %d others are used", error, len(error.usable))
    return error.usable


def warn_of_unchecked(config: SWEEnvConfig) -> None:
    """Name the command for checking tasks not yet listed as sound in a manifest."""
    for folder in unchecked(config.tasks, config.manifest, config.eval_tasks):
        logger.warning(
            "%s has no manifest, so nobody has seen that its tasks can be solved, or not without work: "
            "`python -m envs.swe tasks check %s` makes one",
            *(folder, folder),
        )


def unchecked(tasks: str, manifest: Path | None, eval_tasks: str) -> list[str]:
    """Return the folders with tasks not listed as sound in a manifest. The starter pack is checked here."""
    given = [*([] if manifest else [tasks]), *([eval_tasks] if eval_tasks else [])]
    folders = [one for one in dict.fromkeys(given) if one != "starter"]
    return [one for one in folders if not (Path(one).expanduser() / MANIFEST).is_file()]
