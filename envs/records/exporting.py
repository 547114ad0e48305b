"""`python -m envs.swe export RUN OUT`: a run's rollouts as tables, as triplets, or as rows for a trainer.

RUN is a run's directory; for `--to triplets` also a file of spans in OTLP's JSON. OUT is a folder for `parquet`,
`dataset`, `jsonl` and `hub`, else a file.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import orjson

from envs.messages import SWE, describe_error, replace_command
from envs.records.disk import flush
from envs.records.flat import rollout_row, token_rows, turn_rows
from envs.records.plain import plain
from envs.records.read import SavedRollout, read_rollouts
from envs.records.triplets import rollout_triplets, span_triplets
from sandboxes.arguments import Parser, output_path
from sandboxes.installing import install
from sandboxes.naming import lazy_import
from sandboxes.plurals import plural

_ROWS: Mapping[str, Callable[[SavedRollout], Iterable[dict[str, Any]]]] = {
    "rollouts": lambda saved: [rollout_row(saved)],
    "turns": turn_rows,
    "rows": token_rows,
}
_OF_FILES = frozenset({".jsonl", ".json", ".parquet", ".csv", ".arrow"})
FRAMES = lazy_import("envs.records.frames")
"""The module that writes Parquet: it needs pyarrow, of an extra."""
_DATASETS = lazy_import("datasets")
FORMS = ("parquet", "dataset", "jsonl", "triplets")


def main(
    argv: Sequence[str],
    *,
    prog: str = SWE,
    more: Mapping[str, Callable[[Path, Path], str]] = MappingProxyType({}),
    push: Callable[[Path, str], None] | None = None,
) -> int:
    """Export a run. Returns 0, or 2 when there is nothing to export, or no room for it.

    more: further forms with one file or folder, by name; each writes a run to it and returns a summary.
    push: uploads what `--to hub` wrote."""
    prog = replace_command(prog)
    parser = Parser(prog=f"{prog} export", description=replace_command(__doc__, prog))
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's directory, or a file of spans")
    parser.add_argument("out", type=output_path, metavar="OUT", help="folder or file to write; it must not exist")
    forms = (*FORMS, *more)
    written = f"what is written, one of {', '.join(forms)} (%(default)s)"
    parser.add_argument("--to", choices=forms, default="parquet", metavar="FORM", help=written)
    parser.add_argument("--hub", metavar="OWNER/NAME", help="also upload it there, as --to hub writes it (HF_TOKEN)")
    options = parser.parse_args(argv)
    try:
        status = _export(options.run, options.out, "hub" if options.hub else options.to, more)
        if options.hub and push is not None:
            push(options.out, options.hub)
            print(f"uploaded: {options.hub}")
        return status
    except ModuleNotFoundError as error:
        print(f"--to {options.to} needs {error.name}: {install('datasets')}", file=sys.stderr)
    except (ValueError, OSError) as error:
        print(describe_error(error), file=sys.stderr)
    return 2


def _export(run: Path, out: Path, form: str, more: Mapping[str, Callable[[Path, Path], str]]) -> int:
    spans = run.is_file()
    if spans and form != "triplets":
        raise ValueError(f"{run} is a file; --to {form} takes a run's directory")
    if not spans and not any(run.glob("rollouts*.jsonl")):
        raise ValueError(f"{run} holds no rollouts; name the directory of a run")
    if not spans and next(iter(read_rollouts(run)), None) is None:
        raise ValueError(f"{run} holds no rollout that can be read")
    if out.exists():
        raise ValueError(f"{out} is there already; name another place")
    if form != "triplets" and form not in more and out.suffix in _OF_FILES:
        raise ValueError(f"--to {form} writes a folder of three files, and {out} reads like one file; name a folder")
    part = out.with_name(f".{out.name}.part")
    with ExitStack() as stack:
        stack.callback(_remove, part)
        _remove(part)  # of an export that was killed
        part.mkdir(parents=True)
        summary = _write(run, part / out.name, form, more)
        flush(part)
        (part / out.name).replace(out)
    print(f"{out}: {summary}" if out.is_dir() and form not in more else f"{summary}: {out}")
    return 0


def _remove(out: Path) -> None:
    """Remove an unfinished file or folder."""
    if out.is_dir():
        shutil.rmtree(out, ignore_errors=True)
    else:
        out.unlink(missing_ok=True)


def _write(run: Path, out: Path, form: str, more: Mapping[str, Callable[[Path, Path], str]]) -> str:
    """Write a run to a place. Returns a summary."""
    if form in more:
        return more[form](run, out)
    if form == "triplets":
        if not (count := write_lines(_triplets(run), out)):
            raise ValueError(f"{run} holds no turn of a model, and a triplet is one")
        return plural(count, "triplet")
    if form == "jsonl":
        out.mkdir()
        _write_tables(run, out)
    elif form == "parquet":
        FRAMES().write_parquet(run, out)
    else:
        _write_dataset(run, out)
    return ", ".join(sorted(path.name for path in out.iterdir()))


def _write_tables(run: Path, out: Path) -> None:
    """Write the tables as JSON lines, in one pass: the tables of a run that goes on have the same rollouts."""
    with ExitStack() as stack:
        files = {name: stack.enter_context((out / f"{name}.jsonl").open("wb")) for name in _ROWS}
        for saved in read_rollouts(run):
            for name, rows_of in _ROWS.items():
                files[name].writelines(orjson.dumps(plain(row)) + b"\n" for row in rows_of(saved))


def _write_dataset(run: Path, out: Path) -> None:
    """Write a `datasets.DatasetDict` for `datasets.load_from_disk`."""
    datasets = _DATASETS()
    with TemporaryDirectory(dir=out.parent) as folder:
        files = FRAMES().write_parquet(run, Path(folder, "parquet"))
        parts = {
            name: datasets.Dataset.from_parquet(str(path), cache_dir=str(Path(folder, "cache")))
            for name, path in files.items()
        }
        # Their columns differ, so that they are no splits of one.
        for name, part in parts.items():
            part.save_to_disk(str(out / name))


def _triplets(run: Path) -> Iterator[dict[str, Any]]:
    if run.is_file():
        with run.open(encoding="utf-8") as lines:
            yield from span_triplets(lines)
    else:
        for saved in read_rollouts(run):
            yield from rollout_triplets(saved)


def write_lines(rows: Iterable[dict[str, Any]], path: Path) -> int:
    """Write rows as JSON lines. Returns how many. Raises OSError."""
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(plain(row)) + b"\n")
            count += 1
    return count
