"""Tell whether code that root is asked to run stands in a script of /tests: `ours.py argument|stdin`, code on stdin.

A shell has put the values of variables into it: each stands for a few characters that can't be code of their own.
"""

import os
import re
import sys

from processes import TESTS, is_original

_MAX_BYTES = 4 * 2**20
_VALUE = r"[\w./:,@%+=-]*"
_PART = re.compile(r"\\(.)|\$\{[^}]*\}|\$\w+|\$[?#@*!$-]|\$\([^()]*\)|`[^`]*`", re.DOTALL)
_SINGLE, _DOUBLE = r"'([^']*)'", r'"((?:[^"\\]|\\.)*)"'
_QUOTED = {
    "argument": r"-\w*[ce]\s+(?:%s|%s)" % (_SINGLE, _DOUBLE),
    "stdin": r"(?:<<<|\b(?:echo|printf))\s*(?:-\w+\s+)*(?:%s|%s)" % (_SINGLE, _DOUBLE),
}
_HERE_DOCUMENT = re.compile(r"<<(-?)\s*(\\?['\"]?)(\w+)['\"]?[^\n]*\n(.*?)^(\t*)\3$", re.DOTALL | re.MULTILINE)


def is_ours(code, kind):
    """Return whether code is written in a file of /tests. kind: "argument" of an option, or "stdin"."""
    code = code.strip("\n")
    return any(same(code, written, plain) for text in texts() for written, plain in written_in(text, kind))


def texts():
    """Yield the texts that the task has in /tests."""
    for folder, _, names in os.walk(TESTS):
        for name in names:
            path = os.path.join(folder, name)
            if is_original(path) and os.path.isfile(path) and os.path.getsize(path) <= _MAX_BYTES:
                with open(path, errors="replace") as file:
                    yield file.read()


def written_in(text, kind):
    """Yield the pieces of code in a script: (code, whether the shell leaves it as it is)."""
    for found in re.finditer(_QUOTED[kind], text, re.DOTALL):
        yield (found.group(1), True) if found.group(1) is not None else (found.group(2), False)
    for found in _HERE_DOCUMENT.finditer(text) if kind == "stdin" else ():
        body = found.group(4)
        if found.group(1):
            body = re.sub(r"^\t+", "", body, flags=re.MULTILINE)
        yield body, bool(found.group(2))


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
    sys.exit(not is_ours(sys.stdin.read(), sys.argv[1]))
