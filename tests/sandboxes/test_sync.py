"""The synchronous face: the same sandboxes, from a thread without an event loop."""

import asyncio
import os
import signal
import subprocess
import threading
import time

import pytest

from sandboxes.base import NotSupported, PtySize, Sandbox, SandboxDied, SandboxSpec
from sandboxes.local import LocalBackend
from sandboxes.sync import SyncBackend, SyncProcess, SyncSandbox

pytestmark = pytest.mark.any_starter


@pytest.fixture
def backend(kind, make_backend):
    with SyncBackend(asyncio.run(make_backend(kind))) as entered:
        yield entered


@pytest.fixture
def box(backend, spec):
    with backend.open(spec) as sandbox:
        yield sandbox


def test_commands_sessions_and_files_work(box):
    assert box.exec("echo $COLOUR", split=True).stdout == "green\n"
    box.write_file("a", b"1")
    assert box.read_file("a") == b"1"
    session = box.session()
    session.run("x=kept")
    assert session.run("echo $x").output == "kept\n"
    session.close()
    assert box.exec("pwd").output == f"{box.workdir}\n"


def test_a_command_is_followed(box):
    with box.start("while read line; do echo got $line; done", stdin=True) as process:
        process.write(b"one\n")
        assert process.stdout.readline() == b"got one\n"
        assert process.exit_code is None
        process.close_stdin()
        assert list(process) == []
        assert process.wait().output == "got one\n"
    with box.start("cat", pty=PtySize()) as process:
        process.write(b"ready\n")
        # The terminal says it, and then `cat`: a shell that is about to run it would lose the signal.
        assert [process.stdout.readline() for _ in range(2)] == [b"ready\r\n"] * 2
        process.resize(PtySize(40, 100))
        process.send_signal(signal.SIGINT)
        assert process.wait().exit_code == 130


def test_a_flood_that_was_begun_to_be_read_can_be_waited_for(box):
    with box.start("head -c 3000000 /dev/zero") as process:
        assert process.stdout.read()
        assert process.wait().truncated


def test_a_server_inside_is_reached(box):
    if not box.exec("command -v python3").ok:
        pytest.skip("this image has no python3 to serve with")
    echo = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s, _ = listener.accept()
    while data := s.recv(999):
        s.sendall(data)
"""
    with box.start(["python3", "-c", echo]) as server, box.connect(int(server.stdout.readline())) as connection:
        connection.write(b"hello\nagain")
        connection.write_eof()
        assert connection.readline() == b"hello\n"
        assert connection.read() == b"again"


def test_forks_have_its_files(box):
    box.write_file("a", b"1")
    with box.fork(2) as forks:
        assert [fork.read_file("a") for fork in forks] == [b"1", b"1"]


def test_errors_pass_through_and_everything_is_closed(backend, spec):
    with pytest.raises(ZeroDivisionError), backend.open(spec) as box:
        with pytest.raises(FileNotFoundError):
            box.read_file("nothing")
        with pytest.raises(KeyError), box.start("sleep 60") as process:
            raise KeyError
        assert process.exit_code == 137
        raise ZeroDivisionError
    with pytest.raises((SandboxDied, FileNotFoundError)):
        box.read_file("a")


def test_threads_share_one(box):
    results = {}

    def echo(number):
        results[number] = box.exec(f"sleep 0.2; echo {number}").output

    threads = [threading.Thread(target=echo, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"{n}\n" for n in range(8)}


@pytest.fixture
def local():
    with SyncBackend(LocalBackend()) as backend, backend.open(SandboxSpec("none")) as box:
        yield box


def test_ctrl_c_cancels_the_command_and_leaves_the_sandbox_usable(local):
    def interrupt():
        while subprocess.run(["pgrep", "-f", "sleep 61[.]5"], check=False, capture_output=True).returncode:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        local.exec("sleep 61.5")
    assert local.exec("pgrep -f 'sleep 61[.]5' | wc -l").output == "0\n"
    assert local.exec("echo fine").output == "fine\n"


def test_ctrl_c_in_a_block_leaves_it_in_order():
    with (
        pytest.raises(KeyboardInterrupt),
        SyncBackend(LocalBackend()) as backend,
        backend.open(SandboxSpec("none")) as box,
    ):
        raise KeyboardInterrupt
    with pytest.raises(RuntimeError, match="in its block"):
        box.exec("true")


def test_it_works_beside_an_event_loop_as_in_a_notebook():
    async def cell():
        with SyncBackend(LocalBackend()) as backend, backend.open(SandboxSpec("none")) as box:
            return box.exec("echo hi").output

    assert asyncio.run(cell()) == "hi\n"


def test_a_backend_that_was_not_entered_says_so():
    with pytest.raises(RuntimeError, match="in its block"):
        SyncBackend(LocalBackend()).ensure_image("x")


def test_a_backend_that_cannot_be_entered_raises_its_error():
    class Refuses(LocalBackend):
        async def __aenter__(self):
            raise NotSupported("not here")

    with pytest.raises(NotSupported, match="not here"), SyncBackend(Refuses()):
        pass


def test_it_has_all_that_the_async_one_has():
    ours = {name for name in vars(Sandbox) if not name.startswith("_")}
    assert ours <= set(dir(SyncSandbox)) | {"workdir"}
    assert {"stdout", "stderr", "exit_code", "wait", "kill", "write"} <= set(dir(SyncProcess))
