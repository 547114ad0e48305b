"""The environment of a function: its session of the gateway, a call, and its value as the verdict."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, ClassVar

from atropos_agent.gateway import Gateway, Session
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage, Refusal
from atropos_agent.types import StopReason
from envs.base import AgentEnv
from envs.functions.arguments import LLM
from envs.functions.calling import FunctionTimeoutError, call
from envs.functions.config import FunctionConfig
from envs.functions.judging import judge_reply, verdict_of
from envs.functions.turns import ReportingServer, TurnRewards
from envs.functions.work import Work
from envs.judging.specs import agent_spec
from envs.messages import SOCKS
from envs.resources import Resource
from envs.rewards import reward_of
from envs.running.proxies import bypass_proxies_for_loopback, lacks_socks
from envs.types import Failure, InfraError, Outcome, Reward, Seat, Task, Verdict
from sandboxes.base import Backend
from sandboxes.registry import load_backend, named_factory

logger = logging.getLogger(__name__)

BUDGETS = (StopReason.MAX_TOKENS, StopReason.MAX_STEPS, StopReason.TIME)
TURN_REWARDS = "turn_rewards"
"""The key in an `AgentResult`'s metadata for the values given to `llm.reward`, by turn."""


class FunctionEnv(AgentEnv[FunctionConfig]):
    """An environment with calls of a function as its rollouts. Made by `environment_of`."""

    name: ClassVar[str] = "function"
    env_config_cls = FunctionConfig
    function: ClassVar[Work]

    @classmethod
    def load_tasks(cls, config: FunctionConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        return cls.function.load_tasks(config)

    @classmethod
    async def preflight(cls, config: FunctionConfig) -> None:
        if lacks_socks():
            logger.warning("AsyncOpenAI() and other clients of httpx that %s makes will fail: %s", cls.name, SOCKS)
        problems: list[Exception] = []
        try:
            await super().preflight(config)
        except ExceptionGroup as group:
            problems += group.exceptions
        for check in (cls.function.prompts_with, cls._check_sandbox):
            try:
                check(config)
            except ValueError as error:
                problems.append(error)
        if problems:
            raise ExceptionGroup("the environment can't be used as it is", problems)

    @classmethod
    def _check_sandbox(cls, config: FunctionConfig) -> None:
        if "sandbox" in cls.function.parameters:
            named_factory(config.sandbox)

    def resources(self) -> Mapping[str, Resource | None]:
        return dict(self.function.prompts_with(self.config))

    async def setup(self, resources: AsyncExitStack) -> None:
        bypass_proxies_for_loopback()  # the gateway is there
        self.gateway = await resources.enter_async_context(Gateway())
        if "sandbox" in self.function.parameters:
            self.backend: Backend = await resources.enter_async_context(load_backend(self.config.sandbox))

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        async with AsyncExitStack() as stack:
            sandbox = None
            if "sandbox" in self.function.parameters:
                image = await self.backend.ensure_image(task.image, task.context)
                sandbox = await stack.enter_async_context(self.backend.open(agent_spec(task, image)))
            config, split = self._sampling(seat, {"max_seconds": self._limit_s(task)})
            server = ReportingServer(self._serving(seat), None if self.template is None else self.template.decode)
            opened = self.gateway.session(
                *(server, self.template, self.tool_format, config),
                split=split,
                trained=self.function.trained,
                tolerates=self.function.tolerates,
            )
            session = await stack.enter_async_context(opened)
            rewards = TurnRewards(server)
            model = str(self.servers[0].config.model_name)
            llm = LLM(session.base_url, session.anthropic_url, session.api_key, model, rewards.add)
            seat = replace(seat, recording=None)  # which is the session's
            given = {"task": task, "llm": llm, "sandbox": sandbox, "seat": seat, "config": self.config}
            given |= self.resources_of(seat)
            calling = self._call_function(task, given, session, server, rewards)
            return await self._report_turns(task, seat, llm, server, calling)

    async def _report_turns(
        self, task: Task, seat: Seat, llm: LLM, server: ReportingServer, calling: Coroutine[Any, Any, Outcome]
    ) -> Outcome:
        """Await the outcome, with reports to the hooks."""
        hooks = self.function.hooks
        if hooks:
            server.set_hooks(
                lambda tokens: _await_all(hook.turn_started(task, llm, tokens) for hook in hooks),
                lambda turn: _await_all(hook.turn_ended(task, llm, turn) for hook in hooks),
            )
        try:
            await _await_all(hook.rollout_started(task, llm, seat) for hook in hooks)
            outcome = await calling
        except Exception as error:  # it goes on; hooks hear of it
            await _await_all(hook.rollout_ended(task, llm, error) for hook in hooks)
            raise
        finally:
            calling.close()
        await _await_all(hook.rollout_ended(task, llm, outcome) for hook in hooks)
        return outcome

    async def _call_function(
        self, task: Task, given: Mapping[str, Any], session: Session, server: ReportingServer, rewards: TurnRewards
    ) -> Outcome:
        """Call the function and return the outcome. Raises its exceptions, and AgentError if the inference
        server failed, also if the function went on."""
        work, began = self.function, time.monotonic()
        chosen = {name: given[name] for name in work.parameters}
        try:
            value, problem = await call(work, chosen, self._limit_s(task), lambda: server.sampling_s), None
        except Exception as error:  # of the user: it decides what becomes of the rollout below
            value, problem = None, error
        result = await session.result()
        await server.drain()
        if problem is None:
            verdict = verdict_of(work.name, value)
        elif (
            work.over_budget is not None
            and result.stop_reason in BUDGETS
            and not isinstance(problem, FunctionTimeoutError)
        ):
            verdict = Verdict(work.over_budget, f"{result.stop_reason}: then it raised {problem!r}"[:500])
        else:
            raise problem
        if rewards.given:
            result = replace(result, metadata={**result.metadata, TURN_REWARDS: rewards.of(result)})
        return Outcome(result, verdict, {"function": time.monotonic() - began})

    def _limit_s(self, task: Task) -> float:
        """Return the function's time limit, without waits for slow inference servers."""
        own = self.config.rollout_timeout_s
        return own if task.timeout_s is None else min(own, task.timeout_s)

    def reward(self, task: Task, outcome: Outcome) -> float | Reward:
        worth = super().reward(task, outcome)
        own = outcome.result.metadata.get(TURN_REWARDS, ())
        if not own:
            return worth
        whole = reward_of(worth, len(own))
        given = whole.turn_advantages or [0.0] * len(own)
        return replace(whole, turn_advantages=tuple(map(sum, zip(given, own, strict=True))))


class MessagesEnv(FunctionEnv):
    """An environment with rollouts of one reply each, to a function's messages."""

    score: ClassVar[Callable[..., Any]]

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        work = self.function
        known = {"task": task, "prompt": task.instruction}
        given = {name: known[name] for name in work.parameters}
        messages = await call(work, given, self._limit_s(task), lambda: 0.0)
        history = (
            [HistoryMessage("user", messages)]
            if isinstance(messages, str)
            else [_history_message(work.name, one) for one in _listed(work.name, messages)]
        )
        async with self.session(seat, max_seconds=self._limit_s(task)) as session:
            try:
                turn = session.ask(GatewayRequest(history))
                if turn.work is not None:
                    await turn.work
                turn.taken = True
            except Refusal as refusal:
                if (await session.result()).stop_reason not in BUDGETS:
                    raise InfraError(Failure.ENVIRONMENT, f"{work.name}: {refusal}") from refusal
            result = await session.result()
        return Outcome(result, await judge_reply(self.score, task, result, self._limit_s(task)))


def environment_of(work: Work) -> type[FunctionEnv]:
    """Return the environment of a function."""
    about: dict[str, object] = {"name": work.name, "function": work}
    if work.score is None:
        return type(work.function.__name__, (FunctionEnv,), about)
    return type(work.function.__name__, (MessagesEnv,), {**about, "score": staticmethod(work.score)})


def _listed(name: str, messages: Any) -> list[Any]:
    """Return a function's messages. Raises InfraError for another value."""
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable) or not (found := list(messages)):
        what = f"{name} returned {messages!r:.80}; return a text, or a list of messages"
        raise InfraError(Failure.ENVIRONMENT, what, permanent=True)
    return found


def _history_message(name: str, message: Mapping[str, Any]) -> HistoryMessage:
    """Return a message of a function's. Raises InfraError for another value."""
    try:
        role, content = message["role"], message["content"]
    except (TypeError, KeyError):
        role, content = None, None
    if role not in ("system", "user", "assistant") or not isinstance(content, str):
        what = f"{name} returned {message!r}; a message is {{'role': 'system', 'user' or 'assistant', 'content': text}}"
        raise InfraError(Failure.ENVIRONMENT, what[:500], permanent=True)
    return HistoryMessage(role, content)


async def _await_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    for one in calls:
        await one
