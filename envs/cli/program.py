"""The command line of an environment: `serve`, `process`, `evaluate`, `doctor`, `export`, `groups` and `view`.

Options are `--env.NAME` for the environment and `--openai.NAME` for the inference server, as in atroposlib,
and may stand in a YAML file given with `--config`; the command line wins. Variables in a file `.env` of the
working directory count as if they were set, unless they are set already. atroposlib's own parser
ignores misspelt YAML keys, turns W&B on by itself, and takes a single server for a cluster of
four, so `envs.options.reading` parses them. Imports that take seconds wait until the options are right.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotenv import load_dotenv

from atropos_agent import __version__
from atropos_agent.engines.errors import ModelNotServed, NotThisServer
from envs.config import AgentEnvConfig
from envs.messages import current_command, describe_error, run_main
from envs.options import Options, UsageError
from envs.options.reading import read_options
from envs.options.usage import usage
from envs.records.redaction import Redactor
from envs.running.database import RunDirectoryError
from envs.running.limits import raise_open_files
from envs.running.proxies import bypass_proxies_for_loopback
from envs.running.stopping import (
    STARTING_S,
    STATUS,
    SignalHandler,
    check_place,
    exit_on_interrupt,
    run_to_end,
    run_until_signal,
)
from envs.types import BadTask
from sandboxes.log import TIMED, set_up_log
from sandboxes.naming import did_you_mean, lazy_import, resolve

if TYPE_CHECKING:
    from envs.base import AgentEnv
    from envs.cli.doctor import Surroundings

_READ_RATES = lazy_import("envs.records.comparison:read_rates")

logger = logging.getLogger(__name__)

WRONG_USE = 2
"""The exit status of a command with wrong input."""
_WRONG_USE = (UsageError, BadTask, ModelNotServed, NotThisServer, RunDirectoryError)

COMMANDS = {
    "serve": "make groups for a trainer at the Atropos API",
    "process": "make --env.total_steps groups without a trainer and write them as JSONL and HTML",
    "evaluate": "attempt every evaluation task and report pass@k",
}
MORE = {
    "doctor": "check inference server, tokenizer, rows and sandboxes before you train; with --json for programs",
    "export": "write rollouts as tables, triplets, or rows for TRL, verl, verifiers, tinker: `export RUN OUT`",
    "groups": "show each group's state and reason: `groups RUN_DIR`",
    "view": "show live or finished runs in a browser, or write rollouts into one file: `view RUN`",
}

_MODULES = {"export": "envs.running.exporting", "groups": "envs.running.groups", "view": "envs.viewer.command"}
"""Commands for a run's directory, each with a `main`."""

_START = lazy_import("envs.cli.starting:run_command")
_EXAMINATION = lazy_import("envs.cli.doctor")
_ENVIRONMENT = lazy_import("envs.base:AgentEnv")


@dataclass(frozen=True, slots=True)
class Program:
    """An environment as the user calls it.

    prog: its command as written. load: imports its class (this takes seconds). surroundings: imports `doctor`'s further
    checks; None for the common ones alone."""

    prog: str
    config_cls: type[AgentEnvConfig]
    load: Callable[[], type[AgentEnv[Any]]]
    surroundings: Callable[[], Surroundings] | None = None

    @classmethod
    def of(cls, env_cls: type[AgentEnv[Any]], prog: str | None = None) -> Program:
        """Make one of an imported class."""
        return cls(prog or current_command(), env_cls.env_config_cls, lambda: env_cls)


def run(env: Program | type[AgentEnv[Any]], argv: Sequence[str] | None = None, *, prog: str | None = None) -> int:
    """Run the command at the beginning of `argv`, the process's own when None. Returns the exit status."""
    program = env if isinstance(env, Program) else Program.of(env, prog)
    return run_main(partial(_run, program), sys.argv[1:] if argv is None else argv)


def _run(program: Program, argv: Sequence[str]) -> int:
    name, rest = (argv[0], argv[1:]) if argv else ("", ())
    if name in COMMANDS:
        return main(program, name, rest)
    if name == "doctor":
        return doctor(program, rest)
    if name == "--version":
        print(f"atropos-agent {__version__}")
        return 0
    if name in _MODULES:
        return int(import_module(_MODULES[name]).main(rest, prog=program.prog))
    known = COMMANDS | MORE
    commands = "\n".join(f"  {name:10} {what}" for name, what in known.items())
    listed = f"{program.prog} COMMAND [OPTIONS]\n\n{commands}\n\nCOMMAND --help shows the options of each."
    if name in ("-h", "--help"):
        print(listed)
        return 0
    wrong = f"there is no command {name!r}{did_you_mean(name, known)}\n\n" if name else ""
    print(wrong + listed, file=sys.stderr)
    return WRONG_USE


def main(env: Program | type[AgentEnv[Any]], command: str, argv: Sequence[str]) -> int:
    """Run one command to its end. Returns the exit status."""
    program = env if isinstance(env, Program) else Program.of(env)
    if print_help(program, command, COMMANDS[command], argv):
        return 0
    try:
        read_env_file()
        options = parse(program, command, argv)
    except UsageError as error:
        print(f"{error}\n{program.prog} {command} --help explains them", file=sys.stderr)
        return WRONG_USE
    own = program.config_cls.__module__.partition(".")[0]
    set_up_log(options.log_level.upper(), TIMED, own=[own])
    secrets = (secret for engine in options.engines for secret in engine.secrets)
    redactor = Redactor.of(os.environ, (*secrets, os.environ.get(options.env.teacher_key)))
    for handler in logging.getLogger().handlers:
        handler.addFilter(redactor)
    try:
        check_place()
        with exit_on_interrupt():
            logger.info("loading")
            env_cls, run_command = program.load(), _START()
        raise_open_files()
        with SignalHandler(closing_s=STARTING_S) as end:
            return int(asyncio.run(run_until_signal(run_command(env_cls, command, options, redactor, end), end)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STATUS
    except Exception as error:  # the last one to tell the user
        logger.debug("stopped by", exc_info=error)
        print(redactor.text(f"{program.prog} {command}: {describe_error(error)}"), file=sys.stderr)
        return WRONG_USE if isinstance(error, _WRONG_USE) else 1


def doctor(program: Program, argv: Sequence[str]) -> int:
    """Examine, print the certificate. 0: training would be right; 1: it would not; 2: wrong options."""
    if print_help(program, "doctor", MORE["doctor"], argv):
        return 0
    try:
        read_env_file()
        options = parse(program, "doctor", [argument for argument in argv if argument != "--json"])
    except UsageError as error:
        print(f"{error}\n{program.prog} doctor --help explains them", file=sys.stderr)
        return WRONG_USE
    set_up_log(logging.ERROR)
    with exit_on_interrupt():
        print("examining …", file=sys.stderr)
        examination = _EXAMINATION()
        surroundings = program.surroundings() if program.surroundings else examination.surroundings_of(program.load())
    certificate = run_to_end(examination.certify(options, surroundings), closing_s=STARTING_S)
    print(json.dumps(certificate.to_json(), indent=2) if "--json" in argv else certificate.render())
    return 0 if certificate.ok else 1


def print_help(program: Program, command: str, about: str, argv: Sequence[str]) -> bool:
    """Print a command's help on request; return whether it was requested."""
    flags = {"-h", "--help", "--help-all"} & set(argv)
    if flags:
        print(usage(program.prog, about, program.config_cls, command, whole="--help-all" in flags))
    return bool(flags)


def parse(program: Program, command: str, argv: Sequence[str]) -> Options:
    """Return the options on the command line and in its configuration file. Raises UsageError with every problem."""
    options = read_options(program.config_cls, argv)
    problems = []
    written = {word.partition("=")[0] for word in argv}  # a file of options may be another command's, too
    if command == "process" and "--env.steps_per_eval" in written:
        problems.append("--env.steps_per_eval: process makes no evaluation; leave it out, or use evaluate or serve")
    if command == "process" and options.env.total_steps < 0:
        problems.append("--env.total_steps: process has no trainer that says how many; give the number of groups")
    if command == "serve":
        try:
            options.env.check_groups()
        except ValueError as error:
            problems.append(str(error))
    if command != "evaluate":
        given = [name for name in Options.of_evaluate if getattr(options, name) is not None]
        problems += [f"--{name}: {command} makes no evaluation; leave it out, or use evaluate" for name in given]
    else:
        selects = "it selects tasks for training; --env.eval_tags and --env.skip_tags select those of an evaluation"
        problems += [f"--env.{name}: {selects}" for name in options.env.for_training if f"--env.{name}" in written]
        try:
            if options.against is not None:
                _READ_RATES()(options.against)
        except ValueError as error:
            problems.append(f"--against: {error}")
    if problems:
        raise UsageError.of(problems)
    return options


def read_env_file(path: Path = Path(".env")) -> None:
    """Set the variables of a file, unless they are set already, and keep proxies off loopback.

    Raises UsageError for a file that can't be read."""
    try:
        load_dotenv(path)
    except (OSError, ValueError) as error:
        why = "it is no text in UTF-8" if isinstance(error, UnicodeDecodeError) else error
        where = path.absolute()
        raise UsageError(f"{where} can't be read: {why}; mend it, or start in another directory") from error
    bypass_proxies_for_loopback()


def load_environment(path: str) -> type[AgentEnv[Any]]:
    """Return the environment at a dotted path such as `package.module:Class`. Raises UsageError with the remedy."""
    try:
        found = resolve("environment", path, {}, "atropos_agent.environments")
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = getattr(found, "environment", found)  # of a function (`envs.functions`)
    if not (isinstance(found, type) and issubclass(found, _ENVIRONMENT())):
        raise UsageError(
            f"{path!r} is no environment; give swe, or package.module:name of a subclass of AgentEnv or of a function "
            "with @rollout"
        )
    return found


def run_named(path: str, argv: Sequence[str]) -> int:
    """Run a command of the environment at a dotted path. Returns the exit status."""
    try:
        with exit_on_interrupt():
            print(f"loading {path} …", file=sys.stderr)
            env_cls = load_environment(path)
    except UsageError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    return run(env_cls, argv, prog=f"python -m envs {path}")
