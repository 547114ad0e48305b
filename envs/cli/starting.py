"""Start a command of an environment: errors of the later run are found now, inference servers are waited for."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from atropos_agent.engines.chat import UNNAMED, ChatServer
from atropos_agent.engines.errors import ModelNotServed, NotThisServer
from atropos_agent.engines.protocols import open_server
from atropos_agent.engines.tokenizers import compare_tokenizers
from atropos_agent.formats import AUTO
from atropos_agent.types import EngineError
from envs.base import AgentEnv, empty_tokenizer
from envs.config import AgentEnvConfig
from envs.options import WITHOUT_TOKENS, EngineConfig, Options, UsageError
from envs.options.tokenizer import load_tokenizer
from envs.records.comparison import NoEvaluation, compare, read_rates, table_of
from envs.records.disk import make_folder, replace_file
from envs.records.inspect_log import inspect_log, log_name
from envs.records.read import read_rollouts
from envs.records.redaction import Redactor
from envs.records.stats import EvalSummary
from envs.records.tables import make_console
from envs.running.commands import evaluate_once, process_groups, serve_trainer
from envs.running.evaluation import EvaluationMismatchError, Samples, describe_losses, evaluation_conditions
from envs.running.run import WHOLE
from envs.running.stopping import CLOSING_S, STATUS, SignalHandler
from envs.running.teaching import open_teacher, teacher_key, teacher_of
from envs.running.waiting import retry_until_reachable, retry_until_served
from envs.viewer.live import live_page
from sandboxes.log import without_control

logger = logging.getLogger(__name__)

WRITTEN = frozenset({".json", ".jsonl", ".db", ".html"})
"""Endings of files written into a run's directory."""


class TooFewSamplesError(RuntimeError):
    """An evaluation lost more samples than it may; the message gives the reason, in the words of the failure."""


async def run_command(
    env_cls: type[AgentEnv[Any]], command: str, options: Options, redactor: Redactor, end: SignalHandler
) -> int:
    env = await open_env(env_cls, command, options, await check(env_cls, options))
    env.redactor = redactor
    again = shlex.quote(str(env.run_dir))
    logger.info("results go to %s; a later start with --env.run_dir=%s continues", env.run_dir, again)
    async with live_page(env.run_dir, options.env.live):
        return await _run(env, command, options, end)


async def _run(env: AgentEnv[Any], command: str, options: Options, end: SignalHandler) -> int:
    why, end.closing_s = None, CLOSING_S
    if command == "evaluate":
        summary = await evaluate_and_compare(env, options)
        shared = getattr(options.env, "shard", WHOLE) != WHOLE  # its part may have no task
        why = None if shared and not summary.wanted else describe_losses(summary, options.env.eval_lost)
    else:
        running = asyncio.create_task(serve_trainer(env) if command == "serve" else process_groups(env))
        end.stop = end.now = lambda: env.stopping.ask() or running.cancel()
        end.closing_s += options.env.shutdown_s
        if (path := await running) is not None and path.exists():  # not if it was stopped before the first group
            print(f"groups: {path}")
    print(f"results: {env.run_dir}")
    if why is not None:
        raise TooFewSamplesError(why)
    return STATUS if env.stopping.requested else 0


async def evaluate_and_compare(env: AgentEnv[Any], options: Options) -> EvalSummary:
    """Evaluate, and return the results; print the table, the differences from an earlier evaluation, and write a log
    for Inspect's viewer, as the options want it. Raises UsageError."""
    before = None
    try:
        before = None if options.against is None else read_rates(options.against)
        summary = await evaluate_once(env)
        make_console().print(table_of(summary))
        for server in env.servers:
            if isinstance(server, ChatServer) and server.usage.requests:
                print(without_control(f"{server.config.model_name}: {server.usage}"))
        if before is not None and options.against is not None:
            now = read_rates(env.run_dir / "eval-0.json")
            make_console().print(f"against {options.against}: {compare(before, now)}", markup=False)
    except (NoEvaluation, EvaluationMismatchError) as error:
        raise UsageError(str(error)) from error
    if options.inspect_log is not None:
        samples = await Samples.open(env.run_dir / "eval-0.samples.jsonl", {**evaluation_conditions(env), "step": 0})
        log = inspect_log(summary, samples.rollouts, read_rollouts(env.run_dir))
        path = options.inspect_log / log_name(log)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, orjson.dumps(env.redactor.value(log)))
        print(f"for `inspect view --log-dir {options.inspect_log}`: {path}")
    return summary


async def check(env_cls: type[AgentEnv[Any]], options: Options) -> Any:
    """Find errors of the later run now: tasks, sandboxes, tokenizer, run directory, the variable with the teacher's
    key. An unreachable Docker daemon is waited for, if nothing else is wrong. Returns the tokenizer, or None if the
    options name none. Raises UsageError with every problem and its remedy."""
    return await retry_until_reachable(lambda: _check_once(env_cls, options))


async def _check_once(env_cls: type[AgentEnv[Any]], options: Options) -> Any:
    async def tokenizer() -> Any:
        if not (named := options.env.tokenizer_name):
            return None
        return await asyncio.to_thread(load_tokenizer, named, trust_remote_code=options.env.trust_remote_code)

    async def run_dir() -> None:
        given = options.env.run_dir
        directory = make_folder(given, Path("runs"), "--env.run_dir")
        in_the_way = [path.name for path in directory.iterdir() if path.suffix in WRITTEN and not path.is_file()]
        if given is not None and in_the_way:
            named = ", ".join(sorted(in_the_way))
            raise UsageError(
                f"--env.run_dir {directory}: where files are written, there is something else ({named}); move it "
                "away, or give another directory"
            )

    async def other_places() -> None:
        _check_places(options)

    async def teacher() -> None:
        teacher_key(options.env)

    looks = (env_cls.preflight(options.env), tokenizer(), run_dir(), other_places(), teacher())
    results = await asyncio.gather(*looks, return_exceptions=True)
    problems: list[BaseException] = []
    for result in results:
        if isinstance(result, ExceptionGroup):
            problems += result.exceptions
        elif isinstance(result, BaseException):
            problems.append(result)
    # A wrong agent is met by the look at the agents and by that at their tasks.
    problems = list({str(problem): problem for problem in problems}.values())
    if len(problems) == 1:
        (problem,) = problems
        if isinstance(problem, ValueError):
            raise UsageError(str(problem)) from problem
        raise problem
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise UsageError(f"{len(problems)} things are wrong:\n{listed}") from problems[0]
    return results[1]


def _check_places(options: Options) -> None:
    """Raise NoFolder or UsageError for a place outside of the run's directory that could not be written in the end."""
    for option, place in (
        ("--inspect_log", options.inspect_log),
        ("--env.data_dir_to_save_evals", options.env.data_dir_to_save_evals),
    ):
        if place is not None:
            make_folder(Path(place), Path(place), option)
    if (groups := options.env.data_path_to_save_groups) is not None:
        option, path = "--env.data_path_to_save_groups", Path(groups)
        make_folder(path.parent, path.parent, option)
        if path.is_dir():
            raise UsageError(f"{option} {path} is a folder; name a file in it, such as groups.jsonl")


async def open_env(
    env_cls: type[AgentEnv[Any]], command: str, options: Options, tokenizer: Any = None
) -> AgentEnv[Any]:
    """Make the environment, with responsive inference servers and their own tokenizer. Raises UsageError.

    tokenizer: that of the options' name, if it was loaded before."""
    if command == "serve":
        try:
            options.env.check_ratios()
        except ValueError as error:
            raise UsageError(str(error)) from error
    named, trusted = options.env.tokenizer_name, options.env.trust_remote_code
    if named and tokenizer is None:
        tokenizer = load_tokenizer(named, trust_remote_code=trusted)
    engines = options.engines
    if plain := [engine.server_type for engine in engines if engine.server_type in WITHOUT_TOKENS]:
        if command == "serve":
            raise UsageError(
                f"--openai.server_type {plain[0]} gives no token ids and no logprobs, so nothing can be trained on its "
                "replies; serve needs a server that does: vllm, sglang or atropos (evaluate and process work)"
            )
        await wait_for_endpoints(env_cls, options.env, engines)
        if options.env.teacher and command != "evaluate":
            raise UsageError(f"--env.teacher scores token ids, and --openai.server_type {plain[0]} gives none")
        return env_cls(options.env.with_tokenizer(named, tokenizer or empty_tokenizer()), engines)
    if not named:
        named = await wait_for_engines(engines)
        tokenizer = load_tokenizer(named, given=False, trust_remote_code=trusted)
    env = env_cls(options.env.with_tokenizer(named, tokenizer), engines)
    await check_tokenizer(env)
    if command != "evaluate":
        await check_teacher(env)
    return env


async def wait_for_endpoints(
    env_cls: type[AgentEnv[Any]], env: AgentEnvConfig, engines: Sequence[EngineConfig]
) -> None:
    """Wait until every server for messages answers, and check that it takes the key, knows the model and shows tools to
    it. If an engine's options name no model, the one it serves is written there. Raises ModelNotServed,
    NotThisServer."""
    native = env.tool_format == env.tool_role == AUTO
    for config in engines:
        server = env_cls.server_cls(config)
        try:
            await retry_until_served(server.connect)
            config.model_name = server.config.model_name
            if native and server.takes_tools:
                await _check_tools(server, needed=env.needs_tools)
        finally:
            await server.close()


async def _check_tools(server: Any, *, needed: bool) -> None:
    try:
        await retry_until_served(server.check_tools)
    except NotThisServer as error:
        if needed:
            raise
        logger.warning("%s; without tools for the model this changes nothing", error)


async def wait_for_engines(configs: Sequence[EngineConfig]) -> str:
    """Wait until every inference server answers. Returns the first server's model (a folder or a name)."""
    first = ""
    for config in configs:
        async with open_server(config) as server:
            await retry_until_served(server.connect)
            first = first or server.root or ("" if config.model_name in UNNAMED else config.model_name)
    if not first:
        raise UsageError("the inference server does not say which model it serves; set --openai.model_name to it")
    return first


async def check_teacher(env: AgentEnv[Any]) -> None:
    """Wait for the teacher, if there is one. Raise UsageError, NotThisServer or ModelNotServed when it can't score the
    model's tokens."""
    if not env.config.teacher:
        return
    try:
        async with teacher_of(env.config) as teacher:
            await retry_until_served(teacher.server.connect)
        async with open_teacher(env):
            pass
    except (NotThisServer, ModelNotServed):
        raise
    except EngineError as error:
        raise UsageError(f"{error}; --env.teacher needs vLLM's prompt_logprobs") from error
    except ValueError as error:
        raise UsageError(str(error)) from error


async def check_tokenizer(env: AgentEnv[Any]) -> None:
    """Raise UsageError when an inference server encodes text differently from the tokenizer in use."""
    for server in env.server.servers:
        try:
            await retry_until_served(server.connect)
            difference = await compare_tokenizers(server, env.tokenizer)
        finally:
            # The run, which opens it again with its first request, may never begin.
            await server.close()
        if difference:
            raise UsageError(
                f"the tokenizer {env.config.tokenizer_name!r} is not the one of the inference server at {server.url}: "
                f"{difference.text}; set --env.tokenizer_name to the model that the server serves"
            )
