"""Processes of judged code: who they run as, what they may write, how they are heard and ended."""

import fnmatch
import itertools
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
import traceback

from node_ids import is_test_module

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = "/tests"
LOGS = "/logs/verifier"
TEMPORARY = "/tmp"
KEPT = frozenset(
    {
        "reward.txt",
        "reward.json",
        "watched.json",
        "judge.json",
        "memory",
        "hindered",
        "test.sh",
        "tests.json",
        "test.patch",
    }
)
"""Names of files that judged code is never let at."""
SETTINGS = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
    }
)
HIDDEN = b"VERIFIER_ARGUMENT"
"""The variables that have what a program of root's is called with."""
_MOST_FOLDERS = 200
"""How many folders of one in /tmp are opened."""
_EXPECTED = re.compile("expect|gold|answer|solution|refer|truth|correct|hidden|secret|oracle|want", re.IGNORECASE)
"""How names speak of what is expected; see `put.sh`."""
_CODE = re.compile(
    r"\.(py\w?|pth|so|sh|bash|bats|[cm]?[jt]sx?|rb|p[lm]|t|go|rs|java|kt|[ch]|cc|[ch]pp|cs|lua|php|r|jl|mk|cmake|gradle|lock)$"
    r"|^(Makefile|makefile|GNUmakefile|Dockerfile)$",
    re.IGNORECASE,
)
"""Names of files that programs or builds run."""
MAX_PIPE_BYTES = 64 * 2**20


def setting(name):
    """Return what the verifier was told; "" for nothing. It stands in a file of root's: test.sh may take variables of a
    file of the agent's."""
    try:
        with open(HERE + "/" + name) as file:
            return file.read().strip("\n")
    except OSError:
        return ""


def own_call():
    """Return the environment of a program that root runs itself (see preload/calls.c)."""
    return dict(os.environ, VERIFIER_OWN_CALL=setting("own"))


def judged_user():
    """Return the user id of judged code."""
    return int(setting("uid") or 65534)


def is_original(path):
    """Return whether a file of /tests is as the task has it: root's were given one time, and those of others are
    older than the sandbox."""
    try:
        seen = os.stat(path)
        same = seen.st_uid == os.geteuid() and seen.st_mtime_ns == os.stat(HERE + "/stamp").st_mtime_ns
        return same or seen.st_ctime < os.stat(HERE + "/since").st_ctime
    except OSError:
        return False


def is_new(path):
    """Return whether a program, or what its name leads to, was put there since the sandbox was made."""
    try:
        since = os.stat(HERE + "/since").st_ctime
        return max(os.lstat(path).st_ctime, os.stat(path).st_ctime) >= since
    except OSError:
        return True


def workdir():
    """Return the working directory of what is judged, whatever environment this was called in."""
    return os.readlink(HERE + "/workdir")


def find(root, expression):
    """Change what is found in a tree, `.git` left out. Change only what needs it: each change copies a file."""
    command = "find . -path ./.git -prune -o " + expression
    subprocess.call(command.split(), cwd=root, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def open_folders(root, files):
    """Let tests make files where they are run and where they lie, and remove settings that judged code has made there,
    or above.

    What is root's there stays as it is, which the sticky bit sees to.
    """
    folders = {root} | {os.path.dirname(path) for path in files if path.startswith(root + "/")}
    for folder in folders.union(*map(_above, folders)):
        try:
            if folder in folders and folder != "/":
                allow(folder, root, 0o1007)
            for name in SETTINGS.intersection(os.listdir(folder)):
                path = os.path.join(folder, name)
                seen, began = os.lstat(path), os.stat(HERE + "/began").st_ctime
                if seen.st_uid == judged_user() != os.geteuid() and seen.st_ctime >= began:
                    os.unlink(path)
        except OSError:
            pass  # not root's


def _above(folder):
    """Yield the folders that a folder is in."""
    while folder != "/":
        folder = os.path.dirname(folder)
        yield folder


def hand_over(args):
    """Let judged code use what test.sh names to it, of what is root's: files in /tests, /tmp and /logs, and folders in
    /tmp and below the working directory, with the current one.

    A file that is there may be read, and data may be written over; one that is not there yet is made, for it to be
    written. In a folder files may be made; in one in /tmp what is root's stays as it is.
    """
    paths = [_path_in(arg) for arg in args]
    if any(map(_is_expected, paths)):
        said = _said_to_xargs(args)
        paths = [path for arg, path in zip(args, paths) if arg in said or not _is_expected(path)]
    for path in [os.getcwd(), *paths] if os.path.exists(HERE + "/opened") else []:
        try:
            _let_write(path)
        except OSError:
            pass  # behind a link, or gone
    for path in paths:
        root = next((root for root in (TESTS, TEMPORARY, LOGS) if path.startswith(root + "/")), None)
        if root is None or os.path.basename(path) in KEPT:
            continue
        try:
            if not os.path.lexists(path) and root != TESTS:
                _make(path, root)
            _let_in(path, root)
            allow(path, root, 0o005 if os.path.isdir(path) else 0o004)
            if root == TESTS and path.endswith(".py"):
                with open(path, "rb") as file:
                    open_helpers([file.read()], os.path.dirname(path))
        except OSError:
            pass  # not root's, or nowhere


def _is_expected(path):
    """Return whether a path is one in /tests that speaks of what is expected."""
    return path.startswith(TESTS + "/") and _EXPECTED.search(path[len(TESTS) :]) is not None


def called_with(process):
    """Return what the process at /proc/N was called with, without its own name: with that of the script that a shell
    runs. Of root's programs it may stand in variables (see preload/arguments.c)."""
    with open(process + "/cmdline", "rb") as file:
        words = file.read().split(b"\0")[1:-1]
    with open(process + "/environ", "rb") as file:
        hidden = [item[len(HIDDEN) + 1 :] for item in file.read().split(b"\0") if item.startswith(HIDDEN + b"=")]
    words[len(words) - len(hidden) :] = hidden
    return [os.fsdecode(word) for word in words]


def _said_to_xargs(args):
    """Return those arguments that test.sh itself may have written: where `xargs` calls, those that it was called with.
    The others it has read."""
    process = os.getppid()
    for _ in range(8):
        try:
            with open("/proc/%d/stat" % process) as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            if name == "xargs":
                return called_with("/proc/%d" % process)
            process = int(rest.split()[1])
        except (OSError, ValueError, IndexError):
            break
    return args


def _let_write(path):
    """Let judged code make files in a folder, or where a file in /tmp is to be, and write over data. Raises OSError."""
    root = workdir()
    for place in (root, TEMPORARY):
        if path.startswith(place + "/") and _is_data(path, place):
            allow(path, place, 0o006)
    if path.startswith(root + "/") and os.path.isdir(path):
        allow(path, root, 0o007, also=0o1000)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if not folder.startswith(TEMPORARY + "/") or (folder != path and os.path.lexists(path)):
        return
    _let_in(folder, TEMPORARY)
    allow(folder, TEMPORARY, 0o007, also=0o1000)
    for at, folders, files in itertools.islice(os.walk(folder), _MOST_FOLDERS):
        folders[:] = [name for name in folders if not _EXPECTED.search(name) and os.path.join(at, name) != root]
        for name in folders + [one for one in files if not _EXPECTED.search(one)]:
            try:
                allow(os.path.join(at, name), TEMPORARY, *((0o007, 0o1000) if name in folders else (0o004,)))
            except OSError:
                pass  # a link


def _is_data(path, root):
    """Return whether a file is data that a program may be meant to change: no code, and nothing kept or expected."""
    name, relative = os.path.basename(path), os.path.relpath(path, root)
    if not os.path.isfile(path) or name in SETTINGS | KEPT or _CODE.search(name) or _EXPECTED.search(relative):
        return False
    with open(path, "rb") as file:
        if file.read(2) == b"#!":
            return False
    kept = setting("kept").split("\n")
    return not any(fnmatch.fnmatchcase(text, one) for one in kept if one for text in (name, relative))


def _path_in(arg):
    """Return the path that an argument names, if it names one."""
    return os.path.abspath(arg.partition("=")[2] if arg.startswith("-") and "=" in arg else arg)


def _let_in(path, root):
    """Let judged code come to what lies below a folder. Raises OSError."""
    folder = os.path.dirname(path)
    while folder.count("/") > 1:
        allow(folder, root, 0o001)
        folder = os.path.dirname(folder)


def open_helpers(sources, folder, spared=()):
    """Let judged code read the modules of a folder in /tests that are named as tests are, and that others speak of.

    spared: paths of modules that are handed on."""
    spoken = {word.decode() for source in sources for word in re.findall(rb"[A-Za-z_]\w*", source)}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if is_test_module(name) and name[:-3] in spoken and path not in spared:
            allow(path, TESTS, 0o004)


def _make(path, root):
    """Make an empty file that everyone may write, where judged code can't make what it wants there itself."""
    folder = open_below(root, os.path.dirname(path))
    try:
        if os.fstat(folder).st_mode & 0o002:
            return
        number = os.open(os.path.basename(path), os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    finally:
        os.close(folder)
    os.fchmod(number, 0o666)
    os.close(number)


def allow(path, root, bits, also=0):
    """Add to the mode of what is root's below a folder, where it lacks some of `bits`: those, and `also`; for root's
    group, too, to which root belongs where it opens files as judged code would (preload/files.c).

    Raises OSError where there is nothing, or a link leads there.
    """
    bits |= (bits & 0o007) << 3
    number = open_below(root, path)
    try:
        mode = os.fstat(number)
        if mode.st_uid == os.geteuid() and mode.st_mode & bits != bits:
            os.fchmod(number, mode.st_mode & 0o7777 | bits | also)
    finally:
        os.close(number)


def open_below(root, path):
    """Open what lies below a folder, for reading, without waiting. Follows no link, whatever judged code, which may
    run, puts in the way meanwhile. Raises OSError."""
    names = os.path.relpath(path, root).split("/")
    if ".." in names:
        raise OSError(path)
    opened = os.open(root, os.O_PATH | os.O_DIRECTORY)
    for number, name in enumerate(names, 1):
        flags = os.O_PATH | os.O_DIRECTORY if number < len(names) else os.O_RDONLY | os.O_NONBLOCK
        folder = opened
        try:
            opened = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
    return opened


def is_roots(folder):
    """Return whether judged code can't rename what root makes in a folder, or put anything in its way."""
    while True:
        try:
            seen = os.lstat(folder)
        except FileNotFoundError:
            pass  # to be made
        else:
            shared = seen.st_mode & 0o022 and not seen.st_mode & stat.S_ISVTX
            if seen.st_uid != os.geteuid() or shared or not stat.S_ISDIR(seen.st_mode):
                return False
        if folder == "/":
            return True
        folder = os.path.dirname(folder)


def become_judged():
    """Give up all rights, and the way back through the wrappers."""
    user = judged_user()
    os.setsid()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    env = os.environ
    path = env.get("JUDGED_PATH", "/usr/bin:/bin")
    import_path = env.get("JUDGED_PYTHONPATH", "")
    libraries = env.get("JUDGED_LIBRARIES")
    for name in [name for name in env if name.startswith(("JUDGED_", "VERIFIER_OWN_CALL", "BASH_"))]:
        del env[name]
    if libraries:
        env["LD_LIBRARY_PATH"] = libraries
    env.setdefault("SHELL", "/bin/sh")  # that of nobody runs nothing
    env.update(PATH=path, HOME="/tmp", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=import_path)
    if not import_path:
        del env["PYTHONPATH"]
    # Tests may look into a repository, which is root's.
    env.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    env.pop("LD_PRELOAD", None)  # `preload.so`, which they can't read and need not
    sys.dont_write_bytecode = True
    debuggable()


def debuggable():
    """Give the process back its own /proc/self, which it loses with its user; subprocess is slow without."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    except (ImportError, OSError, AttributeError):
        pass


def close_ours(spared=()):
    """Leave a program no way to what test.sh has open for itself: none to files of the task's and the verifier's beside
    its input and output, and no list that test.sh itself has begun to read, as by `while read … done < list`.

    spared: descriptors of regular files that stay."""
    for number in set(map(int, os.listdir("/proc/self/fd"))).difference(spared):
        try:
            place, seen = os.readlink("/proc/self/fd/%d" % number), os.fstat(number)
        except OSError:
            continue  # that of the list of them
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
            continue
        ours = place.startswith((TESTS + "/", HERE + "/", LOGS + "/"))
        if number > 2 and ours:
            os.close(number)
        elif number == 0 and (ours or not seen.st_mode & 0o004) and os.lseek(0, 0, os.SEEK_CUR):
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def apart(function, *args):
    """Return the text that a function returns, called in another process: this one is not to know what tests expect."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, function(*args).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = file.read().decode()
    os.waitpid(child, 0)
    return found


def status_of(waited):
    return os.WEXITSTATUS(waited) if os.WIFEXITED(waited) else 128 + os.WTERMSIG(waited)


def judged_processes():
    """Return the ids of the processes of judged code."""
    found, user = set(), str(judged_user())
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/status" % name) as file:
                users = next(line for line in file if line.startswith("Uid:")).split()[1:]
        except (OSError, StopIteration):
            continue  # no process, or gone
        if user in users:
            found.add(int(name))
    return found


def kill_judged(spared=()):
    """Kill processes of judged code, but for those `spared`. root has no right to; their own user has."""
    for _ in range(50):
        doomed = judged_processes().difference(spared)
        if not doomed:
            return
        child = os.fork()
        if child == 0:
            try:
                os.setgid(judged_user())
                os.setuid(judged_user())
                for process in doomed:
                    os.kill(process, signal.SIGKILL)
            except OSError:
                pass
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def listen(reader, child, limit, spared, answer=lambda line: None):
    """Return the messages of a child until it ends, and its wait status. limit: seconds after which it is killed.
    answer: called with each line as it comes."""
    os.set_blocking(reader, False)
    begun = b""
    data, waited, started, open_ = [], None, time.monotonic(), True
    size = 0
    while open_ or waited is None:
        ready = select.select([reader], [], [], 0.05)[0] if open_ else ()
        if not open_:
            time.sleep(0.002)
        chunk = b""
        if ready:
            chunk = os.read(reader, 1 << 20)
            open_ = bool(chunk)
            size += len(chunk)
            if size <= MAX_PIPE_BYTES:
                data.append(chunk)
                *lines, begun = (begun + chunk).split(b"\n")
                for line in lines:
                    answer(line)
        if waited is None:
            pid, status = os.waitpid(child, os.WNOHANG)
            waited = status if pid else None
            if waited is None and limit is not None and time.monotonic() - started > limit:
                kill_judged(spared)
        elif not ready:
            break  # the child has ended, and nothing is left; a process that it left may hold the pipe
    os.close(reader)
    messages = []
    for line in b"".join(data).split(b"\n"):
        try:
            message = json.loads(line.decode())
        except ValueError:
            continue
        messages += [message] if isinstance(message, dict) else []
    return messages, waited


def within(path, folder):
    return isinstance(path, str) and os.path.realpath(path).startswith(os.path.realpath(folder) + "/")
