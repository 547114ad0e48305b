"""The C programs, each warning an error, run under the sanitizers of addresses and undefined behaviour."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from sandboxes.shell import LOOP, LOOP_VARIABLE, session_argv

ROOT = Path(__file__).parent.parent.parent
EXECUTOR = ROOT / "sandboxes/docker/executor"
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
OPTIONS = {"ASAN_OPTIONS": "exitcode=99:detect_leaks=0", "UBSAN_OPTIONS": "exitcode=99:print_stacktrace=1"}
HEADER = struct.Struct("<IIc")

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")


def compiled(out: Path, *arguments: object) -> Path:
    command = ["gcc", *STRICT, *SANITIZE, "-o", str(out), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -lasan" in done.stderr:
        pytest.skip("gcc has no libasan here")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def executor(of_all_workers: Path) -> Path:
    """The executor, compiled once for all workers."""
    # Process 1 of a namespace of its own, as in a container: it may kill whatever it sees.
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a process namespace")
    made = of_all_workers / "executor"
    with (of_all_workers / "executor.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return made if made.exists() else compiled(made, *sorted(EXECUTOR.glob("*.c")))


class Executor:
    """One that runs, spoken to in frames. `main.c` describes them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def send(self, number: int, kind: bytes, payload: bytes = b"") -> None:
        self._in.write(HEADER.pack(len(payload), number, kind) + payload)
        self._in.flush()

    def receive(self) -> tuple[int, bytes, bytes]:
        length, number, kind = HEADER.unpack(self._out.read(HEADER.size))
        return number, kind, self._out.read(length)

    def answer(self, number: int, last: bytes) -> tuple[bytes, bytes]:
        """The data of a request, and the payload with which it ends."""
        data = b""
        while True:
            whose, kind, payload = self.receive()
            assert whose == number, (whose, kind, payload)
            if kind == last:
                return data, payload
            data += payload

    def pieces(self, number: int, last: bytes = b"X") -> tuple[dict[bytes, bytes], bytes]:
        """The data of a request by its frames' types, and the payload with which it ends."""
        data: dict[bytes, bytes] = {}
        while True:
            whose, kind, payload = self.receive()
            assert whose == number, (whose, kind, payload)
            if kind == last:
                return data, payload
            data[kind] = data.get(kind, b"") + payload

    def run(self, number: int, *argv: str, **how: object) -> tuple[bytes, int, int, int]:
        self.send(number, b"E", command(*argv, **how))  # type: ignore[arg-type]
        return self.ended(number)

    def ended(self, number: int) -> tuple[bytes, int, int, int]:
        """Output, exit code, flags and bytes dropped."""
        data, end = self.answer(number, b"X")
        return data, *struct.unpack("<IB3Q", end)[:3]

    def end(self) -> int:
        """Close its input, and return its exit status."""
        with suppress(BrokenPipeError):
            self._in.close()
        self._out.read()
        return self.process.wait(120)


SPLIT, FOLLOW, INPUT, TERMINAL = 1, 2, 4, 8


def command(
    *argv: str, cwd: str = "/", env: tuple[str, ...] = (), timeout_ms: int = 0, max_output: int = 10_000, how: int = 0
) -> bytes:
    limits_and_user = (max_output, timeout_ms, os.geteuid(), os.getegid())
    head = struct.pack("<4I6HI", *limits_and_user, 1, len(argv), len(env), how, 24, 80, 0)
    return head + b"".join(text.encode() + b"\0" for text in (cwd, *argv, *env))


@contextmanager
def running(executor: Path, log: Path, *arguments: str) -> Iterator[Executor]:
    """Start it; in the end see that no sanitizer has complained."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            # By a relative path: it removes an absolute one, that of its file in a container.
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "./executor", *arguments],
            cwd=executor.parent,
            env={**os.environ, **OPTIONS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield Executor(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        assert "Sanitizer" not in log.read_text() and "runtime error" not in log.read_text(), log.read_text()


@pytest.fixture
def talk(executor: Path, tmp_path: Path) -> Iterator[Executor]:
    with running(executor, tmp_path / "stderr", "lease=60") as one:
        assert one.receive()[:2] == (0, b"H")
        yield one
        assert one.process.poll() is not None or one.end() == 0


def test_commands_run_with_their_input_environment_and_limits(talk: Executor) -> None:
    talk.send(1, b"D", b"from us\n")
    assert talk.run(1, "/bin/sh", "-c", "cat; echo $A >&2; exit 7", env=("A=b",)) == (b"from us\nb\n", 7, 0, 0)
    data, code, _, dropped = talk.run(2, "/bin/sh", "-c", "seq 100000", max_output=1000)
    assert (code, data[:4], data[-7:]) == (0, b"1\n2\n", b"100000\n")
    assert len(data) + dropped == len("".join(f"{n}\n" for n in range(1, 100001)))
    data, code, flags, _ = talk.run(3, "/bin/sh", "-c", "echo begun; sleep 60 & sleep 60", timeout_ms=300)
    assert (data, flags) == (b"begun\n", 1) and code != 0
    assert talk.run(4, "/nowhere/program")[1] == 127
    assert talk.run(5, "/bin/true", cwd="/nowhere")[1] == 126


def test_many_commands_run_at_once_and_can_be_killed(talk: Executor) -> None:
    for number in range(1, 21):
        talk.send(number, b"E", command("/bin/sh", "-c", "(sleep 60 &) ; sleep 60"))
    for number in range(1, 21):
        talk.send(number, b"K")
    ends = {}
    while len(ends) < 20:
        number, kind, payload = talk.receive()
        if kind == b"X":
            ends[number] = payload
    assert set(ends) == set(range(1, 21))
    talk.send(30, b"E", command("/bin/sh", "-c", "sleep 60"))
    talk.send(0, b"Q", b"too much was written\0")
    data, code, _, _ = talk.ended(30)
    assert b"too much was written" in data and code != 0


def be_still(talk: Executor, number: int, still: bool) -> int:
    talk.send(number, b"B", bytes([still]))
    return int.from_bytes(talk.answer(number, b"F")[1], "little")


def grows(path: Path, seconds: float) -> bool:
    size, ends = path.stat().st_size, time.monotonic() + seconds
    while path.stat().st_size == size and time.monotonic() < ends:
        time.sleep(0.01)
    return path.stat().st_size != size


def test_everything_stands_still_and_goes_on(talk: Executor, tmp_path: Path) -> None:
    grown = tmp_path / "grown"
    grown.touch()
    script = "import subprocess, sys\nwhile True: subprocess.run(['true']); open(sys.argv[1], 'a').write('x')"
    talk.send(1, b"E", command(sys.executable, "-c", script, str(grown)))
    talk.send(2, b"E", command("/bin/sh", "-c", f"while :; do echo >> {grown}; (:) & done"))
    assert talk.run(3, "/bin/sh", "-c", "sh -c 'kill -STOP $$' &")[1] == 0
    assert grows(grown, 10)
    for number in range(10, 20):
        assert be_still(talk, number, True) == 0
        assert not grows(grown, 0.05)
        assert be_still(talk, number, False) == 0
        assert grows(grown, 10)
    states = talk.run(5, "/bin/sh", "-c", "cat /proc/[0-9]*/stat")[0].decode()
    assert states.count(") T ") == 1, "who was stopped before stays so, and nobody else"
    for number in (1, 2):
        talk.send(number, b"K")
    assert {talk.receive()[0], talk.receive()[0]} == {1, 2}


def test_what_can_not_stand_still_is_told_and_goes_on(talk: Executor, tmp_path: Path) -> None:
    source = tmp_path / "vfork.c"
    source.write_text("#include <unistd.h>\nint main(void) { if (!vfork()) for (;;) pause(); }\n")
    subprocess.run(["gcc", "-w", "-o", str(tmp_path / "vfork"), str(source)], check=True)
    talk.send(1, b"E", command(str(tmp_path / "vfork")))
    assert talk.run(2, "/bin/sh", "-c", "until grep -q vfork /proc/[0-9]*/comm; do :; done; sleep 0.1")[1] == 0
    assert be_still(talk, 3, True) == errno.ETIMEDOUT
    assert talk.run(4, "/bin/echo", "more")[0] == b"more\n"
    talk.send(1, b"K")
    assert talk.ended(1)[1] != 0


def test_files_are_written_and_read(talk: Executor, tmp_path: Path) -> None:
    who, place = struct.pack("<IIHI", os.geteuid(), os.getegid(), 1, 0), str(tmp_path / "a" / "b")
    content = random.Random(0).randbytes(300_000)
    talk.send(1, b"M", who + struct.pack("<I", 0o755) + place.encode() + b"\0")
    assert talk.answer(1, b"F")[1] == bytes(4)
    talk.send(2, b"W", who + struct.pack("<I", 0o640) + f"{place}/file".encode() + b"\0")
    for at in range(0, len(content), 65_536):
        talk.send(2, b"D", content[at : at + 65_536])
    talk.send(2, b"C")
    assert talk.answer(2, b"F")[1] == bytes(4)
    for limit, ending in ((len(content), 0), (1000, 27)):
        talk.send(3, b"R", who + struct.pack("<Q", limit) + f"{place}/file".encode() + b"\0")
        data, error = talk.answer(3, b"F")
        assert struct.unpack("<I", error) == (ending,)
        assert ending or data == content
    assert (tmp_path / "a/b/file").stat().st_mode & 0o777 == 0o640
    for number, last in ((5, b"C"), (6, b"K")):
        talk.send(number, b"W", who + struct.pack("<I", 0o600) + f"{place}/file".encode() + b"\0")
        talk.send(number, b"D", b"another" * number)
        talk.send(number, last)
        assert struct.unpack("<I", talk.answer(number, b"F")[1]) == (0 if last == b"C" else 125,)
        assert (tmp_path / "a/b/file").read_bytes() == b"another" * 5, "what was given up has changed nothing"
        assert list((tmp_path / "a/b").iterdir()) == [tmp_path / "a/b/file"]
    talk.send(4, b"R", who + struct.pack("<Q", 10) + b"/nowhere\0")
    assert struct.unpack("<I", talk.answer(4, b"F")[1]) == (2,)


def test_a_session_keeps_its_state_and_gets_a_new_shell(talk: Executor, tmp_path: Path) -> None:
    talk.send(1, b"S", command(*session_argv("/", str(tmp_path / "session")), env=(f"{LOOP_VARIABLE}={LOOP}",)))

    def line(number: int, text: str, timeout_ms: int = 0) -> tuple[bytes, int, int, int]:
        talk.send(number, b"L", struct.pack("<4I", 1, 10_000, timeout_ms, 0) + text.encode())
        return talk.ended(number)

    assert line(2, "cd /usr; A=kept")[1] == 0
    assert line(3, 'pwd; echo "$A"')[0] == b"/usr\nkept\n"
    assert line(4, "sleep 60", timeout_ms=300)[2] & 1
    assert line(5, "exit 3")[1] == 3
    (tmp_path / "session/text").unlink()
    (tmp_path / "session/text").mkdir()
    assert line(7, "echo by\necho the pipe")[:2] == (b"by\nthe pipe\n", 0)
    assert line(8, ": " + "x" * 200_000)[1] == 126, "more than a pipe takes"
    (tmp_path / "session/text").rmdir()
    assert line(6, 'pwd; echo "$A"')[0] == b"/usr\nkept\n"
    for number, text in enumerate(("echo out; echo err >&2; seq 9000", "echo out; echo err >&2; seq 9000; exit"), 9):
        talk.send(number, b"L", struct.pack("<4I", 1, 100, 0, SPLIT) + text.encode())
        streams, end = talk.pieces(number)
        assert streams[b"e"] == b"err\n" and len(streams[b"o"]) == len(streams[b"O"]) == 100
        assert struct.unpack("<IB3Q", end)[4] == 0
    talk.send(1, b"K")
    assert talk.answer(1, b"X")[1]


def test_streams_are_kept_apart_and_bounded_each_by_itself(talk: Executor) -> None:
    noise = "echo err >&2; seq 9000"
    talk.send(1, b"E", command("/bin/sh", "-c", noise, max_output=100, how=SPLIT))
    streams, end = talk.pieces(1)
    assert streams[b"e"] == b"err\n" and len(streams[b"o"]) == len(streams[b"O"]) == 100
    assert [bool(dropped) for dropped in struct.unpack("<IB3Q", end)[2:]] == [True, True, False]
    talk.send(2, b"E", command("/nowhere/program", how=SPLIT))
    assert b"program" in talk.pieces(2)[0][b"e"]


def credit(stream: int, size: int) -> bytes:
    return struct.pack("<BI", stream, size)


def test_a_followed_command_takes_input_and_waits_for_its_reader(talk: Executor) -> None:
    talk.send(1, b"E", command("/bin/cat", how=FOLLOW | INPUT | SPLIT))
    talk.send(1, b"d", b"hello\n")
    seen = [talk.receive()[1:] for _ in range(2)]
    assert sorted(seen) == [(b"1", b"hello\n"), (b"G", struct.pack("<I", 6))]
    talk.send(1, b"z")
    assert talk.pieces(1)[1][:5] == bytes(5)

    talk.send(2, b"E", command("/bin/sh", "-c", "head -c 300000 /dev/zero; echo e >&2", how=FOLLOW | SPLIT))
    streams: dict[bytes, bytes] = {}
    while len(streams.get(b"1", b"")) < 300_000 or b"2" not in streams:
        _, kind, payload = talk.receive()
        streams[kind] = streams.get(kind, b"") + payload
        if kind == b"1":
            talk.send(2, b"g", credit(0, len(payload)))
    assert streams == {b"1": bytes(300_000), b"2": b"e\n"}
    assert talk.pieces(2)[1][:5] == bytes(5)

    talk.send(3, b"E", command("/bin/sh", "-c", "head -c 300000 /dev/zero", how=FOLLOW, max_output=1000))
    talk.send(3, b"v", bytes([0]))
    pieces, end = talk.pieces(3)
    assert len(pieces.get(b"1", b"")) + len(pieces[b"O"]) + struct.unpack("<IB3Q", end)[2] == 300_000

    for number, frames in (
        (4, [(b"K", b"")]),
        (5, [(b"i", struct.pack("<I", 15))]),
        (6, [(b"i", struct.pack("<I", 0))]),
    ):
        talk.send(number, b"E", command("/bin/sleep", "60" if number < 6 else "0.1", how=FOLLOW | INPUT))
        for kind, payload in frames:
            talk.send(number, kind, payload)
        assert (talk.ended(number)[1] == 0) == (number == 6)

    talk.send(7, b"E", command("/bin/sh", "-c", "exec <&-; echo deaf; sleep 60", how=FOLLOW | INPUT))
    assert talk.receive()[1:] == (b"1", b"deaf\n")
    talk.send(7, b"d", b"x" * 1000)
    while (kind := talk.receive()[1]) == b"G":  # whoever has started it may hold the other end for a moment
        talk.send(7, b"d", b"x" * 1000)
    assert kind == b"Y"
    talk.send(7, b"K")
    assert talk.ended(7)[1] != 0
    for kind, payload in (
        (b"d", b"x"),
        (b"z", b""),
        (b"g", credit(0, 1)),
        (b"i", struct.pack("<I", 9)),
        (b"a", bytes(4)),
    ):
        talk.send(7, kind, payload)  # of one that has ended
    assert talk.run(8, "/bin/echo", "on")[0] == b"on\n"


def test_a_terminal_is_typed_at_resized_and_interrupted(talk: Executor) -> None:
    talk.send(1, b"E", command("/bin/sh", "-c", "stty size; read a; stty size; exec cat", how=FOLLOW | TERMINAL))
    seen = b""
    while b"24 80" not in seen:
        seen += talk.receive()[2]
    talk.send(1, b"a", struct.pack("<2H", 30, 100))
    talk.send(1, b"d", b"go\n")
    while b"30 100" not in seen:
        seen += talk.receive()[2]
    talk.send(1, b"d", b"there\n")
    while seen.count(b"there") < 2:  # by the terminal and by `cat`: a shell that is about to run it would lose Ctrl-C
        seen += talk.receive()[2]
    talk.send(1, b"d", b"\x03")
    assert talk.ended(1)[1] == 130


def receive_all(talk: Executor, wanted: int) -> list[tuple[int, bytes, bytes]]:
    """So many frames but those that only say that more may come."""
    seen: list[tuple[int, bytes, bytes]] = []
    while len(seen) < wanted:
        frame = talk.receive()
        seen += [frame] if frame[1] != b"G" else []
    return seen


def test_connections_lead_out_and_in(talk: Executor, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    talk.send(1, b"P", struct.pack("<I", port))
    assert talk.answer(1, b"F")[1] == bytes(4)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"from inside")
        (tunnel, kind, payload), (_, _, data) = receive_all(talk, 2)
        assert (kind, struct.unpack("<I", payload)[0], data) == (b"A", port, b"from inside")
        talk.send(tunnel, b"G", struct.pack("<I", len(data)))
        talk.send(tunnel, b"D", b"from us")
        assert client.recv(100) == b"from us"
        client.shutdown(socket.SHUT_WR)
        assert receive_all(talk, 1) == [(tunnel, b"Z", b"")]
        talk.send(tunnel, b"K")
        assert client.recv(100) == b""

    who, into, path = struct.pack("<IIHI", os.geteuid(), os.getegid(), 1, 0), 0xC0000001, str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        talk.send(into, b"J", who + path.encode() + b"\0")
        assert talk.answer(into, b"F")[1] == bytes(4)
        inside, _ = server.accept()
        with inside:
            talk.send(into, b"D", b"asked")
            assert inside.recv(100) == b"asked"
            inside.sendall(b"answered")
            assert receive_all(talk, 1) == [(into, b"O", b"answered")]
            talk.send(into, b"Z")
            assert inside.recv(100) == b""
        assert receive_all(talk, 1) == [(into, b"Z", b"")]
        talk.send(into, b"K")
    for number, to in ((0xC0000002, struct.pack("<I", 1)), (0xC0000003, who + b"/nowhere/" + b"x" * 200 + b"\0")):
        talk.send(number, b"J", to)
        *_, (whose, kind, error) = receive_all(talk, 1)
        assert (whose, kind) == (number, b"F") and error != bytes(4)
    talk.send(into, b"D", b"of one that is over")
    assert talk.run(2, "/bin/echo", "on")[0] == b"on\n"


def test_it_keeps_nothing_after_a_reset(talk: Executor, tmp_path: Path) -> None:
    talk.send(1, b"S", command(*session_argv("/", str(tmp_path / "session")), env=(f"{LOOP_VARIABLE}={LOOP}",)))
    for devices in (0, 1):
        talk.send(2, b"L", struct.pack("<4I", 1, 100, 0, 0) + b"sleep 60 & echo begun")
        assert talk.ended(2)[0] == b"begun\n"
        talk.send(3, b"E", command("/bin/sh", "-c", "(sleep 60 &); echo begun; sleep 60", how=FOLLOW | INPUT))
        assert talk.receive()[1:] == (b"1", b"begun\n")
        talk.send(4, b"N", bytes([devices]))
        while (frame := talk.receive())[0] == 3:
            assert frame[1] == b"X", "the end of the command may be seen first"
        assert frame == (4, b"F", bytes(4))
        names = talk.run(5, "/bin/sh", "-c", "cat /proc/[0-9]*/comm")[0].split()
        assert b"sleep" not in names and b"executor" in names
        talk.send(1, b"S", command(*session_argv("/", str(tmp_path / "session")), env=(f"{LOOP_VARIABLE}={LOOP}",)))


def test_a_socket_is_offered_to_the_owner_outside(talk: Executor, request: pytest.FixtureRequest) -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    folder.chmod(0o777)  # it is made by the executor's own user
    request.addfinalizer(lambda: shutil.rmtree(folder))
    path = folder / "link"
    talk.send(1, b"U", str(path).encode() + b"\0")
    assert talk.answer(1, b"F")[1] == bytes(4)
    with socket.socket(socket.AF_UNIX) as owner:
        owner.connect(str(path))
        length, number, kind = HEADER.unpack(owner.recv(HEADER.size))
        assert (number, kind, len(owner.recv(length))) == (0, b"H", 4)
        owner.sendall(HEADER.pack(len(command("/bin/true")), 2, b"E") + command("/bin/true"))
        while HEADER.unpack(head := owner.recv(HEADER.size, socket.MSG_WAITALL))[2] != b"X":
            owner.recv(HEADER.unpack(head)[0], socket.MSG_WAITALL)
    assert talk.process.wait(30) == 0, "its owner is gone"


def test_an_owner_that_comes_back_is_greeted_and_what_was_under_way_is_gone(talk: Executor, tmp_path: Path) -> None:
    token = bytes(range(16))
    talk.send(0, b"T", token)
    talk.send(1, b"E", command("/bin/sh", "-c", f"echo > {tmp_path}/begun; sleep 60"))
    while not (tmp_path / "begun").exists():  # what has not been read yet would be forgotten
        time.sleep(0.01)
    talk._in.write(HEADER.pack(500, 2, b"D") + b"half a frame" + token)
    talk._in.flush()
    seen = b""
    while token not in seen:
        seen += talk._out.read(1)
    assert talk.receive()[:2] == (0, b"H")
    while talk.receive()[:2] != (1, b"X"):
        pass
    assert talk.run(3, "/bin/echo", "on")[0] == b"on\n"


def followed(how: int) -> bytes:
    request = command("/bin/sleep", "60", how=FOLLOW | how)
    return HEADER.pack(len(request), 1, b"E") + request


WRONG = {
    "an unknown type": HEADER.pack(0, 1, b"?"),
    "too long": HEADER.pack(5 << 20, 1, b"D"),
    "a command of nothing": HEADER.pack(0, 1, b"E"),
    "a command cut short": HEADER.pack(36, 1, b"E") + command("/bin/true")[:36],
    "more groups than there are": HEADER.pack(36, 1, b"E")
    + struct.pack("<4I6H", 0, 0, 0, 0, 65535, 1, 0, 0, 0, 0)
    + b"/\0x\0yyyy",
    "more arguments than there are": HEADER.pack(36, 1, b"E")
    + struct.pack("<4I6H", 0, 0, 0, 0, 0, 65535, 0, 0, 0, 0)
    + b"/\0xxxxx\0",
    "no argument": HEADER.pack(30, 1, b"E") + struct.pack("<4I6H", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) + b"/\0",
    "a path without end": HEADER.pack(17, 1, b"W") + bytes(14) + b"abc",
    "a file of a user with more groups than there are": HEADER.pack(20, 1, b"R") + b"\xff" * 10 + bytes(10),
    "a file's name for a request that is something else": HEADER.pack(1, 1, b"D")
    + b"x"
    + HEADER.pack(16, 1, b"W")
    + bytes(14)
    + b"x\0",
    "a line for no session": HEADER.pack(18, 1, b"L") + struct.pack("<4I", 9, 10, 0, 0) + b"ls",
    "a line without a head": HEADER.pack(3, 1, b"L") + b"abc",
    "a session of nothing": HEADER.pack(0, 1, b"S")
    + HEADER.pack(18, 2, b"L")
    + struct.pack("<4I", 1, 10, 0, 0)
    + b"ls",
    "a close of nothing": HEADER.pack(0, 1, b"C"),
    "more input than fits": followed(INPUT) + HEADER.pack(200_000, 1, b"d") + bytes(200_000),
    "a credit cut short": followed(0) + HEADER.pack(3, 1, b"g") + bytes(3),
    "a signal without a number": followed(0) + HEADER.pack(0, 1, b"i"),
    "a size cut short": followed(TERMINAL) + HEADER.pack(2, 1, b"a") + bytes(2),
    "an unknown small type": followed(0) + HEADER.pack(0, 1, b"y"),
    "a connection to a path without end": HEADER.pack(17, 0xC0000001, b"J") + bytes(14) + b"abc",
    "a connection of a user with more groups than there are": HEADER.pack(20, 0xC0000001, b"J")
    + b"\xff" * 10
    + bytes(10),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_protocol_ends_it_cleanly(executor: Path, tmp_path: Path, name: str) -> None:
    with running(executor, tmp_path / "stderr") as one:
        one._in.write(WRONG[name])
        one._in.flush()
        assert one.end() in (0, 65), "gone rather than wrong"


def test_frames_with_errors_in_them_do_no_harm(executor: Path, tmp_path: Path) -> None:
    """What is sent is right but for a few bytes. Commands are harmless whatever their arguments become."""
    who = struct.pack("<IIHI", 65534, 65534, 1, 65534)
    right = [
        HEADER.pack(len(payload), number, kind) + payload
        for number, (kind, payload) in enumerate(
            [
                (b"E", command("/bin/true", "a", "b", env=("A=b", "C=d"))),
                (b"D", b"data"),
                (b"R", who + struct.pack("<Q", 100) + b"/etc/hostname\0"),
                (b"R", who + struct.pack("<Q", 100) + b"/etc\0"),
                (b"K", b""),
                (b"S", command("/bin/true", str(tmp_path / "session"))),
                (b"L", struct.pack("<4I", 6, 100, 100, SPLIT) + b"true"),
                (b"K", b""),
            ],
            1,
        )
    ]
    follows, tunnel = command("/bin/cat", "-", how=FOLLOW | INPUT | SPLIT), 0xC0000001
    right += [
        HEADER.pack(len(payload), number, kind) + payload
        for number, kind, payload in (
            (20, b"E", follows),
            (20, b"d", b"data"),
            (20, b"g", credit(1, 5)),
            (20, b"v", bytes([0])),
            (20, b"a", struct.pack("<2H", 20, 30)),
            (20, b"i", struct.pack("<I", 15)),
            (20, b"z", b""),
            (tunnel, b"J", who + b"/nowhere\0"),
            (tunnel, b"D", b"data"),
            (tunnel, b"G", struct.pack("<I", 5)),
            (21, b"P", struct.pack("<I", 31999)),
        )
    ]
    rng = random.Random(1)
    with running(executor, tmp_path / "stderr-0") as one:
        one._in.write(b"".join(right[:5]))
        assert one.end() == 0
    for number in range(1, 60):
        frames = [bytearray(frame) for frame in rng.sample(right, len(right))]
        for frame in rng.sample(frames, rng.randint(1, 4)):
            # Not the types, of which Q kills and W and M write; and not where a session's directory is.
            places = range(HEADER.size - 1) if frame[8:9] == b"S" else [*range(8), *range(HEADER.size, len(frame))]
            frame[rng.choice(places)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        with running(executor, tmp_path / f"stderr-{number}") as one:
            one._in.write(b"".join(frames))
            assert one.end() in (0, 65)
