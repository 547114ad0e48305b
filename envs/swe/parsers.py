"""Parsers of `tasks` and `rejudge`, apart from the work: explaining options needs none of its imports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.checking.manifest import NAME
from envs.messages import SWE, replace_command
from envs.tasks.adapters import ADAPTERS, ROWS
from envs.tasks.adapters.sets import SETS
from sandboxes.arguments import Parser, new_output_file, output_file, output_folder, positive_int, url
from sandboxes.naming import lazy_import

_CHECK = "Check that each task rewards its reference solution with 1, and an untouched tree not."
_ATTACK = """\
Find tasks whose tests accept a wrong patch: try generic cheats on each, or a model, with the options of `evaluate`
(--openai.NAME, --env.NAME, --config FILE) after those below. Tasks that were not checked are checked first.
"""
_SHELL = """\
Open a shell in a task's sandbox, as its agent gets it. Options of a run (--env.sandbox, --env.pods.NAME, --env.judge,
--config FILE) come after those below. Without a terminal the shell reads stdin. Its exit status is the command's.
"""
_FORGE = "Make tasks from Python packages with tests: add bugs that some of the tests find."
_CONVERT = "Convert tasks of another format into Harbor task directories, which every command takes."
_GET = """\
Download a published set of tasks in one revision, and convert it. Unusable tasks are left out and listed in a file.
"""
_SKIP_BAD = "leave out unusable tasks or rows, and list them with the reasons"
_HOSTS = "Docker hosts for the sandboxes, such as ssh://a,ssh://b or a YAML file, instead of this machine's daemon"
CACHE = Path.home() / ".cache/atropos-agent/forge"
_REJUDGE = """\
`python -m envs.swe rejudge RUN`: judge the saved work of a run again, by other tests, rewards or verifiers, without a
model.

It uses the tasks of --tasks, or the run's own in their present state. The table shows the rollouts with a changed
verdict; a new file in the run's directory has all of them.
"""
_READ_HOSTS = lazy_import("sandboxes.fleet:read_hosts")


class _TasksParser(Parser):
    """A parser that leaves the options of a run behind those of `attack` and `shell` alone, as `model`."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        words = list(args or ())
        theirs = (i for i, word in enumerate(words) if word.startswith(("--openai.", "--env.", "--config")))
        end = next(theirs, len(words)) if words[:1] in (["attack"], ["shell"]) else len(words)
        found = super().parse_args(words[:end], namespace)
        found.model = words[end:]
        return found


def tasks_parser() -> Parser:
    """Return the parser of `tasks`; `command` in its result is the chosen one."""
    parser = _TasksParser(prog=replace_command(f"{SWE} tasks"))
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_check(commands)
    _add_attack(commands)
    _add_shell(commands)
    _add_forge(commands)
    _add_convert(commands)
    _add_get(commands)
    return parser


def _add_check(commands: argparse._SubParsersAction[Parser]) -> None:
    check = commands.add_parser("check", help=_CHECK, description=_CHECK)
    check.set_defaults(command="check")
    _add_checking(check)


def _add_attack(commands: argparse._SubParsersAction[Parser]) -> None:
    attack = commands.add_parser("attack", help=_ATTACK, description=_ATTACK)
    attack.set_defaults(command="attack")
    _add_checking(attack)


def _add_shell(commands: argparse._SubParsersAction[Parser]) -> None:
    shell = commands.add_parser("shell", help=_SHELL, description=_SHELL)
    shell.set_defaults(command="shell")
    shell.add_argument("folder", metavar="FOLDER", help='Harbor task directories, or "starter"')
    shell.add_argument("id", metavar="ID", help="the task; of several steps it is the first")
    shell.add_argument("--rollout", type=Path, metavar="RUN/ID", help="begin with this saved rollout's changes")
    judged = "judge what was done in it, as an agent's work; status 0 means a reward of 1"
    shell.add_argument("--judge", action="store_true", help=judged)
    shell.add_argument("--hosts", type=_parse_hosts, help=_HOSTS)


def _add_checking(command: Parser) -> None:
    """Add the options of a check."""
    command.add_argument("folder", nargs="?", default="starter", help='Harbor task directories, or "starter"')
    command.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="only tasks with one of these tags or ids"
    )
    command.add_argument("--repeats", type=positive_int, default=1, help="checks of each task; results must agree (1)")
    command.add_argument(
        "--seen",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="check tasks many times in which these runs got different verdicts on the same changes",
    )
    command.add_argument("--concurrency", type=positive_int, default=4, help="tasks at the same time (4)")
    command.add_argument(
        "--manifest",
        type=output_file,
        help=f"file of results ({NAME} in the folder); unchanged sound tasks in it are not checked again",
    )
    command.add_argument("--skip-bad", action="store_true", help=_SKIP_BAD)
    command.add_argument("--again", action="store_true", help="check all tasks again, whatever the manifest says")
    command.add_argument("--base-image", help="replaces the image in the last FROM of each Dockerfile")
    command.add_argument("--default-network", choices=("no-network", "public"), help="as --env.default_network")
    command.add_argument("--hosts", type=_parse_hosts, help=_HOSTS)
    command.add_argument("--judge", type=url, metavar="URL", help="as --env.judge of a run")
    command.add_argument("--judge-model", default="", metavar="NAME", help="as --env.judge_model")
    command.add_argument("--judge-key", default="", metavar="VARIABLE", help="as --env.judge_key")


def _add_forge(commands: argparse._SubParsersAction[Parser]) -> None:
    forging = commands.add_parser("forge", help=_FORGE, description=_FORGE)
    forging.set_defaults(command="forge")
    forging.add_argument("sources", nargs="+", metavar="PACKAGE_OR_DIR", help="NAME, NAME==VERSION or a source tree")
    forging.add_argument(
        "--out", type=output_folder, required=True, metavar="DIR", help="folder for the task directories"
    )
    forging.add_argument(
        "--per-package", type=positive_int, default=30, metavar="N", help="most tasks from each package (30)"
    )
    forging.add_argument("--limit", type=positive_int, metavar="N", help="most tasks in all")
    forging.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed makes the same tasks")
    forging.add_argument("--concurrency", type=positive_int, default=2, help="packages at the same time (2)")
    forging.add_argument(
        "--cache", type=output_folder, default=CACHE, help="folder for downloaded sources (%(default)s)"
    )
    forging.add_argument("--hosts", type=_parse_hosts, help=_HOSTS)
    forging.add_argument(
        "--no-check", action="store_true", help="don't run `tasks check`, which removes the tasks that fail it"
    )


def _add_convert(commands: argparse._SubParsersAction[Parser]) -> None:
    converting = commands.add_parser("convert", help=_CONVERT, description=_CONVERT)
    converting.set_defaults(command="convert")
    converting.add_argument("format", choices=sorted(ADAPTERS))
    converting.add_argument("source", type=Path, help=f"a folder, or rows: {ROWS}, with :SPLIT after it")
    converting.add_argument("--skip-bad", action="store_true", help=_SKIP_BAD)
    _add_converted(converting)


def _add_get(commands: argparse._SubParsersAction[Parser]) -> None:
    getting = commands.add_parser("get", help=_GET, description=_GET)
    getting.set_defaults(command="get", skip_bad=True)
    getting.add_argument("name", choices=list(SETS), metavar="NAME", help=", ".join(SETS))
    getting.add_argument(
        "--from", type=Path, dest="given", metavar="PATH", help="your own copy: a file, or a folder of the set's files"
    )
    _add_converted(getting)


def _add_converted(command: Parser) -> None:
    """Add the options for what becomes of converted tasks."""
    command.add_argument(
        "--out", type=output_folder, required=True, metavar="DIR", help="folder for the task directories"
    )
    command.add_argument("--check", action="store_true", help="run `tasks check` on the converted tasks")
    command.add_argument("--hosts", type=_parse_hosts, help=_HOSTS)
    command.add_argument(
        "--printed-results",
        action="store_true",
        help="also rows whose tests only print their results, which the tested code could fake (docs/tasks.md)",
    )


def _parse_hosts(text: str) -> str:
    """Return a list of Docker hosts, checked."""
    try:
        _READ_HOSTS()(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def rejudge_parser() -> Parser:
    """Return the parser of `rejudge`."""
    parser = Parser(prog=replace_command(f"{SWE} rejudge"), description=replace_command(_REJUDGE))
    add = parser.add_argument
    add("run_dir", type=Path, metavar="RUN", help="directory of the run")
    add("--tasks", metavar="FOLDER", help='folder of tasks, or "starter"; by default the run\'s own')
    add("--reward", metavar="PATH", help="reward: package.module:function of (task, outcome); by default the run's own")
    add("--only", nargs="+", default=[], metavar="NAME", help="only rollouts of tasks with one of these tags or ids")
    add("--concurrency", type=positive_int, default=4, help="rollouts at the same time (%(default)s)")
    add(
        "--out",
        type=new_output_file,
        metavar="FILE",
        help="file for the verdicts of each rollout (by default a new one in RUN)",
    )
    add("--sandbox", help="docker, or package.module:factory; by default the run's own")
    add("--hosts", help="Docker hosts for the sandboxes, as --env.hosts; by default the run's own")
    add("--base-image", help="replaces the image in the last FROM of each Dockerfile")
    return parser
