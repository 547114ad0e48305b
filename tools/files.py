"""Tools that read and edit text files: view, create, replace, insert."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass

from pydantic import PositiveInt

from sandboxes.base import Sandbox
from sandboxes.plurals import plural
from tools.base import ToolError
from tools.closest import find_closest
from tools.output import replace_unreadable, truncate, whole_lines
from tools.paths import check_path, locate, path_error

_MAX_BYTES = 16 * 2**20
_MAX_LINE = 1_000
"""Characters shown of one line."""
_MAX_ENTRIES = 200
"""Entries shown of a directory."""
_AROUND = 3
"""Lines shown before and after a change."""

# Two levels without -maxdepth, which POSIX lacks; directories end in a slash; hidden entries are left
# out. No parentheses: between them busybox forgets what `-exec ... +` has gathered.
_SLASHED = ("-exec", "printf", "%s/\\n", "{}", "+")
_LIST = (
    *("find", ".", "-name", ".?*", "-prune", "-o", "-type", "d", "!", "-path", "./*/*", *_SLASHED),
    *("-o", "-type", "d", "-prune", *_SLASHED, "-o", "-print"),
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A file's text, with LF line ends. Bytes that are not UTF-8 are kept as surrogates.

    crlf: every line end in the file is CRLF; they are put back when it is written."""

    path: str
    content: str
    crlf: bool = False

    @classmethod
    def of(cls, path: str, data: bytes) -> _Text:
        """Decode a file. Raises ToolError for binary files."""
        if b"\0" in data:
            raise ToolError(f"{path} is a binary file of {len(data):,} bytes")
        text = data.decode("utf-8", errors="surrogateescape")
        crlf = "\r\n" in text and text.count("\n") == text.count("\r\n")
        return cls(path, text.replace("\r\n", "\n") if crlf else text, crlf)

    def encode(self) -> bytes:
        text = self.content.replace("\n", "\r\n") if self.crlf else self.content
        return text.encode("utf-8", errors="surrogateescape")

    def adapt_line_ends(self, text: str) -> str:
        """Return the model's text with this text's line ends."""
        return text.replace("\r\n", "\n") if self.crlf else text

    @property
    def lines(self) -> list[str]:
        """Return the lines without their ends; a last line end starts no further line."""
        lines = self.content.split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    def number_lines(self, first: int, end: int) -> str:
        """Return lines from index `first` to before `end`, each with its number from 1 and a tab."""
        chosen = self.lines[max(first, 0) : end]
        return "\n".join(_number_line(number, line) for number, line in enumerate(chosen, max(first, 0) + 1))


class Files:
    """Four tools for text files, each with only the parameters it needs.

    One tool with a command parameter, as `str_replace_editor` has, leaves most parameters optional
    in the schema: a wrong combination is only found when it runs. Four tools cost a few more
    prompt tokens, but a small model has less to get wrong, and the schema refuses the rest.

    Paths are absolute, or start at the sandbox's workdir (not at the terminal's present directory).
    """

    def __init__(self, sandbox: Sandbox, *, output_chars: PositiveInt = 8_000) -> None:
        """Make the tools. output_chars: characters of a file or listing shown by one call."""
        self._sandbox = sandbox
        self._output_chars = output_chars

    async def view(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Show a file with line numbers, or list a directory.

        Args:
            path: file or directory.
            start: first line.
            end: last line.
        """
        data = await self._read_bytes(path)
        if data is None:
            return await self._list_directory(path)
        text = _Text.of(path, data)
        lines = text.lines
        if not lines:
            return "(empty file)"
        if not 1 <= start <= len(lines):
            raise ToolError(f"{path} has lines 1 to {len(lines)}; start is {start}")
        if end is not None and end < start:
            raise ToolError(f"end is {end}, before start {start}")
        last = min(end or len(lines), len(lines))
        shown: list[str] = []
        room = self._output_chars
        for number in range(start, last + 1):
            line = _number_line(number, lines[number - 1])
            room -= len(line) + 1
            if room < 0 and shown:
                break
            shown.append(line)
        reached = start + len(shown) - 1
        if reached < last:
            shown.append(f"[lines {start} to {reached} of {len(lines)}; go on with start={reached + 1}]")
        return "\n".join(shown)

    async def create(self, path: str, content: str) -> str:
        """Write a file; an existing one is overwritten.

        Overwriting is allowed because it is how a small file is rewritten, and the answer says
        that it happened. Missing directories are made; an existing file keeps its mode.

        Args:
            path: file.
            content: the whole text.
        """
        check_path(path)
        data = content.encode()
        lines = len(_Text(path, content).lines)
        count = plural(lines, "line")
        try:
            await self._sandbox.read_file(path, max_bytes=0)
        except FileNotFoundError:
            try:
                await self._sandbox.write_file(path, data)
            except OSError as error:
                raise path_error(path, error) from None
            return f"created {path} ({count})"
        except OSError as error:
            raise path_error(path, error) from None
        except ValueError:
            pass  # It exists and is not empty.
        await self._overwrite(path, data)
        return f"overwrote {path} ({count})"

    async def replace(self, path: str, old: str, new: str) -> str:
        """Replace text in a file. It must occur exactly once.

        Args:
            path: file.
            old: the exact text, without line numbers.
            new: what stands there afterwards.
        """
        text = await self._read_text(path)
        old, new = text.adapt_line_ends(old), text.adapt_line_ends(new)
        if not old:
            raise ToolError("old is empty; use insert, or give the text to replace")
        if old == new:
            raise ToolError("old and new are the same")
        places = _find_places(text.content, old)
        if not places:
            # In a thread: comparing takes up to a second in long files.
            raise ToolError(await asyncio.to_thread(_describe_missing, text, old))
        if len(places) > 1:
            at = ", ".join(str(text.content.count("\n", 0, place) + 1) for place in places[:10])
            times = f"{len(places)} times" if len(places) <= 10 else "more than 10 times"
            raise ToolError(f"old occurs {times} in {path}, at lines {at}; add lines around it to make it unique")
        before, after = text.content[: places[0]], text.content[places[0] + len(old) :]
        first = before.count("\n")
        return await self._apply_change(text, before + new + after, first, first + new.count("\n") + 1)

    async def insert(self, path: str, line: int, text: str) -> str:
        """Insert lines into a file.

        Args:
            path: file.
            line: the number of the line after which they go; 0 for the top.
            text: the lines.
        """
        file = await self._read_text(path)
        lines = file.lines
        if not 0 <= line <= len(lines):
            raise ToolError(f"{path} has {plural(len(lines), 'line')}; line must be from 0 to {len(lines)}, not {line}")
        added = file.adapt_line_ends(text).removesuffix("\n").split("\n")
        content = "\n".join(lines[:line] + added + lines[line:])
        # A file without a line end after its last line stays like that, an empty file gets one.
        if not file.content or file.content.endswith("\n"):
            content += "\n"
        return await self._apply_change(file, content, line, line + len(added))

    async def _read_bytes(self, path: str) -> bytes | None:
        """Return a file's content; None for a directory. Raises ToolError."""
        check_path(path)
        try:
            return await self._sandbox.read_file(path, max_bytes=_MAX_BYTES)
        except IsADirectoryError:
            return None
        except FileNotFoundError:
            hint = "" if path.startswith("/") else f" (relative paths start at {self._sandbox.workdir})"
            raise ToolError(f"no such file: {path}{hint}") from None
        except OSError as error:
            raise path_error(path, error) from None
        except ValueError:
            raise ToolError(f"{path} is larger than {_MAX_BYTES:,} bytes; use the terminal") from None

    async def _read_text(self, path: str) -> _Text:
        data = await self._read_bytes(path)
        if data is None:
            raise ToolError(f"{path} is a directory")
        return _Text.of(path, data)

    async def _apply_change(self, text: _Text, content: str, first: int, end: int) -> str:
        """Write the new content and show the lines around the change."""
        changed = _Text(text.path, content, text.crlf)
        await self._overwrite(text.path, changed.encode())
        shown = changed.number_lines(first - _AROUND, end + _AROUND)
        return f"changed {text.path}:\n{truncate(shown, self._output_chars)}"

    async def _overwrite(self, path: str, data: bytes) -> None:
        """Overwrite a file in place, so mode, owner and links stay as they are. Raises ToolError."""
        directory, name = locate(self._sandbox, path)
        command = ["/bin/sh", "-c", 'cat > "$1"', "sh", name]
        result = await self._sandbox.exec(command, cwd=directory, stdin=data)
        if not result.ok:
            raise ToolError(f"cannot write {path}: {result.output.strip()}")

    async def _list_directory(self, path: str) -> str:
        directory = posixpath.join(self._sandbox.workdir, path)
        result = await self._sandbox.exec(_LIST, cwd=directory)
        if result.exit_code == 127:
            raise ToolError("this sandbox has no find, so directories can't be listed; use the terminal")
        # 126: what is neither file nor directory cannot be entered.
        if result.exit_code == 126:
            raise ToolError(f"{path} is neither a regular file nor a directory that can be opened")
        lines = whole_lines(replace_unreadable(result.output))
        entries = sorted(line[2:] for line in lines if line.startswith("./") and line[2:])
        if len(entries) > _MAX_ENTRIES:
            at_least = "at least " if result.truncated or result.timed_out else ""
            entries = [*entries[:_MAX_ENTRIES], f"[{at_least}{len(entries) - _MAX_ENTRIES:,} more entries]"]
        return "\n".join(entries) or "(empty directory)"


def _number_line(number: int, line: str) -> str:
    # A CR before the line end of a file that mixes both kinds.
    return f"{number}\t{truncate(replace_unreadable(line.removesuffix(chr(13))), _MAX_LINE)}"


def _find_places(text: str, old: str) -> list[int]:
    """Return the places of `old` in `text`, overlapping ones too; at most 11 of them."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0 and len(places) <= 10:
        places.append(place)
        place = text.find(old, place + 1)
    return places


def _describe_missing(text: _Text, old: str) -> str:
    near = find_closest(old, text.content)
    if near is None:
        return f"old was not found in {text.path}, nor anything similar; view the file first"
    reason, first, end = near
    lines = truncate(text.number_lines(first, end), 2_000)
    return f"old was not found in {text.path}: {reason}. Lines {first + 1} to {end} are:\n{lines}"
