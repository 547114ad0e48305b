"""Mend errors of form in the patches of rows, and refuse patches unreadable by git.

`git apply --numstat` tests whether git can read a patch, but it passes over lines outside of a hunk's counts, reads
names without `a/` and `b/` as shorter ones, and finds nothing wrong with binary files without content. So hunks are
counted here, too.

Mended: a lost line end, also after blank context lost with it; line ends turned into CRLF, headers' too; wrong
line counts of hunks; names without `a/` or `b/`, with `./`, of a backup, or with more text after
them; a byte order mark. Refused: everything else unreadable by git, a patch with its end cut off, lines outside of
any hunk, two names for one file, binary files without content, submodules, paths out of the tree.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from envs.types import BadTask

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
_HEADER = re.compile(r"diff --git |--- |\+\+\+ ")
_MARKS = " +-\\"
_CONTEXT = 3
"""The most lines of context after a change in a diff."""
_BINARY = re.compile(r"^Binary files .* differ$", re.MULTILINE)
_PREFIX = re.compile(r'"|(?:[abciow12]|old|new|orig)/')
_NOWHERE = "/dev/null"
_BEHIND_NAME = re.compile(r"(?:\t.*| +\((?:revision \d+|working copy|nonexistent)\)| +)$")
"""Text after a file's name in a header, not part of the name."""
_BACKUP = re.compile(r"\.(?:orig|old|bak)$|~$")
_SUBMODULE = re.compile(
    r"^(?:index [0-9a-f]+\.\.[0-9a-f]+|(?:new|deleted) file mode|(?:old|new) mode) 160000$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch readable by git. paths: of the files created, changed, renamed or removed by it."""

    text: str
    paths: Sequence[str]


def read_patch(text: str, where: str) -> Patch:
    """Return a patch, with errors of form repaired. where: its place, for messages. Raises BadTask."""
    try:
        repaired = _repair(text)
        names = _patched_files(repaired)
    except ValueError as error:
        raise BadTask(f"{where}: git can't read this patch: {error}; mend it, or leave it out") from None
    old = re.findall(r"^(?:--- a/|rename from )(.+?)(?:\t.*)?$", repaired, re.MULTILINE)
    return Patch(repaired, list(dict.fromkeys([*names, *(name for name in old if not _is_outside(name))])))


def _patched_files(text: str) -> list[str]:
    """Return the files of a patch, as git reads it. Raises ValueError if git can't."""
    if (binary := _BINARY.search(text)) is not None:
        raise ValueError(f"the content of a binary file is left out ({binary[0]!r})")
    if _SUBMODULE.search(text) is not None:
        raise ValueError("it changes a submodule, whose files are left out")
    # Outside of any repository, whose folder would limit what is seen, and without anybody's settings.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_DIR": "/nonexistent"}
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    command, data = ["git", "apply", "--numstat", "-z", "-"], text.encode("utf-8", "surrogateescape")
    try:
        ran = subprocess.run(command, input=data, cwd="/", env=env | alone, capture_output=True, check=False)
    except FileNotFoundError:
        raise ValueError("there is no git here to try it with (install git)") from None
    if ran.returncode != 0:
        raise ValueError(ran.stderr.decode("utf-8", "replace").strip().removeprefix("error: "))
    found = [record.split("\t", 2)[2] for record in ran.stdout.decode("utf-8", "replace").split("\0") if record]
    if (outside := next(filter(_is_outside, found), None)) is not None:
        raise ValueError(f"the path {outside!r} leads out of the source tree")
    return found


def _is_outside(path: str) -> bool:
    return path.startswith("/") or not {"..", ".git"}.isdisjoint(path.split("/"))


def _repair(text: str) -> str:
    """Return a patch with each hunk as long as its header says. Raises ValueError."""
    lines = text.removeprefix("\ufeff").split("\n")
    ended = not lines[-1]
    if ended:
        lines.pop()
    if all(line.endswith("\r") for line in lines if _HEADER.match(line)):
        lines = [line.removesuffix("\r") for line in lines]
    lines = _add_prefixes(lines)
    repaired, at = [], 0
    while at < len(lines):
        head = _HUNK.match(lines[at])
        part, at = _hunk(head, lines, at, ended) if head else (lines[at : at + 1], at + 1)
        repaired += part
    if "GIT binary patch" in repaired and repaired[-1]:
        repaired.append("")  # which ends a binary file
    return "\n".join(repaired) + "\n"


def _hunk(head: re.Match[str], lines: Sequence[str], at: int, ended: bool) -> tuple[list[str], int]:
    """Return one hunk from its first line, with the text after it, repaired, and the line of its end.

    head: of the hunk. ended: the patch has its last line end. Raises ValueError."""
    wanted = int(head[2] or 1), int(head[4] or 1)
    if (end := _counted_end(lines, at + 1, wanted)) is not None:
        stop = _next_header(lines, end)
        if not _may_belong_to_hunk(lines[end:stop]):
            return list(lines[at:stop]), stop
        if not lines[end]:
            raise ValueError(f"after line {end} are lines that belong to no hunk")
    stop = _next_header(lines, at + 1)
    body = list(takewhile(lambda line: line[:1] in _MARKS, lines[at + 1 : stop]))
    rest = list(lines[at + 1 + len(body) : stop])
    if _may_belong_to_hunk(rest):
        raise ValueError(f"after line {at + 1 + len(body)} are lines that belong to no hunk")
    if body and body[-1].rstrip() == "--" and rest:  # a mail's signature
        body.pop()
    while body and not body[-1]:
        body.pop()
    have = _count_lines(body)
    short, last = (wanted[0] - have[0], wanted[1] - have[1]), stop == len(lines)
    blank = short[0] if short[0] == short[1] <= _CONTEXT else 0
    if blank > 0 and (not body or body[-1][:1] != " " or (last and not ended)):
        return [lines[at], *body, *[" "] * blank, *rest], stop
    if last and min(short) >= 0:
        raise ValueError(f"it ends within the hunk of line {at + 1}, so it was cut off")
    return [f"@@ -{head[1]},{have[0]} +{head[3]},{have[1]} @@{head[5]}", *body, *rest], stop


def _counted_end(lines: Sequence[str], at: int, wanted: tuple[int, int]) -> int | None:
    """Return the end of a hunk if it has as many lines as its header says, else None."""
    old, new = wanted
    while (old > 0 or new > 0) and at < len(lines) and lines[at][:1] in _MARKS:
        mark = lines[at][:1] or " "
        old, new, at = old - (mark in " -"), new - (mark in " +"), at + 1
    while at < len(lines) and lines[at].startswith("\\"):
        at += 1
    return at if old == new == 0 else None


def _next_header(lines: Sequence[str], at: int) -> int:
    """Return the first line of the next hunk or file, from a line on."""
    while at < len(lines) and not (
        _HUNK.match(lines[at]) or lines[at].startswith("diff --git ") or _names_file(lines, at)
    ):
        at += 1
    return at


def _names_file(lines: Sequence[str], at: int) -> bool:
    head = lines[at : at + 3]
    return len(head) == 3 and head[0][:4] == "--- " and head[1][:4] == "+++ " and bool(_HUNK.match(head[2]))


def _may_belong_to_hunk(lines: Sequence[str]) -> bool:
    """Tell whether lines after a hunk may belong to it: neither a mail's signature nor prose."""
    for line in lines:
        if line.rstrip() == "--" or line.startswith(("From ", "```")):
            return False
        if line.startswith(("+", "-")):
            return True
    return False


def _count_lines(body: Sequence[str]) -> tuple[int, int]:
    marks = [line[:1] or " " for line in body]
    return sum(mark in " -" for mark in marks), sum(mark in " +" for mark in marks)


def _add_prefixes(lines: Sequence[str]) -> list[str]:
    """Return a patch with `a/` and `b/` before all its names."""
    heads = [at for at in range(len(lines)) if _names_file(lines, at)]
    found = list(lines)
    for at in heads:
        found[at : at + 2] = _file_headers(lines[at][4:], lines[at + 1][4:])
    renames = any(line.startswith(("rename from ", "copy from ")) for line in lines)
    if not any(_lacks_prefixes(found[at][4:], found[at + 1][4:], renames=renames) for at in heads):
        return found
    for at in heads:
        for place, prefix in ((at, "a/"), (at + 1, "b/")):
            mark, name = found[place][:4], found[place][4:]
            found[place] = f"{mark}{name if name.startswith(_NOWHERE) else prefix + name}"
    return [_git_header(line) for line in found]


def _file_headers(old: str, new: str) -> tuple[str, str]:
    """Return a file's two headers; a missing `a/` or `b/` is added if the other name has its own."""
    old, new = (_BEHIND_NAME.sub("", name).removeprefix("./") for name in (old, new))
    if _NOWHERE not in (old, new):
        old = old if old == new else _BACKUP.sub("", old)
        old, new = (f"a/{old}" if new == f"b/{old}" else old), (f"b/{new}" if old == f"a/{new}" else new)
    return f"--- {old}", f"+++ {new}"


def _lacks_prefixes(old: str, new: str, *, renames: bool) -> bool:
    """Tell whether a file's names before and after the change have no prefix. Raises ValueError for the names of two
    files."""
    known = {old, new} - {_NOWHERE}
    if len({name.partition("/")[2] for name in known}) > 1 and not renames:
        raise ValueError(f"one file is named {old!r} and {new!r}")
    return len(known) == 1 and not all(map(_PREFIX.match, known))


def _git_header(line: str) -> str:
    if not line.startswith("diff --git "):
        return line
    names = line.removeprefix("diff --git ")
    half = len(names) // 2
    old, new = (names[:half], names[half + 1 :]) if names[:half] == names[half + 1 :] else _split_two_names(names)
    return f"diff --git a/{old} b/{new}" if new else line


def _split_two_names(names: str) -> tuple[str, str]:
    old, _, new = names.partition(" ")
    return old, new
