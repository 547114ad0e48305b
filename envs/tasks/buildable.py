"""Whether a Docker daemon can make the images of tasks, as far as known before a build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.types import Task
from sandboxes.base import ImageMissing
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.docker.images.buildkit import Builder
from sandboxes.docker.images.dockerfile import Dockerfile

_SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The known facts of a Docker daemon. workdirs: of its images, by their names in the tasks."""

    builder: Builder
    workdirs: Mapping[str, str]


async def fetch_daemon_facts(client: DaemonClient, tasks: Sequence[Task], base_image: str | None) -> DaemonFacts:
    """Ask a Docker daemon for the facts about these tasks. base_image: as in `ImageStore`. Raises SandboxError."""
    workdirs = {_SCRATCH: ""}
    for image in sorted({image for task in tasks if (image := _workdir_image(task, base_image))} - {_SCRATCH}):
        try:
            async with daemon_errors(f"look for image {image}"):
                found = await client.images.inspect(image)
        except ImageMissing:
            continue
        workdirs[image] = str((found.get("Config") or {}).get("WorkingDir") or "")
    return DaemonFacts(await Builder.of(client), workdirs)


def unusable_reason(task: Task, known: DaemonFacts, base_image: str | None) -> str | None:
    """Return why a task can't be used with a Docker daemon, and the remedy; None without a known reason."""
    for context in contexts(task):
        why = known.builder.find_obstacle(_dockerfile(context))
        if why is not None:
            return f"task {task.id}: {context.name}/Dockerfile: {why}"
    image = _workdir_image(task, base_image)
    if image is not None and known.workdirs.get(image, image).strip("/") == "":
        return (
            f"task {task.id}: its working directory is /, as neither [environment] workdir nor WORKDIR in a Dockerfile "
            f"names one, nor has {image} one; name the source tree"
        )
    return None


def contexts(task: Task, *, unnamed: bool = False) -> Iterator[Path]:
    """Yield the folders with a Dockerfile for the task's images. unnamed: without those beside which an image is
    named."""
    owns = [hidden.own for hidden in (task.hidden, *(step.hidden for step in task.steps)) if hidden.own]
    images = {task.context: task.image} | {own.context: own.image for own in owns}
    for context, image in images.items():
        if context is not None and not (unnamed and image) and (context / "Dockerfile").is_file():
            yield context


def _workdir_image(task: Task, base_image: str | None) -> str | None:
    """Return the image that sets the task's working directory; None if the task names it, or it is not known."""
    judged = [step.hidden for step in task.steps] or [task.hidden]
    if task.workdir is not None or all(hidden.graded for hidden in judged):  # then named paths are judged
        return None
    if task.context is None or not (task.context / "Dockerfile").is_file():
        return task.image
    return _dockerfile(task.context).workdir_of(base_image)


def _dockerfile(context: Path) -> Dockerfile:
    return Dockerfile.read((context / "Dockerfile").read_text(encoding="utf-8"))
