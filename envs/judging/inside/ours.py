"""Tell whether code that root is asked to run is of /tests, or stands in a script there: `ours.py KIND`, code on stdin.

KIND: `argument` of an option, `stdin`, or what a shell has `evaluated`, which may be put together of several strings.
With `script` stdin has its path.

A shell has put the values of variables into it: each stands for a few characters that can't be code of their own.
"""

import os
import re
import sys

from processes import TESTS, apart, is_original, is_roots, within, workdir

_MAX_BYTES = 4 * 2**20
_VALUE = r"[\w./:,@%+=-]*"
_PART = re.compile(r"\\(.)|\$\{[^}]*\}|\$\w+|\$[?#@*!$-]|\$\([^()]*\)|`[^`]*`", re.DOTALL)
_SINGLE, _DOUBLE = r"'([^']*)'", r'"((?:[^"\\]|\\.)*)"'
_QUOTED = {
    "argument": r"-\w*[ce]\s+(?:%s|%s)" % (_SINGLE, _DOUBLE),
    "stdin": r"(?:<<<|\b(?:echo|printf))\s*(?:-\w+\s+)*(?:%s|%s)" % (_SINGLE, _DOUBLE),
}
_STRING = re.compile(_SINGLE + "|" + _DOUBLE, re.DOTALL)
_MOST_EVALUATED, _MOST_STRINGS = 4000, 2000
_SCRIPTS = (".sh", ".bash")
_HERE_DOCUMENT = re.compile(r"<<(-?)\s*(\\?['\"]?)(\w+)['\"]?[^\n]*\n(.*?)^(\t*)\3$", re.DOTALL | re.MULTILINE)


def is_ours(code, kind):
    """Return whether code is a file of /tests, or is written in one. kind: "argument", "stdin" or "evaluated"."""
    code = code.strip("\n")
    if kind == "evaluated":
        return Evaluated(code).is_ours()
    return any(
        (code and code == text.strip("\n"))
        or any(same(code, written, plain) for written, plain in written_in(text, kind))
        for text in texts()
    )


def is_script_of_roots(path):
    """Return whether a script is one that test.sh has written, where judged code can't put another in its place."""
    path = os.path.abspath(path)
    if os.path.realpath(path) != path or not os.path.isfile(path) or within(path, workdir()):
        return False
    if os.lstat(path).st_uid != os.geteuid() or not is_roots(os.path.dirname(path)):
        return False
    with open(path, errors="replace") as file:
        return is_ours(file.read(), "stdin")


def texts(ends=("",)):
    """Yield the texts that the task has in /tests. ends: of the names of files."""
    for folder, _, names in os.walk(TESTS):
        for path in [os.path.join(folder, name) for name in names if name.endswith(ends)]:
            if os.path.islink(path) or not os.path.isfile(path) or not is_original(path):
                continue
            if os.path.getsize(path) <= _MAX_BYTES:
                with open(path, errors="replace") as file:
                    yield file.read()


def say(pattern):
    """Return whether a text that the task has in /tests holds what a pattern finds. Another process reads them: judged
    code can read the memory of this one, where tests are run in a process that is forked from it."""
    return apart(lambda: "yes" * any(re.search(pattern, text) for text in texts())) == "yes"


def written_in(text, kind):
    """Yield the pieces of code in a script: (code, whether the shell leaves it as it is)."""
    for found in re.finditer(_QUOTED[kind], text, re.DOTALL):
        yield (found.group(1), True) if found.group(1) is not None else (found.group(2), False)
    for found in _HERE_DOCUMENT.finditer(text) if kind == "stdin" else ():
        body = found.group(4)
        if found.group(1):
            body = re.sub(r"^\t+", "", body, flags=re.MULTILINE)
        yield body, bool(found.group(2))


class Evaluated:
    """Code that a shell evaluates: strings of the task's scripts, with each other and plain words in their variables.

    What begins a command is always written in one of them, and no plain word speaks of a reward."""

    def __init__(self, code):
        self.code, self._strings, self._ends = code, {}, {}
        for text in texts(_SCRIPTS):
            for found in (one for part in (text, *text.split("\n")) for one in _STRING.finditer(part)):
                single, double = found.groups()
                written = (single,) if single is not None else _pieces(double)
                if written and len(self._strings) < _MOST_STRINGS:
                    self._strings[written] = None

    def is_ours(self):
        """Return whether the code is such strings, a blank or a line between them."""
        at, seen = {0}, set()
        while at and len(self.code) <= _MOST_EVALUATED:
            ends = set()
            for start in at:
                argument = start > 0 and self.code[start - 1] == " "
                ends |= self._ends_of_strings(start, 2, argument)
            if len(self.code) in ends:
                return True
            seen |= at
            at = {end + 1 for end in ends if self.code[end] in " \n"} - seen
        return False

    def _ends_of_strings(self, start, depth, bare):
        """Return where a string may end that begins at a place. bare: it may begin with a variable."""
        known = start, depth, bare
        if known not in self._ends:
            good = [one for one in self._strings if bare or (one[0] or "").strip() or (one[0] is None and depth > 1)]
            self._ends[known] = {end for one in good for end in self._ends_of(one, start, depth, bare)}
        return self._ends[known]

    def _ends_of(self, pieces, start, depth, bare):
        at = {start}
        for number, piece in enumerate(pieces):
            if piece is not None:
                at = {one + len(piece) for one in at if self.code.startswith(piece, one)}
                continue
            words = set() if number == 0 and not bare else {end for one in at for end in self._words(one)}
            inner = {end for one in at for end in self._ends_of_strings(one, depth - 1, number > 0)} if depth else set()
            at = words | inner
        return at

    def _words(self, start):
        end = re.compile(_VALUE).match(self.code, start).end()
        told = self.code.find("reward", start, end)
        return range(start, (end if told < 0 else told) + 1)


def _pieces(written):
    """Return what is written between double quotes: texts, with None for what the shell puts in."""
    pieces, at = [], 0
    for part in _PART.finditer(written):
        escaped = part.group(1)
        text = None if escaped is None else escaped if escaped in '$`"\\' else "" if escaped == "\n" else part.group()
        pieces += [written[at : part.start()], text]
        at = part.end()
    pieces.append(written[at:])
    found = []
    for piece in pieces:
        if piece and found and found[-1] is not None:
            found[-1] += piece
        elif piece != "":
            found.append(piece)
    return tuple(found)


def same(code, written, plain):
    """Return whether code is what was written. plain: the shell has put nothing into it."""
    written = written.strip("\n")
    if plain or code == written:
        return code == written
    pattern, at = "", 0
    for part in _PART.finditer(written):
        pattern += re.escape(written[at : part.start()])
        if part.group(1) is None:
            pattern += _VALUE
        elif part.group(1) in '$`"\\':
            pattern += re.escape(part.group(1))
        elif part.group(1) != "\n":
            pattern += re.escape(part.group())
        at = part.end()
    return re.match(pattern + re.escape(written[at:]) + r"\Z", code, re.DOTALL) is not None


if __name__ == "__main__":
    told = sys.stdin.read()
    sys.exit(not (is_script_of_roots(told) if sys.argv[1] == "script" else is_ours(told, sys.argv[1])))
