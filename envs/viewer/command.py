"""The command `view`: runs on a page, or chosen rollouts in one file for sending."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from envs.messages import SWE, describe_error, replace_command
from envs.records.report import write_report
from envs.running.database import RunDirectoryError
from envs.runs.reader import TOKENIZER, NoRun, decoder
from envs.viewer.choosing import Choice, NothingChosen, choose
from envs.viewer.door import address, key_of, listen
from envs.viewer.parsers import view_parser
from envs.viewer.runs import open_runs, run_directories
from envs.viewer.server import serve
from sandboxes.arguments import WRONG_USE
from sandboxes.plurals import plural

CHOSEN_BY = ("latest", "step", "best", "worst", "group", "rollout")
"""Options for the content of --export."""


def main(argv: Sequence[str], *, prog: str = SWE) -> int:
    """Serve the page until Ctrl-C, or write a file. Returns 0, or 2 when there is no run or nothing was chosen."""
    prog = replace_command(prog)
    options = view_parser(prog).parse_args(argv)
    try:
        directories = run_directories(options.runs)
        if options.export is not None:
            return _export(options, directories)
        if useless := [name for name in CHOSEN_BY if getattr(options, name) not in (None, [])]:
            raise NothingChosen(
                "\n".join(f"--{name}: says what --export writes; give --export FILE" for name in useless)
            )
        return _serve(options, directories)
    except (NoRun, NothingChosen, RunDirectoryError) as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    except OSError as error:
        print(f"{prog} view: {describe_error(error)}", file=sys.stderr)
        return 1


def _serve(options: Namespace, directories: Sequence[Path]) -> int:
    try:
        listening = listen("127.0.0.1", options.port)
    except OSError as error:
        raise NothingChosen(f"--port {options.port}: {error.strerror}; give another, or leave it out") from error
    with listening:
        key = key_of(directories[0])
        runs = open_runs(directories, options.tokenizer)
        print(f"{address(listening, key)}\nCtrl-C ends it", flush=True)
        serve(runs, listening, key, lambda server: None, [path for path in options.runs if path not in directories])
    return 0


def _export(options: Namespace, directories: Sequence[Path]) -> int:
    if len(directories) > 1:
        names = ", ".join(map(str, directories))
        raise NothingChosen(f"--export writes rollouts of one run; give one of {names}")
    choice = Choice(options.latest, options.best, options.worst, options.step, options.group, options.rollout)
    rollouts = choose(directories[0], choice)
    write_report(
        rollouts,
        options.export,
        decode=decoder(options.tokenizer or directories[0] / TOKENIZER),
        title=directories[0].resolve().name,
        summary={"chosen": str(choice)},
        max_details=len(rollouts),
    )
    print(f"{plural(len(rollouts), 'rollout')}: {options.export}")
    return 0
