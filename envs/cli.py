"""The command line of an environment: `serve`, `process` and `evaluate`.

Options are `--env.NAME` for the environment and `--openai.NAME` for the inference server, as in atroposlib,
and may stand in a YAML file given with `--config`; the command line wins. Variables in a file `.env` of the
working directory count as if they were set, where they are not. atroposlib's own parser
ignores misspelt YAML keys, turns W&B on by itself, and takes a single server for a cluster of
four, so the parsing is done here, with pydantic-settings.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from dotenv import load_dotenv
from pydantic import Field, ValidationError, create_model
from pydantic_settings import BaseSettings, CliSettingsSource, PydanticBaseSettingsSource
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from atropos_agent.engines.errors import ModelNotServed
from atropos_agent.engines.protocols import open_server
from atropos_agent.engines.tokenizers import compare_tokenizers
from atropos_agent.types import EngineError
from envs.base import AgentEnv
from envs.options import EngineConfig, Options, UsageError, load_tokenizer
from envs.records.redaction import Redactor
from envs.running import groups
from envs.running.commands import evaluate_once, process_groups, serve_trainer
from envs.running.limits import raise_open_files
from envs.running.stopping import STATUS, EndBySignal
from envs.running.waiting import once_reachable
from sandboxes.naming import resolve

logger = logging.getLogger(__name__)

COMMANDS = {
    "serve": "make groups for a trainer that is registered with the Atropos API",
    "process": "make --env.total_steps groups without a trainer and write them as JSONL and HTML",
    "evaluate": "attempt every evaluation task and report pass@k",
}
ABOUT_GROUPS = "what became of a run's groups, and why, in one table: `groups RUN_DIR`"

LOOK_S = 1.0
"""Seconds between two looks at an inference server that is waited for."""
LOADED_AFTER = 60
"""Looks at one that has come up before it counts as one that will not serve the model."""


def run(env_cls: type[AgentEnv[Any]], argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` begins with, that of the process when None. Returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in COMMANDS:
        return main(env_cls, argv[0], argv[1:])
    if argv and argv[0] == "groups":
        return groups.main(argv[1:])
    asked = bool(argv) and argv[0] in ("-h", "--help")
    usage = "\n".join(f"  {name:10} {what}" for name, what in (COMMANDS | {"groups": ABOUT_GROUPS}).items())
    print(f"{Path(sys.argv[0]).name} COMMAND [OPTIONS]\n\n{usage}", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def main(env_cls: type[AgentEnv[Any]], command: str, argv: Sequence[str]) -> int:
    """Run one command to its end. Returns the exit status."""
    load_dotenv(Path(".env"))
    try:
        options = parse(env_cls, command, argv)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    redactor = Redactor.of(os.environ, (engine.api_key for engine in options.engines))
    for handler in logging.getLogger().handlers:
        handler.addFilter(redactor)
    for noisy in ("httpx", "httpcore", "asyncio", "urllib3", "filelock"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))
    try:
        raise_open_files()
        with EndBySignal() as end:
            return asyncio.run(_run(env_cls, command, options, redactor, end))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STATUS
    except Exception as error:
        logger.debug("stopped by", exc_info=error)
        print(redactor.text(f"{env_cls.name} {command}: {error}"), file=sys.stderr)
        return 1


def parse(env_cls: type[AgentEnv[Any]], command: str, argv: Sequence[str]) -> Options:
    """Return the options on the command line and in the file that it names.

    Raises UsageError with every problem; SystemExit after `--help`."""
    file = _config_file(argv)
    listed = file.pop("openai") if isinstance(file.get("openai"), list) else []

    class File(PydanticBaseSettingsSource):
        def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
            return file.get(field_name), field_name, False

        def __call__(self) -> dict[str, Any]:
            return file

    class Sources(Options):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            prog = f"python -m envs.{env_cls.name} {command}"
            arguments: CliSettingsSource[Any] = CliSettingsSource(
                settings_cls, cli_parse_args=list(argv), cli_prog_name=prog
            )
            return arguments, File(settings_cls)

    env = (env_cls.env_config_cls, Field(default_factory=dict, validate_default=True))
    about = COMMANDS.get(
        command, "examine inference server, tokenizer, template, sandboxes and trainer API; --json for programs"
    )
    model: Any = create_model("Options", __base__=Sources, __doc__=about, env=env)
    try:
        options: Options = model()
        options._engines = [EngineConfig(**engine) for engine in listed]
    except ValidationError as error:
        raise UsageError(_explain(error)) from None
    return options


def load_environment(path: str) -> type[AgentEnv[Any]]:
    """Return the environment at a dotted path such as `package.module:Class`. Raises UsageError with the remedy."""
    try:
        found = resolve("environment", path, {})
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not (isinstance(found, type) and issubclass(found, AgentEnv)):
        raise UsageError(f"{path!r} is no environment; give swe, or package.module:Class of a subclass of AgentEnv")
    return found


async def _run(
    env_cls: type[AgentEnv[Any]], command: str, options: Options, redactor: Redactor, end: EndBySignal
) -> int:
    running = asyncio.ensure_future(_run_command(env_cls, command, options, redactor, end))
    end.follow(running.cancel, running.cancel)
    return await running


async def _run_command(
    env_cls: type[AgentEnv[Any]], command: str, options: Options, redactor: Redactor, end: EndBySignal
) -> int:
    await check(env_cls, options)
    env = await open_env(env_cls, command, options)
    env.redactor = redactor
    logger.info("results go to %s; a later start with --env.run_dir=%s continues", env.run_dir, env.run_dir)
    if command == "evaluate":
        summary = await evaluate_once(env)
        Console().print(summary.render())
    else:
        running = asyncio.create_task(serve_trainer(env) if command == "serve" else process_groups(env))
        end.stop = end.now = lambda: env.stopping.ask() or running.cancel()
        end.closing_s += options.env.shutdown_s
        if (path := await running) is not None:
            print(f"groups: {path}")
    print(f"results: {env.run_dir}")
    return STATUS if env.stopping.asked else 0


async def check(env_cls: type[AgentEnv[Any]], options: Options) -> None:
    """Find out now what would fail later: tasks, sandboxes, tokenizer, run directory. A Docker daemon that can't be
    reached is waited for, where nothing else is wrong. Raises UsageError with every problem and its remedy."""
    await once_reachable(lambda: _check_once(env_cls, options))


async def _check_once(env_cls: type[AgentEnv[Any]], options: Options) -> None:
    async def tokenizer() -> None:
        if options.env.tokenizer_name:
            await asyncio.to_thread(load_tokenizer, options.env.tokenizer_name)

    async def run_dir() -> None:
        directory = options.env.run_dir
        if directory is not None:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                (directory / ".writable").write_bytes(b"")
                (directory / ".writable").unlink()
            except OSError as error:
                raise UsageError(f"--env.run_dir {directory} can't be written ({error}); give another") from error

    results = await asyncio.gather(env_cls.preflight(options.env), tokenizer(), run_dir(), return_exceptions=True)
    problems: list[BaseException] = []
    for result in results:
        if isinstance(result, ExceptionGroup):
            problems += result.exceptions
        elif isinstance(result, BaseException):
            problems.append(result)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise UsageError(f"{len(problems)} things are wrong:\n{listed}") from problems[0]


async def open_env(env_cls: type[AgentEnv[Any]], command: str, options: Options) -> AgentEnv[Any]:
    """Make the environment, with inference servers that answer and a tokenizer that is theirs. Raises UsageError."""
    tokenizer = options.env.tokenizer_name
    if tokenizer:
        load_tokenizer(tokenizer)
    if any(engine.server_type == "openai" for engine in options.engines):
        if command == "serve":
            raise UsageError(
                "--openai.server_type openai gives no token ids and no logprobs, so nothing can be trained on its "
                "replies; serve needs a server that does: vllm, sglang or atropos (evaluate and process work)"
            )
        with TemporaryDirectory() as folder:
            named = tokenizer or write_empty_tokenizer(folder)
            return env_cls(options.env.model_copy(update={"tokenizer_name": named}), options.engines)
    named = tokenizer or await wait_for_engines(options.engines)
    env = env_cls(options.env.model_copy(update={"tokenizer_name": named}), options.engines)
    await check_tokenizer(env)
    return env


def write_empty_tokenizer(folder: str) -> str:
    """Write a tokenizer that knows no text, for atroposlib, which loads one even where nothing is encoded.
    Returns its folder."""
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"?": 0}, unk_token="?"))).save_pretrained(folder)
    return folder


async def wait_for_engines(configs: Sequence[EngineConfig]) -> str:
    """Wait until every inference server answers. Returns the model (a folder or a name) that the first serves."""
    first = ""
    for config in configs:
        async with open_server(config) as server:
            await _connect(server)
            first = first or server.root or config.model_name
    return first


async def _connect(server: Any) -> None:
    """Ask an inference server what it serves, waiting until it answers.

    Raises ModelNotServed; of one that has only just come up after `LOADED_AFTER` more looks."""
    looks, came_up = 0, None
    while True:
        try:
            await server.connect()
            return
        except EngineError as error:
            if isinstance(error, ModelNotServed):
                came_up = looks if came_up is None else came_up
                if came_up == 0 or looks - came_up >= LOADED_AFTER:
                    raise
            if looks % 15 == 0:
                logger.warning("%s; waiting for it", error)
        looks += 1
        await asyncio.sleep(LOOK_S)


async def check_tokenizer(env: AgentEnv[Any]) -> None:
    """Raise UsageError when an inference server encodes text differently from the tokenizer in use."""
    for server in env.server.servers:
        try:
            await _connect(server)
            difference = await compare_tokenizers(server, env.tokenizer)
        finally:
            # The run, which opens it again with its first request, may never begin.
            await server.close()
        if difference:
            raise UsageError(
                f"the tokenizer {env.config.tokenizer_name!r} is not the one of the inference server at {server.url}: "
                f"{difference.text}; set --env.tokenizer_name to the model that the server serves"
            )


def _config_file(argv: Sequence[str]) -> dict[str, Any]:
    for i, argument in enumerate(argv):
        if argument == "--config" or argument.startswith("--config="):
            path = Path(argument.partition("=")[2] or (argv[i + 1] if i + 1 < len(argv) else ""))
            try:
                value = yaml.safe_load(path.read_text()) or {}
            except (OSError, yaml.YAMLError) as error:
                raise UsageError(f"--config {path}: {error}") from None
            if not isinstance(value, dict):
                raise UsageError(f"--config {path}: expected a mapping with `env` and `openai`")
            return value
    return {}


def _explain(error: ValidationError) -> str:
    lines = ["these options are wrong:"]
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        given = (
            ""
            if problem["type"] in ("missing", "extra_forbidden")
            else f" (got {json.dumps(problem['input'], default=str)[:80]})"
        )
        message = "there is no such option" if problem["type"] == "extra_forbidden" else problem["msg"]
        lines.append(f"  --{place}: {message}{given}")
    return "\n".join(lines)
