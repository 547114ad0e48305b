"""The parser of `view`, apart from the work: explaining options needs none of its imports."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from envs.messages import SWE, replace_command
from sandboxes.arguments import Parser, nonnegative_int, output_file, port, positive_int

_VIEW = """\
`python -m envs.swe view RUN [RUN ...]`: show runs in a browser, or write chosen rollouts into one file.

It reads the files of live and finished runs. The page has an overview over the trainer's steps, groups with their
members side by side, rollouts with their conversation, patch and tokens, and a search in all messages; two runs are
compared task by task. It answers on this machine only, behind a key in its address.
"""


def view_parser(prog: str = SWE) -> Parser:
    """Return the parser of `view`."""
    prog = replace_command(prog)
    parser = Parser(prog=f"{prog} view", description=replace_command(_VIEW, prog))
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directory of a run, or of several")
    parser.add_argument("--port", type=port, default=0, help="port of the page on this machine (a free one)")
    parser.add_argument(
        "--tokenizer",
        type=_file,
        help="a tokenizer.json, if the run's directory has none; without it tokens are shown as ids",
    )
    chosen = parser.add_argument_group("one file with chosen rollouts")
    chosen.add_argument("--export", type=_page, metavar="PAGE.html", help="write this file, and start no server")
    chosen.add_argument("--latest", type=positive_int, help="number of newest rollouts (20 if nothing is chosen)")
    chosen.add_argument("--step", type=nonnegative_int, help="only rollouts of this step of the trainer")
    chosen.add_argument("--best", type=positive_int, help="number of rollouts with the highest rewards")
    chosen.add_argument("--worst", type=positive_int, help="number of rollouts with the lowest rewards")
    chosen.add_argument("--group", type=nonnegative_int, help="the members of this group")
    chosen.add_argument("--rollout", action="append", default=[], help="the rollout with this id; may be repeated")
    return parser


def _page(text: str) -> Path:
    """Return a page for writing: a run's own files have other names."""
    if (path := output_file(text)).suffix != ".html":
        raise ArgumentTypeError(f"{path} is no page; give a name that ends in .html")
    return path


def _file(text: str) -> Path:
    path = Path(text)
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise ArgumentTypeError(f"{text} is no tokenizer.json, and no folder with one")
    return path
