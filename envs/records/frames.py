"""Make tables of a run's rollouts, turns and token rows, for data frames, Parquet and datasets.

`tables(directory)["rollouts"].to_pandas()` is a data frame; polars takes the tables directly. Needs pyarrow, of the
extra `datasets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from envs.records.flat import rollout_row, token_rows, turn_rows
from envs.records.plain import plain
from envs.records.read import SavedRollout, read_rollouts

T = TypeVar("T")

_TOKENS, _AT_LEAST = 2**18, 512
"""About the most tokens in memory at the same time; a rollout counts as so many at least."""
_BYTES = 2**24
"""Bytes of JSON that become a table at the same time, about."""

_TEXTS, _NUMBERS = pa.list_(pa.string()), pa.list_(pa.int64())
SCHEMAS: Mapping[str, pa.Schema] = {
    "rollouts": pa.schema(
        [
            *((name, pa.string()) for name in ("id", "task")),
            ("tags", _TEXTS),
            *((name, pa.int64()) for name in ("group", "member", "step")),
            ("evaluating", pa.bool_()),
            ("model", pa.string()),
            *((name, pa.float64()) for name in ("temperature", "top_p", "reward", "verdict")),
            ("solved", pa.bool_()),
            *((name, pa.string()) for name in ("stop_reason", "error")),
            *((name, pa.int64()) for name in ("turns", "tokens", "sampled_tokens", "policy_version")),
            *((name, pa.int64()) for name in ("tool_calls", "malformed_calls", "tool_errors", "refused_tokens")),
            *((name, pa.float64()) for name in ("seconds", "engine_s", "tools_s")),
            ("signs", _TEXTS),
            *((name, pa.string()) for name in ("final_response", "explanation", "output", "patch")),
            *((name, pa.string()) for name in ("messages", "tests", "metrics", "timings_s", "tools", "sampling")),
            ("resources", pa.string()),
        ]
    ),
    "turns": pa.schema(
        [
            *((name, pa.string()) for name in ("rollout", "task")),
            ("turn", pa.int64()),
            *((name, pa.string()) for name in ("response", "thinking", "content", "finish_reason", "correction")),
            *((name, pa.string()) for name in ("calls", "results")),
            *((name, pa.int64()) for name in ("segment", "start", "prompt_tokens", "completion_tokens")),
            *((name, pa.float64()) for name in ("engine_s", "tools_s")),
            ("policy_version", pa.int64()),
        ]
    ),
    "rows": pa.schema(
        [
            *((name, pa.string()) for name in ("rollout", "task")),
            *((name, pa.int64()) for name in ("segment", "turns", "policy_version")),
            ("reward", pa.float64()),
            *((name, _NUMBERS) for name in ("tokens", "masked_tokens")),
            ("logprobs", pa.list_(pa.float64())),
            ("text", pa.string()),
        ]
    ),
}
"""The columns of each table. Values without a fixed form (messages, calls, tests) are JSON."""


def tables(directory: Path | str) -> dict[str, pa.Table]:
    """Return all tables of a run in memory. Raises as `read_rollouts` does."""
    chunks: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in SCHEMAS.items()}
    for chunk in _table_chunks(directory):
        for name, table in chunk.items():
            chunks[name].append(table)
    return {name: pa.concat_tables(parts) for name, parts in chunks.items()}


def write_parquet(directory: Path | str, folder: Path) -> dict[str, Path]:
    """Write each table of a run to a Parquet file of its name in a folder, a part at a time. Returns the files.

    Raises as `read_rollouts` does, and OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.parquet" for name in SCHEMAS}
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(pq.ParquetWriter(path, SCHEMAS[name], compression="zstd"))
            for name, path in files.items()
        }
        for chunk in _table_chunks(directory):
            for name, table in chunk.items():
                writers[name].write_table(table)
    return files


def write_table(rows: Iterable[dict[str, Any]], out: Path) -> None:
    """Write rows to a Parquet file, a part at a time. Raises OSError.

    A column's type may show in the last row alone. So the rows are first written to a temporary file beside it."""
    lines = (orjson.dumps(plain(row)) + b"\n" for row in rows)
    schema = pa.schema([])
    with TemporaryFile(dir=out.parent) as spool:
        for piece in _chunk_by_size(lines, len, _BYTES):
            spool.writelines(piece)
            found = pa.array(map(orjson.loads, piece)).type
            schema = pa.unify_schemas([schema, pa.schema(list(found))], promote_options="permissive")
        spool.seek(0)
        with pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for piece in _chunk_by_size(spool, len, _BYTES):
                writer.write_table(pa.Table.from_pylist([*map(orjson.loads, piece)], schema))


def _table_chunks(directory: Path | str) -> Iterator[dict[str, pa.Table]]:
    for chunk in _chunk_by_size(read_rollouts(directory), _size, _TOKENS):
        rows = {
            "rollouts": [rollout_row(saved) for saved in chunk],
            "turns": [row for saved in chunk for row in turn_rows(saved)],
            "rows": [row for saved in chunk for row in token_rows(saved)],
        }
        yield {name: pa.Table.from_pylist(found, SCHEMAS[name]) for name, found in rows.items()}


def _size(saved: SavedRollout) -> int:
    return max(_AT_LEAST, sum(len(row.tokens) for row in saved.result.segments))


def _chunk_by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield items in lists; each ends when its sizes sum up to `most`."""
    piece: list[T] = []
    sizes = 0
    for item in items:
        piece.append(item)
        sizes += size(item)
        if sizes >= most:
            yield piece
            piece, sizes = [], 0
    if piece:
        yield piece
