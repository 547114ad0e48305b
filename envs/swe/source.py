"""The tasks of a run: from folders of tasks or the starter pack, and the selection for training."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from envs.checking.manifest import NAME as MANIFEST
from envs.judging.judge_model import Bench, JudgeRefuses
from envs.judging.steps import parts
from envs.judging.watched_tasks import select
from envs.messages import SWE, replace_command
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.tasks.harbor import load_tasks
from envs.tasks.selection import keep_sound, keep_useful, select_tagged, shard, solved_shares, split
from envs.types import BadTask, BadTasks, JudgeModel, Task
from sandboxes.base import Limits

logger = logging.getLogger(__name__)


def load_parts(config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the tasks to train on and those to evaluate on. Raises BadTask."""
    judge = judge_model(config.judge, config.judge_model, config.judge_key, config.judge_requests)
    how = config.bad_tasks, config.default_network, judge
    tasks = load_source(config.tasks, config.manifest, *how)
    others = load_source(config.eval_tasks, None, *how) if config.eval_tasks else tasks
    if config.eval_share and not config.eval_tasks:
        tasks, others = split(tasks, config.eval_share, config.seed)
    chosen = select_tagged(tasks, config.tags, "--env.tags", without=config.skip_tags)
    train = shard(select(chosen, config.unwatched), config.shard, config.seed)
    evaluate = select_tagged(others, config.eval_tags, "--env.eval_tags", without=config.skip_tags)
    evaluate = shard(evaluate, config.shard, config.seed, least=0)
    if config.difficulty_from:
        train = keep_useful(train, solved_shares(config.difficulty_from), config.difficulty_rollouts)
    return train, evaluate


def load_source(source: str, manifest: Path | None, bad: str, network: str, judge: JudgeModel | None) -> list[Task]:
    """Return the sound tasks of a folder, or of the starter pack. bad: "skip" leaves out and lists the
    others, "refuse" raises BadTasks. network: of the tasks that name none. judge: of the tasks that ask one."""
    folder = STARTER if source == "starter" else Path(source).expanduser()
    try:
        tasks = load_tasks(folder, default_limits(network))
    except BadTasks as error:
        tasks = select_usable(error, bad)
    try:
        tasks = with_judge(tasks, judge)
    except BadTasks as error:
        tasks = select_usable(error, bad)
    return keep_sound(tasks, folder, manifest)


def default_limits(network: str | None) -> Limits:
    """Return the limits that tasks leave open. network: as `--env.default_network`; None if it is not given."""
    return Limits() if network is None else Limits(network=network == "public")


def judge_model(url: str, name: str, key: str, requests: int = 32) -> JudgeModel | None:
    """Return the judge of a run; None without a `url`. key: the name of an environment variable.

    Raises BadTask if there is no such variable."""
    if not url:
        return None
    if key and key not in os.environ:
        raise BadTask(f"--env.judge_key {key}: the environment has no such variable; it names the judge's key")
    return JudgeModel(url.rstrip("/"), name, os.environ.get(key, ""), requests)


async def judge_problems(config: SWEEnvConfig) -> list[Exception]:
    """Return what keeps the judge of the options from answering, apart from its being away. `load_parts` reports a
    missing key."""
    try:
        model = judge_model(config.judge, config.judge_model, config.judge_key)
        if model is None:
            return []
        async with Bench(model) as bench:
            await bench.examine()
    except BadTask:
        return []
    except JudgeRefuses as error:
        return [ValueError(f"--env.judge: {error}; see --env.judge_model and --env.judge_key")]
    return []


def with_judge(tasks: Sequence[Task], judge: JudgeModel | None) -> list[Task]:
    """Return the tasks, with the judge in those that ask one. Raises BadTasks if they ask and there is none."""
    asking = {task.id for task in tasks if any(part.hidden.asks_judge for part in parts(task))}
    if asking and judge is None:
        usable = [task for task in tasks if task.id not in asking]
        remedy = "its test.sh asks a model to judge; name one with --env.judge URL (tasks check: --judge URL)"
        raise BadTasks("task", [f"task {name}: {remedy}" for name in sorted(asking)], usable)
    return [_set_judge(task, judge) if task.id in asking else task for task in tasks]


def _set_judge(task: Task, judge: JudgeModel | None) -> Task:
    steps = [replace(step, hidden=replace(step.hidden, judge=judge)) for step in task.steps]
    return replace(task, hidden=replace(task.hidden, judge=judge), steps=steps)


def select_usable(error: BadTasks, bad: str) -> list[Task]:
    """Return the usable tasks, and list the others. Raises the error if none is left, or if
    bad is "refuse"."""
    if bad == "refuse" or not error.usable:
        raise error
    logger.warning("%s\nThe others are used (%d)", error, len(error.usable))
    return error.usable


def warn_unchecked(config: SWEEnvConfig) -> None:
    """Name the command for checking tasks not yet listed as sound in a manifest."""
    for folder in unchecked_folders(config.tasks, config.manifest, config.eval_tasks):
        logger.warning(
            "%s has no manifest, so nobody has seen that its tasks can be solved, or not without work: "
            "`%s tasks check %s` makes one",
            *(folder, replace_command(SWE), folder),
        )


def unchecked_folders(tasks: str, manifest: Path | None, eval_tasks: str) -> list[str]:
    """Return the folders with tasks not listed as sound in a manifest. The starter pack is checked here."""
    given = [*([] if manifest else [tasks]), *([eval_tasks] if eval_tasks else [])]
    folders = [one for one in dict.fromkeys(given) if one != "starter"]
    return [one for one in folders if not (Path(one).expanduser() / MANIFEST).is_file()]
