"""The base of other environments. A subclass defines the tasks and the course of one rollout.

A subclass defines `load_tasks` and `attempt`, and may define `reward`, `setup`, `expect` and `preflight`; in
`attempt` it calls `agent`. All else is the run's (`envs.running`): concurrency, retries, groups, delivery, evaluation,
records. atroposlib's own manager loop is not used: it cancels rollouts whenever the trainer's queue is full or an
evaluation starts, loses a group when one member raises, and drops it when sending fails.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic

from atroposlib.envs.base import BaseEnv
from atroposlib.envs.server_handling.server_baseline import APIServer, APIServerConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from typing_extensions import TypeVar

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.chat import ChatServer
from atropos_agent.engines.protocols import server_for
from atropos_agent.engines.route import Route
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO, TEMPLATE, load_format
from atropos_agent.gateway import Gateway, Session
from atropos_agent.types import AgentConfig
from envs.config import AgentEnvConfig
from envs.delivery.sender import Sender
from envs.options.tokenizer import load_tokenizer
from envs.records.redaction import Redactor
from envs.records.stats import EvalSummary
from envs.records.tracking import Trackers, check_trackers
from envs.resources import SYSTEM_PROMPT, Resource
from envs.rewards import RewardFunction, find_reward
from envs.running.commands import evaluate_once, process_groups, serve_trainer
from envs.running.environment import InferenceServer
from envs.running.mix import OURS, Mix
from envs.running.monitoring import check_monitoring
from envs.running.stopping import StopRequest
from envs.running.telemetry import check_telemetry
from envs.running.workers import check_workers
from envs.tasks.selection import load_checked
from envs.types import Outcome, Reward, Seat, Task
from sandboxes.naming import resolve
from tools.base import ToolRegistry

Config = TypeVar("Config", bound=AgentEnvConfig, default=AgentEnvConfig)
"""The options of an environment; `AgentEnvConfig` for a subclass without its own."""


logger = logging.getLogger(__name__)


def empty_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer without any text: atroposlib loads one even if nothing is encoded."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"?": 0}, unk_token="?")))


class AgentEnv(BaseEnv, Generic[Config]):  # type: ignore[misc]  # atroposlib is untyped
    """An Atropos environment with agents at work on tasks. See the module's docstring.

    name: of the environment, in names of runs and on the command line.
    env_config_cls: the class of `config`; its fields are the options `--env.NAME`.
    """

    name: ClassVar[str] = "agent"
    env_config_cls: ClassVar[type[AgentEnvConfig]] = AgentEnvConfig
    server_cls = staticmethod(server_for)
    config: Config

    def __init_subclass__(cls, **settings: Any) -> None:
        """Raise TypeError for an async method in place of one that nobody awaits: it would do nothing."""
        super().__init_subclass__(**settings)
        for name, own in vars(cls).items():
            given = getattr(AgentEnv, name, None)
            is_async = inspect.iscoroutinefunction(getattr(own, "__func__", own))
            if is_async and inspect.isroutine(given) and not inspect.iscoroutinefunction(given):
                raise TypeError(f"{cls.__name__}.{name} is async, and nobody awaits it; write it with `def`")

    # What a subclass defines

    @classmethod
    @abstractmethod
    def load_tasks(cls, config: Config) -> tuple[Sequence[Task], Sequence[Task]]:
        """Return the tasks to train on and those to evaluate on. Raises BadTask."""

    @abstractmethod
    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        """Make one rollout: let an agent (see `agent`) work on the task, and judge its work.

        Any exception is an infrastructure failure: the rollout is retried, and never gets a reward for it."""

    def reward(self, task: Task, outcome: Outcome) -> float | Reward:
        """Return the worth of an outcome in training: the verifier's reward, unless a subclass or the function of
        `--env.reward` decides otherwise.

        It is not called in evaluations, and does not change whether the task counts as solved."""
        return outcome.verdict.reward if self.reward_function is None else self.reward_function(task, outcome)

    async def setup(self, resources: AsyncExitStack) -> None:
        """Open the resources of rollouts. `resources` closes everything entered there when the run ends."""

    def resources(self) -> Mapping[str, Resource | None]:
        """Return the texts that may get new versions while a run goes on, by name; None for one without a text so far.

        A rollout takes its own from `resources_of`."""
        own = self.config.system_prompt
        return {SYSTEM_PROMPT: None if own is None else Resource(own)}

    def expect(self, task: Task) -> None:
        """Begin slow preparations for this task in the background, such as its image: it is drawn next."""

    @classmethod
    async def preflight(cls, config: Config) -> None:
        """Find early the errors that would stop the run. Raises an error with the remedy, or a group of them."""
        problems: list[Exception] = []
        for look in (
            lambda: config.keep_tasks(load_checked(cls.load_tasks, config)),
            lambda: load_format(config.tool_format) if config.tool_format not in (AUTO, TEMPLATE) else None,
            lambda: [cls.find_agent(name) for name in Mix.of(config.agent).names],
            lambda: find_reward("--env.reward", config.reward) if config.reward else None,
            lambda: check_trackers(config.trackers),
            lambda: check_telemetry(config.otlp_url),
            lambda: check_monitoring(config.prometheus),
            lambda: check_workers(config),
        ):
            try:
                look()
            except ValueError as error:  # BadTask is one
                problems.append(error)
        if problems:
            raise ExceptionGroup("the environment can't be used as it is", problems)

    @classmethod
    def find_agent(cls, name: str) -> type[AtroposAgent]:
        """Return an agent named by `--env.agent`: a class like `AtroposAgent`. Raises ValueError with the remedy."""
        found: type[AtroposAgent] = resolve("--env.agent", name, OURS, "atropos_agent.agents")
        return found

    # What a subclass uses

    def agent(self, seat: Seat, tools: ToolRegistry, **options: Any) -> AtroposAgent:
        """Return an agent for a rollout; its runs are parts of the rollout. options: fields of `AgentConfig` with other
        values for this task."""
        config, split = self._sampling(seat, options)
        recording = None if self.template is None else seat.recording
        agent = self.agent_classes[seat.agent or self.config.agent](
            self._serving(seat),
            tools,
            config,
            execute_tool=tools.execute if recording is None else recording.executing(tools.execute),
            template=self.template,
            tool_format=self.tool_format,
            split=split,
        )
        agent.ledgers = seat.ledgers
        return agent

    def resources_of(self, seat: Seat) -> Mapping[str, Resource]:
        """Return the versions of the resources for a rollout, by name: the same for all of its group."""
        if seat.resources is not None:
            return seat.resources
        return {name: resource for name, resource in self.resources().items() if resource is not None}

    def session(
        self, seat: Seat, gateway: Gateway | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Session]:
        """Open the gateway's session for a rollout of a foreign agent (see `atropos_agent.gateway`).

        gateway: the agent asks at its address; None if the connection identifies the rollout.
        options: fields of `AgentConfig` with other values for this task."""
        config, split = self._sampling(seat, options)
        open_session = Session if gateway is None else gateway.session
        return open_session(self._serving(seat), self.template, self.tool_format, config, split=split)

    def _sampling(self, seat: Seat, options: Mapping[str, Any]) -> tuple[AgentConfig, str]:
        """Return the sampling of replies for a seat, and their split in atroposlib's sense."""
        most = self.config.max_token_length if seat.max_tokens is None else seat.max_tokens
        if (own := self.resources_of(seat).get(SYSTEM_PROMPT)) is not None:
            options = {SYSTEM_PROMPT: own.text, **options}
        config = self.config.agent_config(max_total_tokens=most, evaluating=seat.evaluating, **options)
        return config, "eval" if seat.evaluating else "train"

    def _serving(self, seat: Seat) -> APIServer:
        """Return the sampler of a seat's replies."""
        if self.template is None:
            return random.choice(self.server.servers)
        route = Route(self.server.servers, unknown_id=self.template.unknown_id, end_of=self.template.end_of)
        return route if seat.recording is None else seat.recording.serving(route)

    # What the run and atroposlib use

    def __init__(
        self, config: Config, server_configs: list[APIServerConfig], slurm: bool = False, testing: bool = False
    ) -> None:
        if (tokenizer := config.take_tokenizer()) is None:
            if not config.tokenizer_name:
                raise ValueError("tokenizer_name is empty; give the folder or the hub name of the server's model")
            tokenizer = load_tokenizer(config.tokenizer_name, trust_remote_code=config.trust_remote_code)
        with TemporaryDirectory() as folder:
            # The base class would read the tokenizer in its own way, and open the file of groups unflushed, under
            # another name if it exists.
            empty_tokenizer().save_pretrained(folder)
            other = {"tokenizer_name": folder, "data_path_to_save_groups": None}
            super().__init__(config.model_copy(update=other), server_configs, slurm, testing)
        self.tokenizer = tokenizer
        self.config = config
        plain = any(isinstance(server, ChatServer) for server in self.server.servers)
        self.template = None if plain else config.chat_template(self.tokenizer)
        """None if an inference server works on messages, without token ids."""
        takes_tools = all(getattr(server, "takes_tools", False) for server in self.server.servers)
        self.tool_format = FittedFormat.of(config.tool_format, self.template, config.tool_role, takes_tools=takes_tools)
        if self.tool_format.warning is not None:
            logger.warning("%s", self.tool_format.warning)
        self.agent_classes = {name: self.find_agent(name) for name in Mix.of(config.agent).names}
        self.reward_function: RewardFunction | None = (
            find_reward("--env.reward", config.reward) if config.reward else None
        )
        # Whole, as an agent or a function of this process may change the working directory.
        self.run_dir = (config.run_dir or Path("runs", f"{self.name}-{time.strftime('%Y%m%d-%H%M%S')}")).absolute()
        self.redactor = Redactor()
        self.trackers = Trackers({})
        self.stopping = StopRequest()

    @property
    def carries_tokens(self) -> bool:
        """Tell whether rollouts have token ids, and so rows to train on."""
        return self.template is not None

    @property
    def servers(self) -> Sequence[InferenceServer]:
        """Return the inference servers."""
        return list(self.server.servers)

    def tasks(self) -> tuple[Sequence[Task], Sequence[Task]]:
        """Return the tasks to train on and those to evaluate on: of the start's check, or loaded. Raises BadTask."""
        kept: tuple[Sequence[Task], Sequence[Task]] | None = self.config.take_tasks()
        return load_checked(self.load_tasks, self.config) if kept is None else kept

    async def ready_tasks(self) -> tuple[Sequence[Task], Sequence[Task]]:
        """Load the tasks, without those impossible for the sandboxes here. Raises BadTask."""
        return self.tasks()

    async def env_manager(self) -> None:
        """Serve a trainer; see `serve_trainer`."""
        await serve_trainer(self)

    async def process_manager(self) -> None:
        """Make groups without a trainer; see `process_groups`."""
        await process_groups(self)

    async def evaluate(self, *_: Any, **__: Any) -> EvalSummary:
        """Attempt the evaluation tasks; see `evaluate_once`."""
        return await evaluate_once(self)

    async def get_next_item(self) -> Task:
        """Return a task at random. A run takes its tasks from its queue instead."""
        return random.choice(self.tasks()[0])

    def registered(self, answer: Mapping[str, Any], sender: Sender) -> None:
        """Take in the trainer API's answer to our registration, for atroposlib's own figures and checkpoints."""
        self.env_id, self.max_token_len = sender.env_id, sender.max_token_len
        self.wandb_prepend = self.config.wandb_name or self.name
        self.curr_step = answer["starting_step"]
        self.checkpoint_dir = answer["checkpoint_dir"]
        self.checkpoint_interval = answer["checkpoint_interval"]

    async def log_step(self, step: int, values: Mapping[str, float]) -> None:
        """Log figures of a trainer's step to the trackers."""
        self.curr_step = step
        await asyncio.to_thread(self.trackers.log, values, step)

    async def log_evaluation(self, summary: EvalSummary, started: float) -> None:
        """Log an evaluation to the trackers, and write it to atroposlib's folder for evaluations, if wanted.
        started: Unix time."""
        await asyncio.to_thread(self.trackers.log, summary.metrics(), int(summary.about.get("step", 0)))
        if self.config.data_dir_to_save_evals is not None:
            await self.evaluate_log(summary.metrics(), start_time=started, end_time=time.time(), verbose=False)
