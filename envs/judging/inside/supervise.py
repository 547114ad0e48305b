"""Run judged code for `test.sh`, in place of Python, pytest and other programs, so that it can write no verdict.

`test.sh` runs as root. What it starts through here runs as nobody, in a process that is forked from this
one and can write neither the reward nor this program's report. pytest (unittest, where tests.json says that a
script runs the tests by it) is imported before the fork, and each test reported through a pipe; it must come to
its regular end, and every listed test (tests.json, else the test functions in the modules it was given) must be
seen to pass, once.

The tests are handed on in memory, compiled, with decoys beside what they expect (see `sites`). Their files can be
read by root alone, so that nothing can read there what a test expects.

`--serve` starts it before there is anything to judge, so that Python and pytest are loaded when test.sh calls:
wrapper.sh hands over its process id, from whose /proc all else is read.

Runs on any Python from 3.6: it is the image's, never one below the working directory.
"""

import os
import signal
import sys
import traceback

from processes import HERE, TESTS, become_judged, open_tree, status_of, within

# `suite` is imported where tests are run: reading it takes longer than a program that is no test.


def main(argv):
    """Run what a wrapper was called for. Return an exit status.

    argv: the name that was called, the real program, its arguments.
    """
    name, real, args = argv[0], argv[1], argv[2:]
    python = name.startswith("python")
    if not python and name not in ("pytest", "py.test"):
        return drop(real, args)
    if not python:
        return run_pytest(args, here=False)
    options = [arg for arg in args[:3] if arg in ("-s", "-B", "-I", "-E", "-P", "-u", "-W", "ignore")]
    rest = args[len(options) :]
    if rest[:2] == ["-m", "pytest"]:
        return run_pytest(rest[2:], here=not {"-I", "-P"} & set(options))
    if rest and os.path.isfile(rest[0]) and os.path.isfile(TESTS + "/tests.json"):
        from suite import Unittest, unittest_files

        if unittest_files():
            return Unittest(rest, here=False).run()
    source, stdin = program(rest)
    if "/logs/verifier" in source:
        # A grader that writes the reward itself; it has to keep judged code out of its process.
        rest = ["-c", stdin, *rest[1:]] if stdin else rest
        workdir = os.readlink(HERE + "/workdir")
        if os.path.abspath(real).startswith(workdir + "/") or within(real, workdir):
            real = sys.executable  # the environment of one that lies there is judged code too
        os.execve(real, [real, "-s", *options, *rest], dict(os.environ, VERIFIER_OWN_CALL="1"))
    return drop(real, [*options, "-c", stdin, *rest[1:]] if stdin else args)


def run_pytest(args, here):
    from suite import Pytest

    return Pytest(args, here).run()


def serve():
    """Answer calls of pytest, each in a process of its own."""
    import pytest  # noqa: F401 - for the processes that are forked from here
    import suite  # noqa: F401

    while True:
        with open(HERE + "/request") as requests:
            callers = requests.read().split()
        for caller in callers:
            if os.fork() == 0:
                status = 1
                try:
                    status = answer("/proc/" + caller)
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
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
    os.environb.update(pairs)
    os.chdir(os.readlink(caller + "/cwd"))
    with open(caller + "/cmdline", "rb") as file:
        _, path, *args = map(os.fsdecode, file.read().split(b"\0")[:-1])
    if args[:1] == ["/verifier/call"]:
        args = args[2:]
    folders = os.environ.get("PATH", "").split(":")
    os.environ["JUDGED_PATH"] = ":".join(folder for folder in folders if folder != HERE + "/bin")
    os.environ["JUDGED_PYTHONPATH"] = os.environ.pop("PYTHONPATH", "")
    return main([os.path.basename(path), sys.executable, *args])


def program(args):
    """Return the source that Python is to run, where it is ours: a script in /tests, `-c`, or what stdin holds."""
    if args and args[0] == "-c":
        return " ".join(args[1:2]), ""
    if not args or args[0] == "-":
        stdin = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
        return stdin, stdin
    script = os.path.realpath(args[0])
    if script.startswith(TESTS + "/") and os.path.isfile(script):
        with open(script, errors="replace") as file:
            return file.read(), ""
    return "", ""


def drop(real, args):
    """Run a program as who judged code runs as. Returns its exit status."""
    open_tree()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_judged()
            os.close(writer)
            end_together(reader)
            os.execv(real, [real, *args])
        except BaseException as error:
            os.write(2, ("%s can't be run: %r\n" % (real, error)).encode())
        finally:
            os._exit(126)
    os.close(reader)
    status = status_of(os.waitpid(child, 0)[1])
    try:
        os.write(writer, b".")
    except OSError:
        pass  # killed along with it
    return status


def end_together(reader):
    """Have this process killed when the pipe's writer ends without a word, as by `timeout`: root may not kill it."""
    group = os.getpgid(0)
    if os.fork():
        return
    try:
        os.setsid()
        if not os.read(reader, 1):
            os.killpg(group, signal.SIGKILL)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else main(sys.argv[1:]))
