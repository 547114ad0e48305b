"""Tell whether code that root is asked to run is of /tests, or stands in a script there: `ours.py argument|stdin`, code
on stdin; `ours.py script`, its path there.

A shell has put the values of variables into it: each stands for a few characters that can't be code of their own.
"""

import os
import re
import sys

from processes import TESTS, is_roots, within, workdir

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
    """Return whether code is a file of /tests, or is written in one. kind: "argument" of an option, or "stdin"."""
    code = code.strip("\n")
    return any(
        code == text.strip("\n") or any(same(code, written, plain) for written, plain in written_in(text, kind))
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


def texts():
    """Yield the texts below /tests."""
    for folder, _, names in os.walk(TESTS):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= _MAX_BYTES:
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
    told = sys.stdin.read()
    sys.exit(not (is_script_of_roots(told) if sys.argv[1] == "script" else is_ours(told, sys.argv[1])))
