"""The nouns of an environment: the task, a rollout's seat, the verdict, the reward, and our own failure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from atropos_agent.types import AgentResult
from envs.resources import Resource
from sandboxes.base import Limits
from sandboxes.plurals import plural
from tools.mcp.servers import MCPServer

if TYPE_CHECKING:  # loading them takes seconds, which commands about tasks alone need not pay
    from atropos_agent.engines.route import Route
    from atropos_agent.engines.token_server import TokenServer
    from atropos_agent.ledger import ExecuteTool, Ledger


def _reduce(error: Exception) -> tuple[Any, ...]:
    """Be `__reduce__` of exceptions whose `__init__` takes more than a message: another trainer's processes may hand
    them on, and would raise a TypeError in their place."""
    return _restore, (type(error), error.args), vars(error)


def _restore(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    return kind.__new__(kind, *args)


class BadTask(ValueError):
    """An unreadable or unusable task; the message names the task, the field and the remedy."""


class BadTasks(BadTask):
    """Some of several tasks are unusable; the message lists them all. usable: the others.

    what: one of them, a noun. where: their place, for the message."""

    def __init__(self, what: str, problems: Sequence[str], usable: Sequence[Task], where: str = "") -> None:
        listed = "\n".join(f"- {problem}" for problem in problems)
        super().__init__(f"{plural(len(problems), what)}{where} can't be used:\n{listed}")
        self.usable = list(usable)

    __reduce__ = _reduce


@dataclass(frozen=True, slots=True)
class Collect:
    """A command to run in the agent's sandbox after the agent is done, so its files show the programs at work there.

    user: of the command; None for the image's own.
    """

    command: str
    user: str | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class VerifierImage:
    """A verifier's container made in another way than the agent's.

    image, context, workdir, env, limits: as in `Task`. holds_tests: /tests is in the image, so none are put there.
    """

    image: str | None = None
    context: Path | None = None
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    holds_tests: bool = False


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model that judges for test.sh.

    url: of its API, with /v1. name: the model's; "" for the one that test.sh asks for. requests: of a verdict, at most.
    tokens: of a reply.
    """

    url: str
    name: str = ""
    key: str = field(default="", repr=False)
    requests: int = 32
    tokens: int = 16_384


@dataclass(frozen=True, slots=True)
class Hidden:
    """The parts of a task the model must never see.

    tests: directory copied to /tests in the verifier's sandbox; holds `test.sh`, unless `shared_tests` does. None in an
        environment with another kind of verifier.
    shared_tests: directory copied to /tests before it.
    solution: directory with `solve.sh`, copied to /solution by the reference run; None when
        the task has none.
    user: of `test.sh`; None for root.
    network, allowed_hosts: the verifier's sandbox's network (see `Limits`); None as in the task's own limits.
    protected: patterns (`tests/*`, matched to paths and to names) of files with a part in the verdict, beside
        `envs.judging.changes.PROTECTED`: the agent's changes there are not carried over.
    graded: judged paths beside the working directory: absolute paths, and ".git" for its history.
    graded_alone: the rest of the working directory is not judged.
    own: the verifier's container, if it has another image than the task's: then `graded` is carried whole.
    collect: run in the agent's sandbox when it is done.
    record: the record of the reference's tests by `tasks check` (`envs.judging.record`); "" without one.
    watched: whether `tasks check` saw tests run by pytest or unittest; None if it did not look: the names in the task's
        files decide then.
    in_place: test.sh runs in the agent's own sandbox, with its processes and all of its files: `tasks check` saw the
        reference rewarded there alone.
    usual_s: longest time of the tests seen by `tasks check`; None without one.
    asks_judge: test.sh asks a model. judge: the run's; None without one.
    """

    tests: Path | None = None
    shared_tests: Path | None = None
    solution: Path | None = None
    test_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 600.0
    user: str | None = None
    network: bool | None = None
    allowed_hosts: tuple[str, ...] = ()
    protected: Sequence[str] = ()
    graded: Sequence[str] = ()
    graded_alone: bool = False
    own: VerifierImage | None = None
    collect: Sequence[Collect] = ()
    record: str = field(default="", repr=False)
    watched: bool | None = None
    in_place: bool = False
    usual_s: float | None = None
    asks_judge: bool = False
    judge: JudgeModel | None = None


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A shell command that has to pass before the work. user: None for the commands' own. grace_s: before it, failures
    are none of the `retries`. interval_s, grace_interval_s: between attempts, after the grace and in it."""

    command: str
    user: str | None = None
    timeout_s: float = 30.0
    interval_s: float = 5.0
    grace_s: float = 0.0
    grace_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a task with its own instruction and verdict, in the sandbox as the part before left it.

    files: directory copied into the working directory before it; its `setup.sh` is run there. None for none.
    timeout_s: of the agent, as in `Task`.
    least: rewards, by name, required for the next part.
    health: before the agent begins, after the files; None for none.
    """

    name: str
    instruction: str
    hidden: Hidden
    files: Path | None = None
    timeout_s: float | None = None
    least: Mapping[str, float] = field(default_factory=dict)
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A program that runs in a container from its start, such as a server. user: None for the commands' own."""

    command: tuple[str, ...]
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: the model's instruction, its place of work, and, apart, its verifier's parts.

    image: an image to use as it is; context: a directory with a Dockerfile to build otherwise, or with files for the
    image's working directory.
    workdir: the source tree changed by the agent and judged; None takes the image's.
    timeout_s: wall time for the agent; None for the environment's own limit.
    digest: sha256 of everything in the task's definition; "" when its adapter makes none.
    steps: the parts of a task of several; `instruction` and `hidden` then hold for all together.
    last_counts: the reward is the last begun part's; False for the mean.
    mcp_servers: of tools for the agent, in its sandbox.
    skills_dir: folder of skills in its sandbox, named to the agent; None for none.
    service, health: of the sandboxes of its image; None for none.
    """

    id: str
    instruction: str
    hidden: Hidden = Hidden()
    image: str | None = None
    context: Path | None = None
    workdir: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    timeout_s: float | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    steps: Sequence[Step] = ()
    last_counts: bool = False
    mcp_servers: Sequence[MCPServer] = ()
    skills_dir: str | None = None
    service: Service | None = None
    health: HealthCheck | None = None

    def __post_init__(self) -> None:
        """Raise BadTask for a value of another type, which would fail each of its rollouts, or end the run."""
        kinds = {"id": str, "instruction": str, "hidden": Hidden, "limits": Limits, "metadata": Mapping, "env": Mapping}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise BadTask(f"task {self.id!r:.80}: {name} is a {type(value).__name__}; give a {kind.__name__}")
        named = () if isinstance(self.tags, str) or not isinstance(self.tags, Collection) else self.tags
        if named is not self.tags or not all(isinstance(tag, str) for tag in named):
            raise BadTask(f"task {self.id!r:.80}: tags is {self.tags!r:.40}; give a list of texts")
        if self.timeout_s is not None and not (isinstance(self.timeout_s, int | float) and self.timeout_s > 0):
            raise BadTask(f"task {self.id!r:.80}: timeout_s is {self.timeout_s!r:.40}; give seconds above 0, or None")


class TestStatus(enum.StrEnum):
    __test__ = False  # not a test class for pytest

    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"


class Recording(Protocol):
    """Keeps a rollout's turns while it is made, so an interrupted rollout goes on at its last turn."""

    def serving(self, route: Route) -> TokenServer:
        """Return a server that asks `route` only for replies not yet recorded."""
        ...

    def executing(self, execute: ExecuteTool) -> ExecuteTool:
        """Return `execute`, with earlier results in place of new ones if only their times differ."""
        ...


@dataclass(frozen=True, slots=True)
class Seat:
    """A rollout's place in the run: its purpose, and its conditions.

    group, member: the group's number in the run, None in evaluations, and the rollout's in the group, or among the
        samples of its task; None in evaluations of before 0.2.
    step: the trainer's when the rollout began.
    evaluating: sampled as evaluations are, and never trained on.
    max_tokens: longest usable row, prompt and replies together; None for the configuration's own.
    agent: the agent's name in a run of several; "" in others.
    recording: of its turns; None if an interrupted rollout begins again.
    resources: the versions of the run's resources that it has, by name; None for those of the environment's start.
    ledgers: of the agents made for it, with all their samples.
    """

    group: int | None = None
    member: int | None = None
    step: int = 0
    evaluating: bool = False
    max_tokens: int | None = None
    agent: str = ""
    recording: Recording | None = field(default=None, repr=False, compare=False)
    resources: Mapping[str, Resource] | None = field(default=None, repr=False, compare=False)
    ledgers: list[Ledger] = field(default_factory=list, repr=False, compare=False)


SIGN = "cheat/"
"""The beginning of the names of metrics for signs of cheating."""
JUDGED_IN_PLACE = "judged_in_place"
"""The metric of a verdict made in the agent's own sandbox."""
TESTS_UNSEEN = "tests_unseen"
"""The metric of a verdict if only judged code may have reported its tests' statuses."""
RESOURCES = "resources"
"""In an `AgentResult`'s metadata: a rollout's resources, such as prompt templates, by name: version, digest."""
VERIFIER_TIMED_OUT = "verifier_timed_out"
"""The metric of a verdict given because the tests did not end in their time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verifier's findings.

    reward: finite; at least 1.0 is solved.
    tests: status per test if the task reports tests.
    explanation: why, in a sentence or two, with the end of the verifier's output.
    evidence: the reports of the tests' sites, one entry a call of a test runner (`envs.judging.record`).
    seen: the observations, by the metric for a sign of cheating.
    output: the verifier's output, its beginning and its end.
    patch: the judged changes, as a diff for people; "" without changes, or if the verifier makes none.
    """

    reward: float
    explanation: str
    tests: Mapping[str, TestStatus] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = field(default=(), repr=False, compare=False)
    seen: Mapping[str, str] = field(default_factory=dict)
    output: str = field(default="", repr=False, compare=False)
    patch: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise TypeError for a value that can't be saved."""
        for name in ("explanation", "output", "patch"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"Verdict.{name} is a {type(value).__name__}; give a text")
        check_numbers("Verdict", {"reward": self.reward})
        check_numbers("Verdict.metrics", self.metrics)
        try:
            statuses = {name: TestStatus(status) for name, status in self.tests.items()}
        except ValueError as error:
            raise TypeError(f"Verdict.tests: {error}; give a TestStatus: {', '.join(TestStatus)}") from error
        object.__setattr__(self, "tests", statuses)

    @property
    def solved(self) -> bool:
        """Tell whether the task was solved, however the rollout is rewarded."""
        return self.reward >= 1.0

    @property
    def signs(self) -> tuple[str, ...]:
        """Return the signs of cheating among the metrics (see `envs.judging.cheating`)."""
        return tuple(name.removeprefix(SIGN) for name in sorted(self.metrics) if name.startswith(SIGN))


MOST_REWARD = 1e12
"""The largest reward, either way: of larger ones a group's mean may be no finite number."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A rollout's worth in training.

    value: finite; compared with the group's other rewards.
    turn_advantages: one a turn, finite, added to the advantage from the rewards; none if
        turns are not distinguished.
    explanation: its difference from the verifier's own reward.
    """

    value: float
    turn_advantages: Sequence[float] = ()
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one attempt at a task. timings_s: seconds by phase, beside the agent's own.

    work: the agent's exact work, for judging it again: an entry a part of the task, as
    `envs.judging.saved_changes` packs it.
    """

    result: AgentResult
    verdict: Verdict
    timings_s: Mapping[str, float] = field(default_factory=dict)
    work: Sequence[Mapping[str, Any]] = field(default=(), repr=False)


def check_numbers(where: str, values: Mapping[str, Any]) -> None:
    """Raise TypeError for a value that is no number."""
    for name, value in values.items():
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise TypeError(f"{where}: {name} is a {type(value).__name__}; give a number")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One agent's work on one task, judged.

    verdict: the verifier's. reward: its worth in training; the verdict's own in evaluations. work: see
    `Outcome`.
    """

    id: str
    task: Task
    result: AgentResult
    verdict: Verdict
    reward: Reward
    seat: Seat = Seat()
    timings_s: Mapping[str, float] = field(default_factory=dict)
    work: Sequence[Mapping[str, Any]] = field(default=(), repr=False)


class GroupState(enum.StrEnum):
    """The state of a group."""

    WORKING = "working"
    OUTBOX = "outbox"
    """Complete; its rows wait for the trainer API."""
    DELIVERED = "delivered"
    TAKEN = "taken"
    """Handed to a trainer in this process, or to the process that asked for it, and not confirmed yet."""
    CONFIRMED = "confirmed"
    """The trainer has reported to be done with it for good."""
    SAVED = "saved"
    """Written to the file of groups; no trainer was asked for."""
    EQUAL = "equal"
    """Dropped, because all rewards are equal."""
    EMPTY = "empty"
    """Dropped, because no row was sound."""
    STALE = "stale"
    """Kept aside: the trainer had gone on too far."""
    REFUSED = "refused"
    """Kept aside: the trainer API did not take it."""
    UNCERTAIN = "uncertain"
    """Kept aside: the trainer API has lost it, perhaps after a batch had it."""
    CORRUPT = "corrupt"
    """Kept aside: its data on disk are damaged."""
    QUARANTINED = "quarantined"
    """Its task had too many infrastructure failures."""
    SKIPPED = "skipped"
    """Its task had been quarantined before."""
    GONE = "gone"
    """Its task is not among those of the run any more."""


class Failure(enum.StrEnum):
    """The kind of an infrastructure failure: the failed part."""

    ENGINE = "engine"
    """An inference server."""
    SANDBOX = "sandbox"
    VERIFIER = "verifier"
    TEACHER = "teacher"
    """The inference server of a teacher."""
    TOKENS = "tokens"
    """An inference server's answer contradicts its request."""
    TASK = "task"
    """The task can't be made as it is, or no task is left."""
    ENVIRONMENT = "environment"
    """Our own code, or an unknown part."""
    WORKER = "worker"
    """A worker process or its machine, if rollouts are made elsewhere than in the run's own process."""
    SUSPENDED = "suspended"
    """The whole process stood still during the rollout."""
    ROW = "row"
    """A row different from the record."""
    TRAINER = "trainer"
    """The trainer API."""


class InfraError(RuntimeError):
    """An infrastructure failure in a rollout. It is retried and counted, never a reward.

    message: without its kind. unexpected: its cause is unknown; its traceback is logged. permanent: it would come again
    with the same input.

    Raises ValueError for a kind other than a `Failure`.
    """

    def __init__(self, kind: Failure | str, message: str, *, unexpected: bool = False, permanent: bool = False) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = Failure(kind)
        self.message = message
        self.unexpected = unexpected
        self.permanent = permanent

    __reduce__ = _reduce
