"""Terminal-bench 1 task directories (`task.yaml`).

| file or field | becomes |
|---|---|
| `task.yaml` `instruction`, in older tasks `descriptions` | the instruction |
| `difficulty`, `category`, `tags` | `[metadata]` |
| `max_agent_timeout_sec`, `max_test_timeout_sec` | `[agent] timeout_sec` (360), `[verifier] timeout_sec` (60) |
| `Dockerfile` and the files beside it | `environment/`; `task.yaml`, tests, solution, run-tests.sh stay out |
| those of them that the Dockerfile copies | empty files; the verifier puts the tests in their place. Files beside the |
| | tests are shown if the Dockerfile names them |
| `docker-compose.yaml` | `environment/`; the Dockerfile copies the task's own files in its `volumes` |
| `run-tests.sh`, `tests/` | `tests/`, run with `TEST_DIR=/tests` |
| `solution.sh`, or `solution.yaml` (commands) | `solution/solve.sh` |
| `author_*`, `run_tests_in_same_shell`, `expert_time_estimate_min`, ... | not used |

A reward needs exit code 0 of run-tests.sh, and pytest seen to run at least one test, all of them passed.
Terminal-bench counts SKIPPED and XFAIL as passed; here they are not. With `parser_name: swebench` it needs PASSED
between the two lines that the script prints about its result, as the last such word, because tested code may print the
same before; and the tests that the reference passes (`tasks check`). Other parsers are refused.
run-tests.sh often downloads uv and pytest: if the image has pytest, `uv run pytest` and `uvx pytest` are that one.
Paths outside of the working directory are judged too if the tests name them (`envs.tasks.named_paths`). The verifier
has the network, the agent has it too, as in terminal-bench.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from envs.judging.decoys.node_ids import is_test_module
from envs.tasks.adapters.directory import INSIDE, check_separate, convert_each, toml_of, write_task
from envs.tasks.compose import NAME as COMPOSE
from envs.tasks.compose import read_compose, read_yaml
from envs.tasks.task_folders import check_links
from envs.types import BadTask, Task
from sandboxes.docker.images.dockerfile import Dockerfile, DockerfileError

_PARSERS = {
    "pytest": "bash /tests/run-tests.sh",
    "swebench": (
        "bash /tests/run-tests.sh | tee /dev/stderr |\n"
        "    sed -n '/^SWEBench results starts here/,/^SWEBench results ends here/p' |\n"
        "    grep -xE 'PASSED|FAILED' | tail -n 1 | grep -x PASSED > /dev/null"
    ),
}
"""The commands that run a task's tests and succeed if they pass, by `parser_name`."""
_HIDDEN = ("task.yaml", "tests", "run-tests.sh", "solution.sh", "solution.yaml")


def load(folder: Path, out: Path) -> list[Task]:
    """Convert a task directory, or each one below `folder`, into directories below `out`.

    Raises one BadTasks with all unusable ones."""
    found: list[Path] = []
    for one in sorted(path.parent for path in folder.rglob("task.yaml")):
        if not found or not one.is_relative_to(found[-1]):  # files of a task are its own
            found.append(one)
    if not found:
        raise BadTask(f"{folder} holds no task.yaml; a terminal-bench task is a folder with task.yaml and tests/")
    check_separate(folder, out)
    named = ((f"task {one.resolve().name}", partial(_convert, one, folder)) for one in found)
    return convert_each(named, out, "task", str(folder))


def _convert(folder: Path, root: Path, out: Path) -> Path:
    check_links(folder, root)
    name = folder.resolve().name
    table = read_yaml(folder / "task.yaml", name)
    if not isinstance(table, dict):
        raise BadTask(f"task {name}: task.yaml must be a table of fields")
    instruction = _read_instruction(table)
    if not isinstance(instruction, str) or not instruction.strip():
        raise BadTask(f"task {name}: task.yaml: instruction is missing or empty")
    parser = table.get("parser_name", "pytest")
    if not isinstance(parser, str) or parser not in _PARSERS:
        raise BadTask(f"task {name}: task.yaml: parser_name {parser!r} isn't supported; {' and '.join(_PARSERS)} are")
    for needed in ("run-tests.sh", "tests"):
        if not (folder / needed).exists():
            raise BadTask(f"task {name}: {needed} is missing")
    environment, places = _make_environment(folder, name)
    script, run = (INSIDE / "terminal_bench.sh").read_text(encoding="utf-8"), _PARSERS[parser]
    files: dict[str, str | bytes | Path] = {
        **environment,
        "task.toml": _make_task_toml(table, name),
        "instruction.md": instruction.strip() + "\n",
        "tests": folder / "tests",
        "tests/run-tests.sh": folder / "run-tests.sh",
        "tests/test.sh": script.replace("@PLACES@", " ".join(map(shlex.quote, places))).replace("@RUN@", run),
    }
    if (folder / "solution.sh").is_file():
        files["solution/solve.sh"] = folder / "solution.sh"
    elif (folder / "solution.yaml").is_file():
        files["solution/solve.sh"] = _read_commands(folder / "solution.yaml", name)
    return write_task(out, name, files)


def _read_instruction(table: Mapping[str, Any]) -> Any:
    """Return the instruction. Older tasks have it in `descriptions`, by the key that `instruction` names, or "base"."""
    listed = table.get("descriptions")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    texts = {str(one.get("key")): one.get("description") for one in entries}
    given = table.get("instruction")
    return texts.get(str(given or "base").strip(), given)


def _make_environment(folder: Path, name: str) -> tuple[dict[str, str | bytes | Path], list[str]]:
    """Return the files of the image, and where the verifier puts tests: a name in /tests and a place, by turns. Raises
    BadTask."""
    files: dict[str, str | bytes | Path] = {}
    service = _read_service(folder, name)
    build = service.pop("build", None) or {}
    build = {**build} if isinstance(build, dict) else {"context": str(build)}
    context = folder / str(build.pop("context", "."))
    file = context / str(build.pop("dockerfile", "Dockerfile"))
    if not all(path.resolve().is_relative_to(folder.resolve()) for path in (context, file)):
        raise BadTask(f"task {name}: docker-compose.yaml: build: {file} is out of the task's folder")
    if not file.is_file():
        raise BadTask(f"task {name}: {file.relative_to(folder)} is missing")
    for path in sorted(context.iterdir()):
        if path.name not in (*_HIDDEN, COMPOSE) or path.parent != folder:
            files[f"environment/{path.name}"] = path
    text = file.read_text(encoding="utf-8-sig", errors="replace").rstrip("\n") + "\n"
    text += "".join(f"COPY {source} {place}/\n" for source, place in _take_own(service, context))
    files["environment/Dockerfile"] = text
    places: list[str] = []
    for source, place in _copied(text, name):
        if source == ".":
            places += [".", posixpath.join(place, "tests")]
        elif context.resolve() == folder.resolve() and source.partition("/")[0] in _HIDDEN:
            for one in [*folder.glob(source), *folder.glob(f"{source}/**/*")]:
                if one.is_file():
                    used = one == folder / source or one.name in text.replace(source, "")
                    shown = source.startswith("tests") and used and not is_test_module(one.name)
                    files[f"environment/{one.relative_to(folder).as_posix()}"] = one if shown else b""
            if source.startswith("tests"):
                places += [posixpath.relpath(source, "tests"), place]
    if service:
        table = {**service, **({"build": build} if build else {})}
        files[f"environment/{COMPOSE}"] = yaml.safe_dump({"services": {"main": table}})
    return files, places


def _read_service(folder: Path, name: str) -> dict[str, Any]:
    """Return the settings of the task's container. Raises BadTask for several containers."""
    path = folder / COMPOSE
    table = (read_yaml(path, name) or {}) if path.is_file() else {}
    services = table.get("services") or {} if isinstance(table, dict) else None
    if (
        not isinstance(services, dict)
        or len(services) > 1
        or not all(isinstance(one, dict) for one in services.values())
    ):
        read_compose(folder, name)
    return {**next(iter((services or {}).values()), {})}


def _take_own(service: dict[str, Any], context: Path) -> Iterator[tuple[str, str]]:
    """Take the task's own files out of a service's volumes, and yield each, and its place."""
    volumes = service.pop("volumes", None) or []
    left = []
    for one in volumes if isinstance(volumes, list) else [volumes]:
        source, _, place = str(one).partition(":")
        if isinstance(one, dict):
            source, place = str(one.get("source", "")), str(one.get("target", ""))
        plain = posixpath.normpath(source)
        if source.startswith(".") and not plain.startswith("..") and (context / plain).exists():
            yield plain, place.partition(":")[0].rstrip("/")
        else:
            left.append(one)
    if left:
        service["volumes"] = left


def _copied(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield what a Dockerfile copies from its folder, and where: a place with "/" at its end is a folder. name: the
    task's. Raises BadTask."""
    try:
        instructions = Dockerfile.read(text).instructions
    except DockerfileError as error:
        raise BadTask(f"task {name}: Dockerfile: {error}") from None
    workdir = "/"
    for one in instructions:
        if one.keyword in ("FROM", "WORKDIR"):
            workdir = posixpath.join(workdir, one.rest.strip("\"'")) if one.keyword == "WORKDIR" else "/"
        elif one.keyword in ("COPY", "ADD") and "from" not in one.options:
            *sources, place = [word.strip("\"',[]") for word in one.rest.split()] or [""]
            end = "/" if place.endswith(("/", ".")) else ""
            for source in sources:
                yield posixpath.normpath(source), posixpath.normpath(posixpath.join(workdir, place)).rstrip("/") + end


def _make_task_toml(table: Mapping[str, Any], name: str) -> str:
    seconds = {}
    for field, default in (("max_agent_timeout_sec", 360.0), ("max_test_timeout_sec", 60.0)):
        value = table.get(field, default)
        if type(value) not in (int, float) or not value > 0:
            raise BadTask(f"task {name}: task.yaml: {field} must be a number of seconds, not {value!r}")
        seconds[field] = value
    tags = table.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadTask(f"task {name}: task.yaml: tags must be a list of texts")
    labels = {key: str(table[key]) for key in ("difficulty", "category") if table.get(key)}
    metadata = "".join(f"{key} = {toml_of(value)}\n" for key, value in labels.items())
    return (
        f'schema_version = "1.4"\n\n[metadata]\nkind = "terminal-bench"\ntags = {toml_of(tags)}\n{metadata}\n'
        f"[agent]\ntimeout_sec = {seconds['max_agent_timeout_sec']}\n\n"
        f"[verifier]\ntimeout_sec = {seconds['max_test_timeout_sec']}\n\n"
        '[environment]\nnetwork_mode = "public"\nmemory_mb = 2048\n'
    )


def _read_commands(path: Path, name: str) -> str:
    steps = read_yaml(path, name)
    commands = [step.get("command") if isinstance(step, dict) else None for step in steps or []]
    if not commands or not all(isinstance(command, str) for command in commands):
        raise BadTask(f"task {name}: {path.name} must be a list of entries with a command")
    return "#!/bin/bash\n" + "".join(f"{command}\n" for command in commands)
