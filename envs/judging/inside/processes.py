"""Processes of judged code: who they run as, what they may write, how they are heard and ended."""

import json
import os
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = "/tests"
MAX_PIPE_BYTES = 64 * 2**20


def judged_user():
    """Return the user id of judged code."""
    return int(os.environ.get("JUDGED_UID", 65534))


def find(root, expression):
    """Change what is found in a tree, `.git` left out. Change only what needs it: each change copies a file."""
    command = "find . -path ./.git -prune -o " + expression
    subprocess.call(command.split(), cwd=root, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def open_tree():
    """Let judged code add files below the working directory, as it could when root ran it. Done once."""
    marker = HERE + "/opened"
    if not os.path.exists(marker) and not os.path.exists(TESTS + "/tests.json"):
        open(marker, "w").close()
        find(os.environ.get("JUDGED_WORKDIR", "."), "-type d ! -perm -007 -exec chmod o+rwx {} +")


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
    for name in [name for name in env if name.startswith(("JUDGED_", "VERIFIER_OWN_CALL", "BASH_"))]:
        del env[name]
    env.update(PATH=path, HOME="/tmp", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=import_path)
    if not import_path:
        del env["PYTHONPATH"]
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


def listen(reader, child, limit, spared):
    """Return the messages of a child until it ends, and its wait status. limit: seconds after which it is killed."""
    os.set_blocking(reader, False)
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
