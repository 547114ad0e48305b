"""Run judged code for `test.sh`, in place of Python, pytest and other programs, so that it can write no verdict.

`test.sh` runs as root. What it starts through here runs as nobody, in a process that is forked from this one and can
write neither the reward nor this program's report. pytest, and whatever Python program runs tests by pytest or
unittest, is watched (see `suite`): the runner is imported before the fork, and each test reported through a pipe.

A Python program that names /logs/verifier, and that the task itself has written, is a grader: it runs as root (see
`grader`).

The tests are handed on in memory, compiled, with decoys beside what they expect (see `sites`). Their files can be
read by root alone, so that nothing can read there what a test expects.

`--serve` starts it before there is anything to judge, so that Python and pytest are loaded when test.sh calls:
wrapper.sh hands over its process id, from whose /proc all else is read.

Runs on any Python from 3.6: it is the image's, never one below the working directory.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from ours import say
from processes import (
    HERE,
    HIDDEN,
    KEPT,
    LOGS,
    TESTS,
    apart,
    become_judged,
    called_with,
    close_ours,
    hand_over,
    is_new,
    is_roots,
    own_call,
    status_of,
    within,
    workdir,
)
from python_call import PythonCall
from rewarding import is_grader, program_of_tests
from writable import open_tree

# `suite` is imported where tests are run: reading it takes longer than a program that is no test.

_RUNS_TESTS = re.compile(
    r"\b(?:import|from)\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*(?:pytest|unittest)\b"
    r".*(?:\bmain\s*\(|TestRunner\b|\.run\s*\()",
    re.DOTALL,
)
"""How Python code speaks of running tests in its own process."""
_OPENED = re.compile(r"/dev/stdin$|/(?:dev|proc/self)/fd/(\d+)$")
"""A script that is read from what the shell has opened: `python3 <(...)`."""
_ASKS = frozenset({"--version", "-V", "-VV", "--help", "-h"})
"""Options of a runner that runs no tests then."""
_HANDED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTERM,
)
_HANDED_ON += (signal.SIGCONT, signal.SIGWINCH)
"""Signals to this process that are meant for the program that it runs."""
_AT_ONCE_S = 0.1
_MOST_REWARD = 4096
_CHOOSING = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE")
"""Variables that leave out tests or asserts, or load what does."""
_ENDED = 0
"""What is told in place of a signal when the program has ended."""
_RUNNERS = frozenset({"pytest", "py.test", "unittest", "coverage", "nose2", "xdoctest"})


def main(argv):
    """Run what a wrapper was called for. Return an exit status.

    argv: the name that was called, the real program, its arguments.
    """
    name, real, args = argv[0], argv[1], argv[2:]
    forget_settings()
    if name in ("pytest", "py.test", "pytest-3", "py.test-3"):
        return run_pytest(args, here=False)
    if name == "coverage":
        return run_python(sys.executable, ["-m", name, *args])
    return run_python(real, args) if name.startswith("python") else drop(real, args)


def forget_settings():
    """Leave out of the environment what chooses tests, unless image or task set it.

    test.sh may have taken it of the agent, by `export $(cat .env)`."""
    for name in _CHOOSING:
        if name in os.environ and not is_set(name, "%s"):
            del os.environ[name]


def is_set(name, written=r"\b%s['\"\]]*\s*[=:]"):
    """Return whether image or task have set a variable. written: how the task's files speak of one that they set."""
    with open(HERE + "/environment") as file:
        begun = "\n%s=%s\n" % (name, os.environ[name]) in "\n" + file.read()
    return begun or say(written % re.escape(name))


def run_pytest(args, here):
    if _ASKS.intersection(args):
        return drop(sys.executable, ["-m", "pytest", *args])
    from runners import Pytest

    return Pytest(args, here).run()


def run_python(real, args):
    """Run Python: a runner of tests watched, a grader as root, all else as nobody."""
    call = PythonCall(args)
    opened = _OPENED.match(call.what) if call.kind == "script" else None
    if opened:  # nobody could open it
        os.dup2(int(opened.group(1) or 0), 0)
        args[-len(call.args) - 1] = "-"
        call = PythonCall(args)
    if call.kind == "module" and call.what == "pip" and call.args[:1] == ["install"]:
        from installed import installed, wanted

        names = wanted(call.args)
        if names is not None and set(names) <= installed():
            print("pip: the image has it already: %s" % " ".join(names))
            return 0
        verb = len(args) - len(call.args) + 1
        args = args[:verb] + ["--no-build-isolation"] + args[verb:]  # as install.sh has it
        os.environ["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
    if call.kind == "module" and call.what in ("venv", "virtualenv") and call.args:
        return make_environment(call.args[-1])
    if call.kind == "module" and call.what in ("pytest", "py.test") and not call.kept:
        return run_pytest(call.args, here=not call.safe_path)
    file = source_file(call)
    kind = apart(kind_of, call, file)
    if kind == "grader":
        return grade(real, call, file)
    if call.kind == "stdin" and file:
        os.dup2(os.open(file, os.O_RDONLY), 0)  # as it was
    if kind == "other":
        return drop(real, args)
    if call.kept:  # this process must have been started with them
        what = {"module": ["-m", call.what], "code": ["-c", call.what], "script": [call.what], "stdin": ["-"]}[
            call.kind
        ]
        words = [option for option in call.options if option not in call.kept] + what + call.args
        again = [sys.executable, "-s", "-B", *call.kept, HERE + "/supervise.py", "python", real, *words]
        os.execve(sys.executable, again, own_call())
    if kind == "listed":
        from runners import Unittest

        return Unittest([call.what, *call.args], here=False).run()
    from program import Program

    return Program(call, file).run()


def make_environment(path):
    """Make a virtual environment, with what the image has, as root where judged code had no hand in its folder.

    Returns an exit status."""
    words = ["-I", "-m", "venv", "--without-pip", "--system-site-packages", path]
    place = os.path.abspath(path)
    if os.path.lexists(place) or within(place, workdir()) or not is_roots(os.path.dirname(place)):
        return drop(sys.executable, words)
    os.makedirs(place)
    status = subprocess.call([sys.executable, *words], env=own_call())
    for name in ("pip", "pip3", "pytest") if status == 0 else ():
        os.symlink(HERE + "/bin/" + name, os.path.join(path, "bin", name))
    return status


def serve():
    """Answer calls of pytest, each in a process of its own."""
    import pytest  # noqa: F401 - for the processes that are forked from here
    import runners  # noqa: F401

    while True:
        with open(HERE + "/request") as requests:
            callers = requests.read().split()
        for caller in callers:
            if os.fork() == 0:
                status = 1
                try:
                    status = answer("/proc/" + caller)
                    sys.stdout.flush()
                except BaseException:  # what reads may have ended, as `head` does
                    traceback.print_exc()
                finally:
                    with open(HERE + "/answer", "w") as file:
                        file.write("%d\n" % status)
                    os._exit(0)
            os.wait()


def answer(caller):
    """Do what the process at /proc/N was called for, in its place. Returns an exit status."""
    for number in (0, 1, 2):
        os.dup2(os.open("%s/fd/%d" % (caller, number), os.O_RDONLY if number == 0 else os.O_WRONLY), number)
    with open(caller + "/environ", "rb") as file:
        pairs = [item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item]
    os.environb.clear()
    os.environb.update(pair for pair in pairs if pair[0] != HIDDEN)
    os.chdir(os.readlink(caller + "/cwd"))
    path, *args = called_with(caller)
    if args[:1] == ["/verifier/call"]:
        args = args[2:]
    folders = os.environ.get("PATH", "").split(":")
    os.environ["JUDGED_PATH"] = ":".join(folder for folder in folders if folder != HERE + "/bin")
    os.environ["JUDGED_PYTHONPATH"] = os.environ.pop("PYTHONPATH", "")
    return main([os.path.basename(path), sys.executable, *args])


def source_file(call):
    """Return the file that Python is to run: a script, or one with the code that it was given; "" for a module."""
    if call.kind == "script":
        return call.what
    if call.kind == "module" or (call.kind == "stdin" and (sys.stdin is None or sys.stdin.isatty())):
        return ""
    number, path = tempfile.mkstemp(dir=HERE)
    with os.fdopen(number, "wb") as file:
        if call.kind == "code":
            file.write(os.fsencode(call.what))
            return path
        while True:  # this process is not to know what tests expect
            data = os.read(0, 1 << 16)
            if not data:
                return path
            file.write(data)


def kind_of(call, file):
    """Return what a call of Python is: "grader", "tests", "listed" where tests.json has its tests, or "other"."""
    program = "" if call.what in _RUNNERS else program_of_tests(call)
    if call.kind == "module" and not program:
        reads = call.what == "coverage" and call.args[:1] != ["run"]
        return "tests" if call.what in _RUNNERS and not reads and not _ASKS.intersection(call.args) else "other"
    file = program or file
    if not os.path.isfile(file):
        return "other"
    if call.kind == "script" and os.path.isfile(TESTS + "/tests.json"):
        from suite import lists

        if lists().get("UNITTEST"):
            return "listed"
    with open(file, errors="surrogateescape") as opened:
        source = opened.read()
    runs = _RUNS_TESTS.search(source) is not None
    if is_grader(call, source, program, runs):
        return "grader"
    if call.kind == "module":
        return "other"
    named = call.kind != "script" or os.path.realpath(file).startswith(TESTS + "/") or "test" in os.path.basename(file)
    return "tests" if runs and named else "other"


def grade(real, call, file):
    """Become the task's own grader, which writes the reward."""
    root = workdir()
    if os.path.abspath(real).startswith(root + "/") or within(real, root) or is_new(os.path.abspath(real)):
        real = sys.executable  # the environment of one that lies there, or was made since, is judged code too
    what = call.what if call.kind == "module" else os.path.abspath(file)
    program = [real, "-s", *call.options, HERE + "/grader.py", call.kind, what, *call.args]
    os.execve(real, program, own_call())


def drop(real, args):
    """Run a program as who judged code runs as. Returns its exit status; of a signal it dies of, this process dies."""
    open_tree()
    told = [name for name, value in os.environ.items() if value.startswith("/tmp/") and os.path.exists(value)]
    hand_over([real, *args, *[os.environ[name] for name in told if is_set(name)]])
    aside = {number: tempfile.TemporaryFile(dir=HERE) for number in (1, 2) if is_reward(number)}
    child = os.fork()
    if child == 0:
        try:
            for number, file in aside.items():
                os.dup2(file.fileno(), number)
            close_ours()
            become_judged()
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores
            os.execv(real, [real, *args])
        except BaseException as error:
            os.write(2, ("%s can't be run: %r\n" % (real, error)).encode())
        finally:
            os._exit(126)
    tell = messenger(child)
    for number in _HANDED_ON:
        signal.signal(number, tell)
    waited = os.waitpid(child, 0)[1]
    for number in _HANDED_ON:
        signal.signal(number, signal.SIG_DFL)
    tell(_ENDED)
    for number, file in aside.items():
        os.write(number, os.pread(file.fileno(), _MOST_REWARD, 0))
    if os.WIFSIGNALED(waited) and sys.argv[1:] != ["--serve"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), os.WTERMSIG(waited))
    return status_of(waited)


def is_reward(number):
    """Return whether a descriptor writes a reward: what is judged may print it, and have a say in it no longer."""
    try:
        folder, name = os.path.split(os.readlink("/proc/self/fd/%d" % number))
    except OSError:
        return False  # closed
    return folder == LOGS and name in KEPT


def messenger(child):
    """Return a function that sends a signal to a process of judged code, to which root may send none. When this process
    ends without a word, as by `timeout`, the other is killed with its group.

    The messenger is no child of that process, which may wait for all of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.close(writer)
            close_ours()
            become_judged()
            last = {}
            while True:
                told = os.read(reader, 1)
                if not told:
                    os.killpg(child, signal.SIGKILL)
                if not told or told[0] == _ENDED:
                    break
                # `timeout` sends each twice, to its child and to its group; both at once are one.
                if time.monotonic() - last.get(told, -1) > _AT_ONCE_S:
                    os.kill(child, told[0])
                last[told] = time.monotonic()
        finally:
            os._exit(0)
    os.close(reader)

    def tell(number, frame=None):
        try:
            os.write(writer, bytes([number]))
        except OSError:
            pass  # it was killed by judged code

    return tell


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else main(sys.argv[1:]))
