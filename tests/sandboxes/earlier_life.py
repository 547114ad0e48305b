"""What root and others may leave in a sandbox for whoever has it after a reset.

Each is a program that leaves something, and one that finds it: it prints as it does in a sandbox that was just opened.
"""

IN_FLIGHT = """
import array, os, socket
# A socket with a name, on its way through sockets that only hold each other.
named = socket.socket(socket.AF_UNIX)
named.bind("\\0kept")
named.listen()
kept = open("/tmp/kept", "w+")
os.unlink("/tmp/kept")
one, other = socket.socketpair(socket.AF_UNIX)
for end, fds in ((one, [named, kept, other]), (other, [one])):
    socket.send_fds(end, [b"x"], [fd.fileno() for fd in fds])
"""
SYSTEM_V = """
import ctypes
libc = ctypes.CDLL(None)
at = libc.shmget(0x1234, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(at, None, 0)
libc.semget(0x1234, 3, 0o1666)
queue = libc.msgget(0x1234, 0o1666)
libc.msgsnd(queue, (ctypes.c_char * 16)(1), 8, 0)
"""
QUEUE = """
import ctypes
libc = ctypes.CDLL(None)
queue = libc.mq_open(b"/kept", 0o102, 0o666, None)
libc.mq_send(queue, b"kept", 4, 0)
"""
RESPAWNING = """
import os, signal, time
for name in range(1, 32):
    try:
        signal.signal(name, signal.SIG_IGN)
    except OSError:
        pass
if os.fork():
    os._exit(0)
os.setsid()
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.01)
    except OSError:
        pass
"""
TIMERS = """
import ctypes, os, signal, time
if os.fork():
    os._exit(0)
os.setsid()
signal.signal(signal.SIGALRM, lambda *_: open("/dev/shm/rang", "w"))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while True:
    time.sleep(1)
"""
LIMITS_OF_ALL = """
import contextlib, os, resource, socket
for pid in (1, os.getppid()):
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, limit, (8, 8))
with contextlib.suppress(OSError):
    socket.sethostname("changed")
"""
MOUNTS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000 | 0x20000))
print(libc.mount(b"/root", b"/mnt", None, 4096, None))
print(libc.syscall(428, -100, b"/", 1))
os.symlink("/root", "/opt/leads")
os.link("/etc/passwd", "/opt/same")
os.chdir("/opt")
for name in ("a", "b"):
    os.mkdir(name)
os.rename("b", "a/b")
"""
SERVER = """
import os, socket
server = socket.create_server(("127.0.0.1", 8123))
other = socket.create_connection(("127.0.0.1", 8123))
server.accept()[0].close()
other.close()
"""

# That ends without a time in which the kernel keeps its port.
CONNECTION = """
import socket, time
server = socket.create_server(("127.7.7.7", 0))
one = socket.create_connection(server.getsockname())
other, _ = server.accept()
for _ in range(30):
    one.send(b"x" * 1000)
    other.recv(1000)
one.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
one.close()
time.sleep(2)
"""
REMEMBERED = """
import socket, struct
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
def ask(family, flags, command, attributes=b""):
    head = struct.pack("=IHHIIBBH", 20 + len(attributes), family, flags, 0, 0, command, 1, 0)
    netlink.send(head + attributes)
    return netlink.recv(65536)
told = ask(16, 1, 3, struct.pack("=HH", 16, 2) + b"tcp_metrics\\0")
at = told.index(struct.pack("=HH", 6, 1)) + 4
print(b"\\x7f\\7\\7\\7" in ask(*struct.unpack_from("=H", told, at), 0x301, 1))
"""

KEYS = """
import ctypes, os
add_key = {"x86_64": 248}.get(os.uname().machine, 217)
print(ctypes.CDLL(None).syscall(add_key, b"user", b"kept", b"kept", 4, -3))
"""
TERMINAL = """
import os, pty, termios, time
for _ in range(3):
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
if os.fork():
    os._exit(0)
os.setsid()
time.sleep(1000)
"""
NEW_TERMINAL = """
import os, pty, termios
ours, theirs = pty.openpty()
print(os.ttyname(theirs), bool(termios.tcgetattr(theirs)[3] & termios.ECHO))
"""
MEMORY = """
kept = b"x" * (48 << 20)
for folder in ("/dev/shm", "/app"):
    open(folder + "/kept", "wb").write(kept[: 20 << 20])
"""
PEAKS = """
import contextlib
for name in ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes"):
    with contextlib.suppress(OSError):
        print(int(open("/sys/fs/cgroup/memory/" + name).read()) < 40 << 20)
for name in ("memory/memory.failcnt", "memory/memory.memsw.failcnt"):
    with contextlib.suppress(OSError):
        print(open("/sys/fs/cgroup/" + name).read().strip())
"""
# Process 1, this shell and what watches it; the last command's takes a moment to go.
COUNT = "for n in $(seq 50); do set -- /proc/[0-9]*; test $# -gt 3 || break; sleep 0.1; done; echo $#"
WITHOUT_TIMES = "sed 's/[A-Z][a-z]* *[0-9]* [0-9:]*//'"

LEFT = {
    "a daemon": ("(setsid sh -c 'trap \"\" HUP TERM; while :; do sleep 0.1; done' >/dev/null 2>&1 &) ; :", COUNT),
    "processes that breed": (["python3", "-c", RESPAWNING], COUNT),
    "a process that is stopped": ("sleep 1000 >/dev/null 2>&1 & kill -STOP $!", COUNT),
    "files": (
        "echo kept | tee /tmp/kept /var/tmp/kept /app/kept /kept; rm -rf /etc /usr/share; ln -s / /opt/root; chmod 0 /",
        "ls -A / /tmp /var/tmp /app /opt; md5sum /etc/passwd; ls /usr/share; stat -c %a /",
    ),
    "a file that is deleted, and open": (
        "(exec 9>/tmp/kept; rm /tmp/kept; echo kept >&9; exec sleep 1000) >/dev/null 2>&1 &",
        "ls -A /tmp; ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c deleted",
    ),
    "files in /dev and what is below it": (
        "for d in /dev /dev/shm /dev/mqueue /dev/pts; do echo kept >$d/kept; mkdir $d/folder; chmod 700 $d; done",
        f"ls -lA /dev /dev/shm /dev/mqueue /dev/pts | {WITHOUT_TIMES}; stat -c %a /dev /dev/shm /dev/mqueue",
    ),
    "devices that are others": (
        "chmod 0 /dev/stdin /dev/full /dev/pts/ptmx; rm /dev/zero /dev/null; mkfifo /dev/null; ln -s /bin/sh /dev/zero",
        "stat -c '%F %a %t %T' /dev/null /dev/zero /dev/full /dev/pts/ptmx; cat | wc -c; stat -Lc %a /dev/stdin",
    ),
    "segments, semaphores and queues of System V's": (
        ["python3", "-c", SYSTEM_V],
        "cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg | wc -l",
    ),
    "a queue of POSIX's": (["python3", "-c", QUEUE], "ls -A /dev/mqueue"),
    # The kernel collects them in its own time.
    "sockets under way in sockets": (
        ["python3", "-c", IN_FLIGHT],
        "for _ in $(seq 50); do grep -q 'used 0' /proc/net/sockstat && break; sleep 0.1; done;"
        " tail -n +2 /proc/net/unix | wc -l; grep used /proc/net/sockstat",
    ),
    "a port that the kernel keeps": (["python3", "-c", SERVER], "tail -n +2 /proc/net/tcp | wc -l"),
    "the address of a connection": (["python3", "-c", CONNECTION], ["python3", "-c", REMEMBERED]),
    "timers": (["python3", "-c", TIMERS], "sleep 0.1; ls -A /dev/shm"),
    "limits and names": (
        ["python3", "-c", LIMITS_OF_ALL],
        "cat /proc/self/limits; grep -c changed /proc/sys/kernel/hostname; umask; ulimit -n",
    ),
    "keys": (["python3", "-c", KEYS], "cat /proc/keys"),
    "mounts": (
        ["python3", "-c", MOUNTS],
        "cut -d ' ' -f 5- /proc/self/mountinfo | sed 's/ overlay .*//; s/ master:[0-9]*//' | sort; ls -A /opt /mnt",
    ),
    "an environment": (
        "export KEPT=1; echo KEPT=1 >>/etc/environment; echo 'export KEPT=1' >>/etc/profile",
        "env | grep -v ^HOSTNAME= | sort; cat /etc/profile",
    ),
    "terminals": (["python3", "-c", TERMINAL], ["python3", "-c", NEW_TERMINAL]),
    "times of the past": (
        "touch -d 2001-01-01 /tmp /app /etc /dev /dev/shm /dev/pts /",
        "find / /tmp /app /etc /dev /dev/shm /dev/pts -maxdepth 0 ! -newermt 2002-01-01",
    ),
    "what memory came to": (["python3", "-c", MEMORY], ["python3", "-c", PEAKS]),
    "attributes of files": (
        "(setfattr -n user.kept -v 1 /app /; chattr +i /app) 2>/dev/null; chmod 700 /app /tmp; chown 7:7 / /app",
        "getfattr -d / /app 2>/dev/null; stat -c '%a %u %g' / /app /tmp",
    ),
    "all room in /dev/shm taken": ("head -c 1G /dev/zero >/dev/shm/kept", "df --output=used,size /dev/shm"),
}
