"""A Harbor task's files on disk, and the verifier's share of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from envs.judging.path_rules import refusal
from envs.tasks.compose import NAME, ContainerSettings, read_compose
from envs.tasks.named_paths import named_paths
from envs.tasks.task_toml import Artifact, Config, Environment, NetworkSection, Verifier
from envs.types import BadTask, Collect, HealthCheck, Hidden, Service, VerifierImage
from sandboxes.base import Limits
from sandboxes.docker.images.dockerfile import Dockerfile, DockerfileError
from tools.mcp.servers import MCPServer, parse_servers

LAYOUT = (
    "a task directory holds task.toml, instruction.md, environment/Dockerfile (or [environment] docker_image), "
    "tests/test.sh and solution/solve.sh"
)
_DOCKERFILE = "Dockerfile"
_PUBLISHED = "/logs/artifacts"
"""The agent's folder for a separate verifier, in addition to the task's own paths."""
_OF_JUDGES = frozenset(
    f"{provider}_{name}" for provider in ("OPENAI", "ANTHROPIC") for name in ("API_KEY", "BASE_URL", "API_BASE")
)
"""Variables for clients of models: the run's judge gives their values."""
_FILLED_LATER = "judge"
_JUDGE_TABLE = re.compile(r"^\s*\[judge\]", re.MULTILINE)
"""In a file of Reward Kit's."""
WAITING = ("sh", "-c", "sleep infinity")
"""Harbor's command for a container."""
_CANARY = re.compile(r"(?:<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """A task directory.

    defaults: limits for everything it leaves open. remarks: about what is left out, while it is read.
    """

    directory: Path
    config: Config
    defaults: Limits
    remarks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.directory.name

    def bad_task(self, what: str) -> BadTask:
        """Return the error with the task's name."""
        return BadTask(f"task {self.name}: {what}")

    def instruction(self, path: str = "instruction.md") -> str:
        """Return the instruction for the agent, without the canary lines before it. Raises BadTask."""
        lines = read_text(self.directory, path).strip().splitlines()
        while lines and (not lines[0].strip() or _CANARY.fullmatch(lines[0].strip())):
            del lines[0]
        if not lines:
            raise self.bad_task(f"{path} is empty; write there what the agent is told")
        return "\n".join(lines)

    def context(self) -> Path | None:
        """Return the directory to make the image from, by its Dockerfile or as files for the image in task.toml;
        None for an unchanged image. Raises BadTask."""
        context, environment = self.directory / "environment", self.config.environment
        if self.dockerfile("environment") is not None:
            return context
        if environment.docker_image is None:
            raise self.bad_task(
                "there is nothing to run it in; add environment/Dockerfile, or name an image in task.toml under "
                "[environment] docker_image, such as atropos-agent/base:debian12"
            )
        makers = (context / NAME, context / _DOCKERFILE)
        if not context.is_dir() or not any(context.iterdir()) or any(map(Path.is_file, makers)):
            return None
        if environment.workdir is not None:
            raise self.bad_task(
                f"environment/ has files, no Dockerfile, and [environment] workdir {environment.workdir}: if that is "
                "the image's own working directory, take workdir out, and they go there; else put a Dockerfile in "
                f"place of docker_image: FROM {environment.docker_image}, and COPY . {environment.workdir}"
            )
        return context

    def dockerfile(self, *parts: str) -> Dockerfile | None:
        """Return the Dockerfile of a folder of the task's; None without one, or if it has comments alone. Raises
        BadTask."""
        name = "/".join([*parts, _DOCKERFILE])
        text = read_text(self.directory, name) if (self.directory / name).is_file() else ""
        if all(line.lstrip()[:1] in ("", "#") for line in text.splitlines()):
            return None
        try:
            return Dockerfile.read(text)
        except DockerfileError as error:
            raise self.bad_task(f"{name}: {error}") from None

    def service(self, container: ContainerSettings) -> Service | None:
        """Return what the container runs from its start: the Dockerfile's ENTRYPOINT, with Harbor's command in place of
        CMD, or what the compose file says. Raises BadTask."""
        text = self._last("ENTRYPOINT") or ""
        entrypoint = container.entrypoint
        if entrypoint is None:
            entrypoint = ("/bin/sh", "-c", text) if text else ()
            with suppress(ValueError, RecursionError):  # what is no list is a command of the shell
                entrypoint = tuple(map(str, json.loads(text))) if text.startswith("[") else entrypoint
        if not entrypoint and container.command is None:
            return None
        return Service((*entrypoint, *(container.command or WAITING)), self.images_user())

    def health(self) -> HealthCheck | None:
        """Return the health check of the container. Raises BadTask."""
        check = self.config.environment.healthcheck
        return check.settled(self.images_user()) if check is not None else None

    def images_user(self) -> str | None:
        """Return the image's user; None if commands have no other."""
        return self.config.agent.user and (self._last("USER") or "root")

    def home(self, user: str | None) -> str:
        """Return the usual home of a user, by default the Dockerfile's. Raises BadTask."""
        name = (user or self._last("USER") or "root").partition(":")[0]
        return "/root" if name in ("root", "0") else f"/home/{name}"

    def _last(self, keyword: str) -> str | None:
        """Return what the environment's Dockerfile says last with an instruction; None if that is not known."""
        file = self.dockerfile("environment")
        found = file.last(keyword) if file is not None else None
        return found if found is None or "$" not in found else None

    def folder(self, *parts: str) -> Path | None:
        """Return a folder of the task's; None without one."""
        path = self.directory.joinpath(*parts)
        return path if path.is_dir() else None

    def solution(self, *parts: str) -> Path | None:
        """Return a solution's folder; None without a solve.sh in it. Raises BadTask."""
        path = self.folder(*parts)
        if path is None or not (path / "solve.sh").is_file():
            return None
        self.check_script(path / "solve.sh")
        return path

    def check_script(self, path: Path) -> None:
        """Raise BadTask for a script with Windows' line ends: a shell takes them for parts of its commands."""
        if path.is_file() and path.read_bytes().partition(b"\n")[0].endswith(b"\r"):
            name = path.relative_to(self.directory).as_posix()
            raise self.bad_task(
                f"{name} has Windows' line ends, so no shell runs it; `sed -i 's/\\r$//'` takes them off"
            )

    def fill_variables(self, table: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return a table of variables, with the defaults of `${NAME:-default}`. One without is left out; in the
        verifier's tables, which decide the reward, it raises BadTask, but for those of judges."""
        found = {}
        for key, value in env.items():
            try:
                found[key] = self._fill(value, f"task.toml: [{table}] env.{key}")
            except BadTask as error:
                if not table.startswith("verifier"):
                    what = str(error).removeprefix(f"task {self.name}: ")
                    self.remarks.append(f"{what}; the sandbox goes without it")
                elif key in _OF_JUDGES:
                    found[key] = _FILLED_LATER
                else:
                    raise
        return found

    def mcp_servers(self) -> tuple[MCPServer, ...]:
        """Return the servers of tools for the agent. Raises BadTask."""
        where = "task.toml: [environment] mcp_servers"
        try:
            return parse_servers(
                self.config.environment.mcp_servers, lambda value: self._fill(value, where), of_task=True
            )
        except BadTask:
            raise
        except ValueError as error:
            raise self.bad_task(f"{where}: {error}") from None

    def _fill(self, value: str, where: str) -> str:
        def one(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            found = _FILLED_LATER if name in _OF_JUDGES else default
            if found is None:
                raise self.bad_task(
                    f"{where} needs the variable {name}, and a run gives none; write ${{{name}:-default}}"
                )
            return found

        return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}", one, value)


def limits(environment: Environment, phase: NetworkSection, defaults: Limits) -> Limits:
    """Return the limits of a container. phase: a table with its own network rules, if any."""
    network, hosts = phase.reach(environment.reach((defaults.network, ())))
    return replace(
        defaults,
        cpus=environment.cpus or defaults.cpus,
        memory_mb=environment.memory_mb or defaults.memory_mb,
        disk_mb=environment.storage_mb or defaults.disk_mb,
        network=network,
        allowed_hosts=hosts,
    )


def hidden(
    source: Source, levels: Sequence[tuple[Verifier, Path | None]], artifacts: Sequence[Artifact], step: str = ""
) -> Hidden:
    """Return the verifier's part of a task, or of a step. Raises BadTask.

    levels: [verifier] and the folder of tests, the task's first, then the step's. step: its folder and "/".
    """
    config = source.config
    own, separate = _own_image(source, levels)
    verifier = levels[-1][0]
    network, hosts = verifier.reach(levels[0][0].reach(config.environment.reach((source.defaults.network, ()))))
    folders = [folder for _, folder in levels if folder is not None]
    if not (own and own.holds_tests) and not any((folder / "test.sh").is_file() for folder in folders):
        raise source.bad_task(f"{step}tests/test.sh is missing; it runs the tests and writes the reward file")
    for folder in folders:
        source.check_script(folder / "test.sh")
    user = next((level.user for level, _ in reversed(levels) if level.user), None)
    env = {name: value for level, _ in levels for name, value in source.fill_variables("verifier", level.env).items()}
    return Hidden(
        tests=folders[-1] if folders else None,
        shared_tests=folders[0] if len(folders) > 1 else None,
        test_env=env,
        solution_env=source.fill_variables("solution", config.solution.env),
        timeout_s=verifier.timeout_sec,
        user=user,
        network=network,
        allowed_hosts=hosts,
        protected=(*config.metadata.protected_paths, *(_excluded(artifacts) if separate else ())),
        graded=_graded_paths(source, folders, artifacts, separate, user),
        graded_alone=separate,
        own=own,
        asks_judge=bool(_OF_JUDGES & {*env}) or source.config.metadata.judge or any(map(_has_judge, folders)),
        collect=tuple(
            Collect(hook.command, hook.user or source.images_user(), hook.timeout_sec)
            for level, _ in levels
            for hook in level.collect
        ),
    )


def _has_judge(tests: Path) -> bool:
    """Tell whether a judge of Reward Kit's is among the tests."""
    files = (path for path in tests.rglob("*.toml") if path.is_file())
    return any(_JUDGE_TABLE.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)


def _graded_paths(
    source: Source, folders: Sequence[Path], artifacts: Sequence[Artifact], separate: bool, user: str | None
) -> tuple[str, ...]:
    """Return the judged paths beside the working directory: the task's own list, else those named in its tests. Raises
    BadTask for artifacts out of a separate verifier's reach."""
    declared = source.config.metadata.graded_paths
    if not separate:
        listed = any((folder / "tests.json").is_file() for folder in folders)  # a repository's, which name examples
        if declared is not None or listed:
            return tuple(declared or ())
        return named_paths(folders, source.home(user))
    for one in artifacts:
        if one.service not in (None, "main"):
            raise source.bad_task(f"task.toml: artifacts: service {one.service!r}: several containers aren't supported")
        if (why := refusal(one.source)) is not None:
            raise source.bad_task(f"task.toml: artifacts: {one.source!r} {why}")
    return tuple(dict.fromkeys([*(declared or []), _PUBLISHED, *(one.source for one in artifacts)]))


def _excluded(artifacts: Sequence[Artifact]) -> Iterator[str]:
    """Yield the patterns of the paths that artifacts leave out: as tar's, they match at any depth, with all below."""
    for pattern in (one.removeprefix("./").strip("/") for artifact in artifacts for one in artifact.exclude):
        yield from (pattern, f"*/{pattern}", f"{pattern}/*", f"*/{pattern}/*")


def _own_image(source: Source, levels: Sequence[tuple[Verifier, Path | None]]) -> tuple[VerifierImage | None, bool]:
    """Return the verifier's own image, and whether it sees the artifacts alone: as Harbor's
    `resolve_verifier_environment_definition` says. Raises BadTask."""
    separate = [level.separate for level, _ in levels if level.separate is not None]
    if not (separate and separate[-1]):
        return None, False
    environment = next((level.environment for level, _ in reversed(levels) if level.environment), None)
    phase = levels[-1][0]
    settled = environment or source.config.environment
    made = VerifierImage(
        workdir=settled.workdir,
        env=source.fill_variables("verifier.environment", settled.env),
        limits=limits(settled, phase, source.defaults),
        holds_tests=True,
    )
    for level, folder in reversed(levels):
        if level.environment is not None and level.environment.docker_image:
            return replace(made, image=level.environment.docker_image), True
        if folder is not None:
            read_compose(folder, source.name)
        if folder is not None and source.dockerfile(*folder.relative_to(source.directory).parts) is not None:
            return replace(made, context=folder), True
    if environment is None:
        return None, True
    own = source.config.environment
    return replace(
        made,
        image=own.docker_image,
        context=source.context(),
        workdir=environment.workdir or own.workdir,
        holds_tests=False,
    ), True


def read_text(directory: Path, name: str) -> str:
    """Return a file of a task directory, without a byte order mark. Raises BadTask, OSError."""
    path = directory / name
    if path.exists() and not path.is_file():  # a device or a pipe may have no end
        raise BadTask(f"task {directory.name}: {name} is no file; write it as one")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadTask(f"task {directory.name}: {name} is missing; {LAYOUT}") from None
    except UnicodeDecodeError as error:
        raise BadTask(f"task {directory.name}: {name} is not UTF-8 ({error}); save it as UTF-8") from None
