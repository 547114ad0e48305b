"""`tasks shell`: a shell in a task's sandbox as its agent gets it, and a verdict on what was done there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envs.checking.manifest import NAME, as_checked, read_manifest
from envs.judging.begin import begin
from envs.judging.changes import Changes, collect_changes
from envs.judging.prepare import with_door
from envs.judging.reports.receiver import Receiver
from envs.judging.run_tests import apply_changes
from envs.judging.saved_changes import unpack_changes
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.steps import parts, set_up
from envs.judging.verifier import judge, judge_in_place
from envs.options.reading import read_options
from envs.records.read import read_rollouts
from envs.records.tables import Sheet, make_console
from envs.running.stopping import run_to_end
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.swe.daemons import backend_options, backend_problems
from envs.swe.source import default_limits, judge_model, with_judge
from envs.tasks.harbor import find_task
from envs.types import BadTask, InfraError, Task, Verdict
from sandboxes.interactive import run_shell
from sandboxes.log import without_control
from sandboxes.naming import did_you_mean
from sandboxes.plurals import plural
from sandboxes.registry import load_backend


def shell_command(options: argparse.Namespace) -> int:
    """Open the shell. Returns its exit status; with --judge 0 for a reward of 1, and else 1. Raises BadTask,
    UsageError, SandboxError."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        raise BadTask("stdin, stdout or stderr is closed; the shell needs them, if only as /dev/null")
    given = [f"--env.hosts={options.hosts}"] if options.hosts else []
    config: SWEEnvConfig = read_options(SWEEnvConfig, [*options.model, *given]).env
    try:
        for problem in backend_problems(config):
            raise problem
        task = _find_task(options, config)
        work = _saved_changes(options.rollout, task) if options.rollout else Changes()
        return run_to_end(_open_shell(task, work, config, judged=options.judge))
    except (InfraError, ValueError) as error:
        raise BadTask(str(error)) from error


def _find_task(options: argparse.Namespace, config: SWEEnvConfig) -> Task:
    """Return the task as a run has it: what is known of its tests is asked of everybody. Raises BadTask."""
    root = STARTER if options.folder == "starter" else Path(options.folder).expanduser()
    task = find_task(root, options.id, default_limits(config.default_network))
    if not options.judge:
        return task
    (task,) = with_judge([task], judge_model(config.judge, config.judge_model, config.judge_key))
    path = config.manifest or root / NAME
    one = read_manifest(path).get(task.id) if config.manifest or path.is_file() else None
    if one is not None and one.ok and one.digest == task.digest:
        return as_checked(task, one)
    return task


def _saved_changes(place: Path, task: Task) -> Changes:
    """Return the changes of a saved rollout, RUN/ID. Raises BadTask and NotSaved."""
    if not any(place.parent.glob("rollouts*.jsonl")):
        raise BadTask(f"{place.parent} holds no rollouts; give --rollout RUN/ID, with the directory of a run")
    ids = []
    for saved in read_rollouts(place.parent):
        ids.append(saved.id)
        if saved.id == place.name:
            break
    else:
        raise BadTask(f"{place.parent} holds no rollout {place.name}{did_you_mean(place.name, ids)}")
    if saved.task_id != task.id:
        raise BadTask(f"rollout {saved.id} is of task {saved.task_id}, not {task.id}")
    if not saved.work:
        raise BadTask(f"the run kept nothing of what the agent of rollout {saved.id} made (--env.keep_work_mb)")
    changes = unpack_changes(saved.work[0])
    if changes.problem is not None:
        raise BadTask(f"the work of rollout {saved.id} was not kept: {changes.problem}")
    counts = [f"{len(getattr(changes, name))} {name}" for name in ("added", "changed", "deleted")]
    left_out = len(changes.withheld) + len(changes.dropped)
    _tell(
        f"with the work of rollout {saved.id}: {', '.join(counts)}"
        + (f", paths elsewhere in {len(changes.elsewhere)}" if changes.elsewhere else "")
        + (f"; {plural(left_out, 'path')} of its own stayed as in the image" if left_out else "")
        + ("; the task has changed since" if saved.digest and saved.digest != task.digest else "")
    )
    return changes


async def _open_shell(task: Task, work: Changes, config: SWEEnvConfig, *, judged: bool) -> int:
    step = parts(task)[0]
    async with load_backend(config.sandbox, **backend_options(config)) as backend:
        image = await backend.ensure_image(task.image, task.context)
        spec, receiver = agent_spec(task, image), Receiver()
        if step.hidden.in_place:
            spec = with_door(spec, lambda: receiver)
        async with backend.open(spec) as sandbox:
            await begin(sandbox, task)
            problem = await set_up(sandbox, task.steps[0]) if task.steps else None
            problem = problem or await apply_changes(sandbox, work, task.user)
            if problem is not None:
                raise BadTask(problem)
            first = f", at the first of its {len(task.steps)} steps, {task.steps[0].name}" if task.steps else ""
            _tell(f"task {task.id}{first}: a shell in {sandbox.workdir} of {image}; `exit` ends it")
            status = await run_shell(sandbox)
            if not judged:
                return status
            if step.hidden.in_place:
                return _show(await judge_in_place(sandbox, step, receiver))
            start = await StartTrees(backend).get(step, image)
            changes = await collect_changes(sandbox, start, step.hidden)
        return _show(await judge(backend, step, image, changes))


def _tell(text: str) -> None:
    print(without_control(text), file=sys.stderr)


def _show(verdict: Verdict) -> int:
    """Print a verdict, and return the command's exit code."""
    console, table = make_console(), Sheet("test", "status")
    for name, status in verdict.tests.items():
        table.add(name, status)
    console.print(f"reward {verdict.reward:g}: {without_control(verdict.explanation)}")
    if verdict.tests:
        console.print(table)
    return 0 if verdict.solved else 1
