"""What root and others may try inside a sandbox."""

PIPES = r"""
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for fd in range(64):
        for how in (os.O_WRONLY, os.O_RDWR):
            try:
                pipe = os.open(f"/proc/{pid}/fd/{fd}", how | os.O_NONBLOCK)
                while os.readlink(f"/proc/self/fd/{pipe}").startswith("pipe"):
                    os.write(pipe, b"ended 0\n" * 500)
            except OSError:
                pass
"""
TRACE = """
import ctypes, os
if os.fork() == 0:
    os.setsid()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) not in (os.getpid(), 1):
            ctypes.CDLL(None).ptrace(16, int(pid), None, None)
    while True:
        os.wait4(-1, 0x40000000)
"""
LIMITS = """
import contextlib, os, resource
for pid in (1, os.getppid(), *map(int, filter(str.isdigit, os.listdir("/proc")))):
    if pid == os.getpid():
        continue
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, limit, (0, 0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    for name in ("oom_score_adj", "autogroup"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "w") as file:
            file.write("1000")
"""
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[1000]).start()
ctypes.CDLL(None).pthread_exit(None)
"""
# Of whatever starts later; each is held where it ends.
TRACE_ENDS = """
import ctypes, os, time
SEIZE, AT_ITS_END = 0x4206, 0x40
open("ready", "x")
while not os.path.exists("go"):
    time.sleep(0.01)
while True:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid > os.getpid():
            ctypes.CDLL(None).ptrace(SEIZE, pid, None, AT_ITS_END)
    time.sleep(0.01)
"""
LEASES = """
import fcntl, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = [open(f"leased-{number}", "x+") for number in range(2)]
for file in held:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pass
open("leased", "x")
time.sleep(1000)
"""
# Of a tree, again and again, while others are to be read whole.
CHANGES = """
import os, threading
os.mkdir("tree")
for name in (*map(str, range(100)), "zz"):
    open(f"tree/{name}", "x").close()
large = bytes(30_000_000)
def shrink():
    while True:
        open("tree/50", "wb").write(large)
        os.truncate("tree/50", 0)
threading.Thread(target=shrink).start()
while True:
    os.mkdir("tree/51.here")
    os.rename("tree/51.here", "tree/51.there")
    os.symlink("/etc", "tree/51.here")
    os.rmdir("tree/51.there")
    os.unlink("tree/51.here")
"""

# One name is a file and a pipe by turns, so that whoever has looked at the file opens the pipe.
EXCHANGES = """
import os
os.mkdir("tree")
while True:
    with open("tree/name", "x") as file:
        file.write("x")
    os.unlink("tree/name")
    os.mkfifo("tree/name")
    os.unlink("tree/name")
"""
# The upload's own name is a pipe whenever it is none.
PIPES_IN_PLACE = """
import contextlib, os
os.makedirs("tree", exist_ok=True)
while True:
    with contextlib.suppress(FileExistsError):
        os.mkfifo("tree/placed")
"""
# A name comes and goes.
COMES_AND_GOES = """
import contextlib, os
os.mkdir("tree")
while True:
    with contextlib.suppress(OSError):
        open("tree/name", "x").close()
    with contextlib.suppress(OSError):
        os.unlink("tree/name")
"""

# Of a session's shell and of fresh ones.
IN_A_SESSION = {
    "the shell stops itself": "kill -STOP $$",
    "a job stops the shell when the command is over": "(sleep 0.1; kill -STOP $$) & :",
    "a job kills the shell when the command is over": "(sleep 0.1; kill -9 $$) & :",
    "the loop's descriptors are closed": "eval 'exec '$(seq -f '%g>&-' 3 30 | tr '\\n' ' ')",
    "ends are forged": "for fd in $(seq 3 30); do echo ended 0 >&$fd; echo ended $__nonce 0 >&$fd; done 2>/dev/null",
    "the loop's names are taken": "__dir=/nowhere __nonce=0 __slot=7; command() { :; }; read() { :; }",
}
IN_A_FRESH_SHELL = {
    "everything is stopped": "kill -STOP -1",
    "pipes are filled": ["python3", "-c", PIPES],
    "everything is traced": ["python3", "-c", TRACE],
    "limits and priorities are taken away": ["python3", "-c", LIMITS],
    "what is ours is removed": "rm -rf /dev/shm/.[!.]* /.atropos* /tmp/.[!.]*",
    "what is ours is replaced": "for d in /dev/shm/.session*; do rm -f $d/text; mkdir $d/text; mkfifo $d/x; done",
    "/dev/shm is full": "head -c 1G /dev/zero >/dev/shm/full; while echo >/dev/shm/$((i=i+1)); do :; done 2>/dev/null",
    "output floods": "yes | head -c 10G & yes & yes >&2",
    "processes breed": "b() { b | b & }; b; sleep 60",
    "everything spins": "while :; do (setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &); done",
    "everything is killed": "kill -9 -1",
}
