"""Tools that search: file contents by regular expression, files by name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from pydantic import PositiveInt

from sandboxes.base import ExecResult, Sandbox
from tools.base import ToolError
from tools.output import replace_unreadable, truncate, whole_lines
from tools.paths import locate

_TIMEOUT_S = 30.0
_MAX_OUTPUT = 1_000_000
_MAX_RESULTS = 100
_MAX_LINE = 200

_BAD_PATTERN = 98
_NO_SUCH_PATH = 99
_NO_PROGRAM = 127

# POSIX find and grep, so that any image will do. The pattern is tried first, because the exit code of
# find does not tell a wrong pattern from one that matches nothing. /dev/null makes grep name its files.
_SEARCH = f"""
error=$(echo | grep -q "$3" -e "$2" 2>&1) || case $? in
  1) ;;
  {_NO_PROGRAM}) exit {_NO_PROGRAM};;
  *) printf '%s' "$error"; exit {_BAD_PATTERN};;
esac
[ -e "$1" ] || exit {_NO_SUCH_PATH}
exec find -H "$1" -name .git -prune -o -type f "$4" "$5" -exec grep -n "$3" -e "$2" /dev/null {{}} + 2>/dev/null
"""
_FIND = f"""
[ -e "$1" ] || exit {_NO_SUCH_PATH}
exec find -H "$1" -name .git -prune -o -type d "$2" "$3" -exec printf '%s/\\n' {{}} + \\
    -o ! -type d "$2" "$3" -print 2>/dev/null
"""

_MATCH = re.compile(r"(?P<path>.+?):(?P<line>\d{1,9}):(?P<text>.*)")


class Search:
    """Two tools for finding things. `.git` is always left out, and so are binary files.

    Paths are absolute, or start at the sandbox's workdir (not at the terminal's present directory)."""

    def __init__(self, sandbox: Sandbox, *, output_chars: PositiveInt = 8_000) -> None:
        """Make the tools. output_chars: characters of results shown by one call."""
        self._sandbox = sandbox
        self._output_chars = output_chars

    async def search(self, pattern: str, path: str = ".", include: str = "*", fixed: bool = False) -> str:
        """Search file contents with grep -E.

        Args:
            pattern: extended regular expression.
            path: file or directory.
            include: glob of file names, such as "*.py".
            fixed: take the pattern literally.
        """
        if not pattern or "\n" in pattern or "\0" in pattern:
            raise ToolError("the pattern must be one line of text, not empty")
        if not fixed and re.search(r"(?<!\\)(\\\\)*\\[dD]", pattern):
            raise ToolError(r"grep -E does not know \d; write [0-9]")
        result = await self._run(_SEARCH, path, pattern, "-F" if fixed else "-E", *_glob_arguments(include))
        if result.exit_code == _BAD_PATTERN:
            raise ToolError(f"wrong pattern: {result.output.strip()}")
        # Lines without file and number say that a binary file matches; NULs show one that grep took for text.
        lines = (line for line in result.output.split("\n") if "\0" not in line)
        matches = [match for line in lines if (match := _MATCH.fullmatch(line.rstrip("\r")))]
        matches.sort(key=lambda match: (match["path"], int(match["line"])))
        shown = (f"{_path(path, m['path'])}:{m['line']}:{truncate(m['text'], _MAX_LINE)}" for m in matches)
        return self._format_results(shown, len(matches), "matches", result)

    async def find(self, name: str, path: str = ".") -> str:
        """Find files and directories by name.

        Args:
            name: glob, such as "test_*.py" or "src/*.c".
            path: directory to look in.
        """
        result = await self._run(_FIND, path, *_glob_arguments(name))
        lines = whole_lines(result.output)
        found = sorted(line for line in lines if line.startswith(".") and line not in (".", "./"))
        return self._format_results((_path(path, line) for line in found), len(found), "names", result)

    async def _run(self, script: str, path: str, *arguments: str) -> ExecResult:
        directory, name = locate(self._sandbox, path)
        command = ["/bin/sh", "-c", script, "sh", name, *arguments]
        # Bytes are compared as bytes: no image needs a locale, and nothing is binary but for its NULs.
        result = await self._sandbox.exec(
            command, cwd=directory, env={"LC_ALL": "C"}, timeout=_TIMEOUT_S, max_output=_MAX_OUTPUT
        )
        if result.exit_code == _NO_PROGRAM:
            raise ToolError("this sandbox lacks find or grep, so nothing can be searched; use the terminal")
        # 126: the directory to start in is missing or closed.
        if result.exit_code in (_NO_SUCH_PATH, 126):
            raise ToolError(f"no such file or directory: {path}")
        return result

    def _format_results(self, shown: Iterable[str], count: int, what: str, result: ExecResult) -> str:
        lines: list[str] = []
        room = self._output_chars
        for line in shown:
            room -= len(line) + 1
            if len(lines) == _MAX_RESULTS or room < 0:
                break
            lines.append(replace_unreadable(line))
        if len(lines) < count:
            total = f"more than {count:,}" if result.truncated or result.timed_out else f"{count:,}"
            lines.append(f"[{len(lines)} of {total} {what}; narrow the search]")
        if result.timed_out:
            lines.append(f"[stopped after {_TIMEOUT_S:.0f} s; narrow the search]")
        return "\n".join(lines) or f"(no {what})"


def _glob_arguments(pattern: str) -> tuple[str, str]:
    """Return the arguments of `find` for a glob. Raises ToolError."""
    if not pattern or "\0" in pattern or "{" in pattern:
        raise ToolError("a glob is one pattern such as *.py; alternatives in braces are not supported")
    if "/" not in pattern:
        return "-name", pattern
    # In -path an asterisk matches slashes too, so that ** needs no more than it.
    return "-path", "*/" + pattern.removeprefix("./").removeprefix("/").replace("**/", "*")


def _path(given: str, found: str) -> str:
    """Return a path of the output, relative to the directory as the model gave it."""
    name = posixpath.basename(given.rstrip("/"))
    base = given.rstrip("/") if name in ("", ".", "..") else posixpath.dirname(given.rstrip("/"))
    return posixpath.normpath(posixpath.join(base, found)) + ("/" if found.endswith("/") else "")
