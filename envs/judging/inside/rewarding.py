"""Which Python programs are graders: those of the task's own, in /tests, that write the reward.

Runs in the verifier's sandbox, on any Python from 3.6.
"""

import os
import re

from ours import is_ours, is_script_of_roots
from processes import LOGS, TESTS, is_original, workdir

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+([\w, \t]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_STARTS_TESTS = re.compile(
    r"\b(?:subprocess|os\.system|os\.popen)\b.*\bpytest\b|\bpytest\b.*\b(?:subprocess|os\.system)\b", re.DOTALL
)
_REWARDS = ("reward.txt", "reward.json")
_MOST_FILES = 100


def program_of_tests(call):
    """Return the file in /tests that a call of Python runs: a script, a module's or a folder's; "" for none."""
    if call.kind == "module":
        here = [] if call.safe_path else [os.getcwd()]
        parts = call.what.split(".")
        places = [os.path.join(folder, *parts) for folder in here + import_path()]
    else:
        places = [call.what] if call.kind == "script" else []
    for place in places:
        for path in (place + "/__main__.py", place + ".py" if call.kind == "module" else place):
            if os.path.isfile(path):
                real = os.path.realpath(path)
                return real if real.startswith(TESTS + "/") else ""
    return ""


def is_grader(call, source, program, runs):
    """Return whether a call of Python is a grader.

    source: what it runs. program: its file in /tests, "" where there is none. runs: whether it runs tests in its own
    process."""
    # What starts tests in other processes, without judged code in its own, sees them watched where it is root's.
    typed = call.kind in ("code", "stdin")
    if LOGS in source or (not runs and (_STARTS_TESTS.search(source) or (typed and reads_closed(source)))):
        if program or typed:
            return is_original(program) or is_ours(source, "argument" if call.kind == "code" else "stdin")
        return call.kind == "script" and is_script_of_roots(call.what)
    return bool(program) and not runs and is_original(program) and speaks_of_reward(program, call.args)


def reads_closed(source):
    """Return whether code names a file of /tests that is closed to judged code, and imports nothing that is judged."""
    paths = {os.path.realpath(word) for word in re.findall(r"[\w./-]+", source)}
    named = [path for path in paths if path.startswith(TESTS + "/") and os.path.isfile(path)]
    tops = [os.path.join(workdir(), name.split(".")[0]) for name in imports(source) if name.strip(".")]
    judged = any(os.path.isdir(top) or os.path.isfile(top + ".py") for top in tops)
    return not judged and any(not os.stat(path).st_mode & 0o004 for path in named)


def import_path():
    """Return the folders that test.sh adds to Python's import path."""
    return [os.path.abspath(part) for part in os.environ.get("JUDGED_PYTHONPATH", "").split(":") if part]


def speaks_of_reward(file, args):
    """Return whether a program in /tests writes the reward where it does not say so itself: it is told, or what it
    imports says so. One that imports what is judged can't be one."""
    try:
        sources = list(helpers_of(file))
    except (LookupError, OSError):
        return False
    return is_told_of_reward("\n".join(sources), args) or any(LOGS in source for source in sources)


def is_told_of_reward(source, args):
    """Return whether a program is told where the reward goes, by an argument or a variable that it speaks of."""
    paths = [os.path.abspath(arg.partition("=")[2] if arg.startswith("-") and "=" in arg else arg) for arg in args]
    if any(path == LOGS or (os.path.dirname(path) == LOGS and os.path.basename(path) in _REWARDS) for path in paths):
        return True
    told = [name for name, value in os.environ.items() if value.startswith(LOGS)]
    return any(re.search(r"\b%s\b" % re.escape(name), source) for name in told)


def imports(source):
    """Yield the names of modules that a program may import."""
    for package, names, modules in _IMPORT.findall(source):
        if package:
            yield package
            for name in re.findall(r"\w+", names):
                yield package + ("" if package.endswith(".") else ".") + name
        for name in modules.split(",") if modules else ():
            yield name.split()[0] if name.split() else ""


def helpers_of(file):
    """Yield the sources of the modules in /tests that a program there imports, and of those that these do. Raises
    LookupError where one of them imports what is judged."""
    waiting, seen = [file], {file}
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop()
        with open(path, errors="surrogateescape") as opened:
            source = opened.read()
        yield source
        for name in imports(source):
            dots = len(name) - len(name.lstrip("."))
            own = os.path.dirname(path) + "/.." * (dots - 1)
            found = _find(name.strip("."), [own] if dots else [os.path.dirname(path), os.path.dirname(file), TESTS])
            top = os.path.join(workdir(), name.split(".")[0])
            if found is None and not dots and name and (os.path.isdir(top) or os.path.isfile(top + ".py")):
                raise LookupError(name)
            if found and found not in seen:
                seen.add(found)
                waiting.append(found)


def _find(name, folders):
    """Return the file of a module in one of some folders, "" for a folder without one; None where there is neither."""
    for folder in folders:
        place = os.path.realpath(os.path.join(folder, *name.split(".")))
        for path in (place + ".py", place + "/__init__.py"):
            if path.startswith(TESTS + "/") and os.path.isfile(path):
                return path
        if place.startswith(TESTS + "/") and os.path.isdir(place):
            return ""
    return None
