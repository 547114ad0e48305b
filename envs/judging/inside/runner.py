"""Runs pytest in a process that has imported it: one is made ready before the agent's changes, and forks for each call.

`python -m pytest` and the `pytest` program hand their call over, and stay as long as it runs: they pass on signals, and
end as it ends. A call that might differ there runs where it was made (docs/verifier-protocol.md). Nothing here is
trusted. Runs on any Python from 3.6.
"""

import _signal
import _socket
import gc
import marshal
import os
import struct
import sys
import time
from fcntl import F_DUPFD, fcntl

from verifier_hook import loaded

_PLACE = "/verifier/runner"
_MOST = 250
"""Descriptors of a call."""
_ODD = ("PYTHON", "LD_", "LC_", "LANG", "COV", "MALLOC_", "GLIBC_", "HOME")
"""Beginnings of variables that a Python obeys when it starts."""
_STATUS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "CapEff", "CapBnd", "CapAmb")
_PASSED_ON = (1, 2, 3, 6, 10, 12, 14, 15)
"""Signals that others send to a runner of tests."""
_SOON_S = 0.02
"""Signals of a kind that come within this time are one, as for a process that has not handled the first."""


def _world():
    """Return what a process can't change, and what its Python took from its start."""
    with open("/proc/self/status") as file:
        lines = [line for line in file if line.startswith(_STATUS)]
    with open("/proc/self/limits") as file:
        limits = file.read()
    spaces = [os.readlink("/proc/self/ns/" + name) for name in sorted(os.listdir("/proc/self/ns"))]
    root = os.stat("/")
    return repr((lines, limits, spaces, root.st_dev, root.st_ino, os.getpriority(os.PRIO_PROCESS, 0), _python()))


def _python():
    odd = [(name, os.environ[name]) for name in sorted(os.environ) if name.startswith(_ODD) and name != "PYTHONPATH"]
    return sys.version, sys.prefix, sys.base_prefix, tuple(sys.flags), odd


# In the process that is called


def hand_over():
    """Have the call of this process run, and end as it ends. Returns if it has to run here."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[1:-1]
    script = getattr(sys.modules["__main__"], "__file__", None)
    if words[:2] == [b"-m", b"pytest"] and sys.argv[0] == "-m":
        script = None
    elif not words or os.path.basename(words[0]) not in (b"pytest", b"py.test") or script != os.fsdecode(words[0]):
        return
    try:
        line = _asked(script)
    except OSError:
        return  # nobody is there, or takes it
    if line is not None:
        _stay(line)


def _asked(script):
    """Ask for a run of this call. Returns the connection; None if it isn't taken. script: None for the module."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.connect(_PLACE)
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    numbers = [n for n in sorted(numbers) if n != line.fileno() and _is_inherited(n)]
    if numbers[:3] != [0, 1, 2] or len(numbers) > _MOST or any(map(os.isatty, numbers[:3])):
        return None
    here = os.open(".", os.O_RDONLY)
    mask = os.umask(0o77)
    os.umask(mask)
    orders = marshal.dumps(
        {
            "world": _world(),
            "script": script,
            "argv": sys.argv,
            "orig_argv": getattr(sys, "orig_argv", None),
            "executable": sys.executable,
            "path": sys.path,
            "environ": dict(os.environb),
            "umask": mask,
            "numbers": numbers,
        },
        2,
    )
    data = struct.pack("<I", len(orders)) + orders
    fds = struct.pack("%di" % (len(numbers) + 1), *([here] + numbers))
    sent = line.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    line.sendall(data[sent:])
    os.close(here)
    return line if line.recv(1) else None


def _is_inherited(number):
    try:
        return os.get_inheritable(number)
    except OSError:
        return False


def _stay(line):
    """Pass on signals until the call has ended, and end as it did."""
    for number in _PASSED_ON:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda number, frame: line.sendall(bytes((number,))))
    told = line.recv(4)
    status = struct.unpack("<I", told)[0] if len(told) == 4 else 1 << 8
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in _PASSED_ON:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


# In the process that was made ready


def serve(workdir):
    """Import pytest, and run the calls that are handed over. workdir: of the agent."""
    gc.disable()
    if not sys.path[0]:
        del sys.path[0]
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)  # the shell has a background process ignore them
    _signal.signal(_signal.SIGQUIT, _signal.SIG_DFL)
    world, times = _world(), _times()
    _import_all()
    inside = workdir.rstrip("/") + "/"
    files = [os.path.realpath(getattr(module, "__file__", None) or "/") for module in list(sys.modules.values())]
    if any(file.startswith(inside) for file in files):
        return  # pytest is a part of the agent's work
    known = {name.partition(".")[0] for name in sys.modules}
    if hasattr(gc, "freeze"):  # since Python 3.7
        gc.freeze()  # collecting garbage would copy all of it in each fork
    gc.enable()
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.bind(_PLACE)
    os.chmod(_PLACE, 0o700)
    listener.listen(64)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    while True:
        line = _accepted(listener)
        orders, fds = _received(line)
        if orders and orders["world"] == world and _times() == times and _finds_the_same(orders["path"], known):
            if os.fork() == 0:
                listener.close()
                if _keep(line):
                    return _run(orders, fds)
        for fd in fds:
            os.close(fd)
        line.close()


def _times():
    return [os.stat(folder).st_mtime_ns for folder in sys.path if os.path.isdir(folder)]


def _import_all():
    """Import what each session of pytest does, and what reports it."""
    # Here alone: `serve` has noted the world before, and a call that is handed over must not pay for them.
    for name in ("runpy", "pytest", "_pytest.config"):
        __import__(name)
    for name in sys.modules["_pytest.config"].default_plugins:
        __import__("_pytest." + name)
    for name in ("reporter", "reports", "installed"):
        loaded(name)


def _accepted(listener):
    fd, _ = listener._accept()
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)


def _received(line):
    """Return (what is asked, its descriptors); nothing is asked where somebody else than a call speaks."""
    data, sent, _, _ = line.recvmsg(2**20, _socket.CMSG_SPACE(4 * (_MOST + 1)))
    fds = [fd for _, _, some in sent for fd in struct.unpack("%di" % (len(some) // 4), some)]
    try:
        while len(data) < 4 + struct.unpack("<I", data[:4])[0]:
            more = line.recv(2**20)
            if not more:
                return None, fds
            data += more
        orders = marshal.loads(data[4:])
        return (orders if len(fds) == len(orders["numbers"]) + 1 else None), fds
    except (struct.error, ValueError, EOFError, TypeError, KeyError):
        return None, fds


def _finds_the_same(path, known):
    """Return whether imports by a call's path find what is imported."""
    if [folder for folder in path if folder in sys.path] != sys.path or not all(map(os.path.isabs, path)):
        return False
    others = [folder for folder in path if folder not in sys.path and os.path.isdir(folder)]
    return not any(_hides(folder, name, known) for folder in others for name in os.listdir(folder))


def _hides(folder, name, known):
    """Return whether a file is imported in place of a known module."""
    module, end = name.partition(".")[::2]
    return module in known and (end.endswith(("py", "pyc", "so")) or os.path.isdir(os.path.join(folder, name)))


def _keep(line):
    """Fork what runs a call: returns True there. Passes on signals here, and reports the end."""
    child = 0

    def ended(*_):
        found, status = os.waitpid(child, os.WNOHANG) if child else (0, 0)
        if found:
            line.sendall(struct.pack("<I", status))
            os._exit(0)

    _signal.signal(_signal.SIGCHLD, ended)
    line.sendall(b"y")
    child = os.fork()
    if child == 0:
        return True
    try:
        try:
            os.setpgid(child, child)
        except OSError:
            pass  # it has done so itself, or has ended
        ended()
        while line.recv(1, _socket.MSG_PEEK):
            time.sleep(_SOON_S)
            for number in sorted(set(line.recv(99))):
                os.killpg(child, number)
        os.kill(child, _signal.SIGKILL)  # as the call itself was
    finally:
        os._exit(0)


def _run(orders, fds):
    """Be the call."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.setpgid(0, 0)
    os.fchdir(fds[0])
    free = 1 + max(orders["numbers"] + [int(name) for name in os.listdir("/proc/self/fd")])
    high = [fcntl(fd, F_DUPFD, free) for fd in fds[1:]]
    os.closerange(0, free)
    for fd, number in zip(high, orders["numbers"]):
        os.dup2(fd, number)
        os.close(fd)
    os.umask(orders["umask"])
    os.environb.clear()
    os.environb.update(orders["environ"])
    time.tzset()
    sys.argv, sys.path, sys.executable = orders["argv"], orders["path"], orders["executable"]
    if orders["orig_argv"] is not None:
        sys.orig_argv = orders["orig_argv"]
    sys.path_importer_cache.clear()
    loaded("reporter").Listener.root = os.getcwd()
    main = sys.modules["__main__"] = type(sys)("__main__")
    if orders["script"] is None:
        sys.modules["runpy"]._run_module_as_main("pytest")
    else:
        main.__file__ = orders["script"]
        with open(main.__file__, "rb") as file:
            code = compile(file.read(), main.__file__, "exec")
        exec(code, main.__dict__)
