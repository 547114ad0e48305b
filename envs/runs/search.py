"""Turn filters and words of a search into SQL over the index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from envs.runs.facts import KINDS as LABELS
from envs.runs.index import SEPARATOR
from sandboxes.naming import did_you_mean

PAGE = 50
"""Rollouts on one page of a list."""
COUNTED = 10_000
"""Largest count of matching rollouts."""

WHERE = {"": "everywhere", "instruction": "in instructions", "conversation": "in replies", "output": "in outputs"}
ORDERS = {
    "newest": "place DESC",
    "oldest": "place",
    "best": "reward DESC, place DESC",
    "worst": "reward, place",
    "longest": "tokens DESC",
    "most turns": "turns DESC",
    "slowest": "seconds DESC",
}
KINDS = {"": "all", "training": "in training", "evaluation": "in evaluations"}
BY = {"": "", "step": "step", "task": "task", "group": "grp", "stop": "stop", "version": "policy"}
"""Columns for lines of figures, by their names in a filter."""
_MEANS = ("reward", "judged", "solved", "turns", "tokens", "sampled", "seconds", "tool_errors", "malformed")
OUTCOMES = {"": "solved or not", "solved": "solved", "unsolved": "not solved"}
_WORD = re.compile(r'"([^"]*)"?|(\S+)')


class BadFilter(ValueError):
    """A filter can't be followed; the message names it."""


@dataclass(frozen=True, slots=True)
class Filters:
    """A search; "" for no condition.

    q: words and "phrases", all of which must match, a word* by its beginning. group, step: one, or from-to. least,
    most: of the reward. version: of the oldest weights, one or from-to. resource: as name=version.
    """

    q: str = ""
    where: str = ""
    task: str = ""
    tag: str = ""
    tool: str = ""
    sign: str = ""
    trouble: str = ""
    agent: str = ""
    resource: str = ""
    version: str = ""
    stop: str = ""
    step: str = ""
    least: str = ""
    most: str = ""
    outcome: str = ""
    kind: str = ""
    group: str = ""
    order: str = "newest"
    page: int = 1

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Filters:
        """Read them from the query of an API request. Raises BadFilter also for an unknown name."""
        names = [field.name for field in fields(cls)]
        if wrong := [name for name in given if name not in names]:
            raise BadFilter(
                f"there is no filter {wrong[0]!r}{did_you_mean(wrong[0], names)}; there are {', '.join(names)}"
            )
        return cls.of(given)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Filters:
        """Read them from an address. Raises BadFilter."""
        values: dict[str, Any] = {field.name: given[field.name].strip() for field in fields(cls) if field.name in given}
        page = values.pop("page", "1")
        if not page.isdecimal() or not 1 <= int(page) <= 1_000_000:
            raise BadFilter(f"page {page!r} is no number of a page")
        for name, known in (("where", WHERE), ("order", ORDERS), ("kind", KINDS), ("outcome", OUTCOMES)):
            if values.get(name, "") and values[name] not in known:
                raise BadFilter(f"{name} {values[name]!r} is not one of {', '.join(filter(None, known))}")
        return cls(**{name: value for name, value in values.items() if value}, page=int(page))

    @property
    def words(self) -> list[str]:
        """Return the searched words and phrases with a letter or a digit."""
        found = [phrase or word for phrase, word in _WORD.findall(self.q.replace("\0", " "))]
        return [word for word in found if any(letter.isalnum() for letter in word)]

    def query(self, **changed: object) -> dict[str, str]:
        """Return the address of these filters, with some of them changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | {"page": 1} | changed
        unset = {field.name: field.default for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value not in ("", unset[name])}

    @property
    def set(self) -> dict[str, str]:
        """Return the set filters, by name."""
        query = self.query()
        return {name: value for name, value in query.items() if name not in ("order", "page")}


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of rollouts. count: of all matching ones, up to `COUNTED` + 1."""

    rollouts: Sequence[sqlite3.Row]
    count: int


def find(db: sqlite3.Connection, filters: Filters, size: int = PAGE) -> SearchPage:
    """Return a page of the matching rollouts, `size` at most. Raises BadFilter."""
    table, conditions, values = _conditions(filters)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = "rollouts.*, (SELECT explanation FROM said WHERE said.place = rollouts.place) AS explanation"
    order = ORDERS[filters.order]
    if "words" in table and filters.order == "newest":
        order = "words.rowid DESC"  # its own order, in which the first page is found without the rest
    # Their places first: what is sorted is then not the whole lines.
    chosen = f"SELECT rollouts.place AS found FROM {table} {where} ORDER BY {order} LIMIT ? OFFSET ?"
    rows = db.execute(
        f"SELECT {columns} FROM ({chosen}) JOIN rollouts ON rollouts.place = found ORDER BY {ORDERS[filters.order]}",
        (*values, size, size * (filters.page - 1)),
    ).fetchall()
    if not conditions:
        (count,) = db.execute("SELECT coalesce(sum(rollouts), 0) FROM steps").fetchone()
    else:
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} {where} LIMIT {COUNTED + 1})"
        (count,) = db.execute(counted, values).fetchone()
    return SearchPage(rows, count)


def behind(db: sqlite3.Connection, filters: Filters, place: int, most: int) -> list[sqlite3.Row]:
    """Return the first `most` matching rollouts after a place, in the order of saving. Raises BadFilter."""
    table, conditions, values = _conditions(filters)
    where = " AND ".join([*conditions, "rollouts.place > ?"])
    columns = "rollouts.*, (SELECT explanation FROM said WHERE said.place = rollouts.place) AS explanation"
    query = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY rollouts.place LIMIT ?"
    return db.execute(query, (*values, place, most)).fetchall()


def figures(db: sqlite3.Connection, filters: Filters, by: str = "", size: int = PAGE) -> list[dict[str, Any]]:
    """Return sums and means over the matching rollouts: in one line, or in a page of lines by a column of `BY`. Raises
    BadFilter."""
    if by not in BY:
        raise BadFilter(f"by {by!r} is not one of {', '.join(filter(None, BY))}")
    table, conditions, values = _conditions(filters)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    column = BY[by]
    named = f'{column} AS "{by}", ' if by else ""
    means = ", ".join(f"avg({name}) AS {name}" for name in _MEANS)
    query = f"SELECT {named}count(*) AS rollouts, {means}, sum(tokens) AS all_tokens FROM {table} {where}"
    if by:
        query += f" GROUP BY {column} ORDER BY {column} LIMIT ? OFFSET ?"
        values += [size, size * (filters.page - 1)]
    return [dict(row) for row in db.execute(query, values)]


def task_lines(db: sqlite3.Connection, kind: str, size: int = PAGE, page: int = 1) -> list[dict[str, Any]]:
    """Return a page of the tasks, with the figures of their rollouts. kind: training, evaluation or "". Raises
    BadFilter."""
    if kind not in KINDS:
        raise BadFilter(f"kind {kind!r} is not one of {', '.join(filter(None, KINDS))}")
    kinds = (0, 1) if not kind else (kind == "evaluation",) * 2
    query = (
        "SELECT task, sum(rollouts) AS rollouts, sum(reward) / sum(rollouts) AS reward, "
        "1.0 * sum(solved) / sum(rollouts) AS solved FROM tasks WHERE evaluating IN (?, ?) GROUP BY task "
        "ORDER BY task LIMIT ? OFFSET ?"
    )
    return [dict(row) for row in db.execute(query, (*kinds, size, max(0, size) * (page - 1)))]


def neighbours(db: sqlite3.Connection, filters: Filters, place: int) -> tuple[int | None, int | None]:
    """Return the places of the matching rollouts before and after one, newest first. Raises BadFilter."""
    table, conditions, values = _conditions(filters)
    found = []
    for comparison, order in ((">", "ASC"), ("<", "DESC")):
        where = " AND ".join([*conditions, f"rollouts.place {comparison} ?"])
        query = f"SELECT rollouts.place FROM {table} WHERE {where} ORDER BY rollouts.place {order} LIMIT 1"
        row = db.execute(query, (*values, place)).fetchone()
        found.append(None if row is None else int(row[0]))
    return found[0], found[1]


def _conditions(filters: Filters) -> tuple[str, list[str], list[object]]:
    """Return the tables, conditions, and their values."""
    table = "rollouts"
    conditions: list[str] = []
    values: list[object] = []
    if filters.q:
        if not filters.words:
            raise BadFilter(f"{filters.q!r} has no word that could be searched for: words have letters or digits")
        table = "words CROSS JOIN rollouts ON rollouts.place = words.rowid"
        conditions.append("words MATCH ?")
        values.append(_match(filters))
    for kind in LABELS:
        if name := getattr(filters, kind):
            conditions.append("instr(labels, ?) > 0")
            values.append(f"{SEPARATOR}{kind}:{name}{SEPARATOR}")
    for column in ("task", "stop"):
        if name := getattr(filters, column):
            conditions.append(f"{column} = ?")
            values.append(name)
    for column, name, yes in (("solved", "outcome", "solved"), ("evaluating", "kind", "evaluation")):
        if wanted := getattr(filters, name):
            conditions.append(f"{column} = ?")
            values.append(int(wanted == yes))
    for name, condition in (("least", "reward >= ?"), ("most", "reward <= ?")):
        if getattr(filters, name):
            conditions.append(condition)
            values.append(_number(name, getattr(filters, name), float))
    for name, column in (("group", "grp"), ("step", "step"), ("version", "policy")):
        if text := getattr(filters, name):
            first, dash, last = text.partition("-")
            conditions += [f"{column} >= ?", f"{column} <= ?"]
            values += [_number(name, first, int), _number(name, last if dash else first, int)]
    return table, conditions, values


def _match(filters: Filters) -> str:
    """Return the words for FTS5: each is a quoted phrase, so nothing in them is an operator."""
    phrases = []
    for word in filters.words:
        begins = word.endswith("*") and len(word) > 1
        quoted = word.rstrip("*").replace('"', '""') if begins else word.replace('"', '""')
        phrases.append(f'"{quoted}"{"*" if begins else ""}')
    return f"{{{filters.where}}} : ({' AND '.join(phrases)})" if filters.where else " AND ".join(phrases)


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        found = kind(text)
        if abs(found) < 2**62:
            return found
    except (ValueError, OverflowError):
        pass
    raise BadFilter(f"{name} {text!r} is no number")
