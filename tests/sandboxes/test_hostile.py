"""The conformance suite's hostile half: what runs inside does its worst, as root, as the image's user and as nobody,
and we stay free.

Whatever it does, a command ends with its time limit, the next one works, and nothing of it is a failure of ours.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import aiodocker
import pytest
import pytest_asyncio
from attacks import (
    CHANGES,
    COMES_AND_GOES,
    EXCHANGES,
    HEADLESS,
    IN_A_FRESH_SHELL,
    IN_A_SESSION,
    LEASES,
    PIPES_IN_PLACE,
    TRACE_ENDS,
)
from small_archives import archive, content, members
from stopwatch import Stopwatch
from waiting import until

from sandboxes.base import Limits, NotSupported, SandboxDied, SandboxEnded, SandboxError, SandboxSpec, SandboxTimeout
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon import stream
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.executor import channel, streams
from sandboxes.docker.executor.disk_usage import descendants
from sandboxes.owner import PREFIX

pytestmark = pytest.mark.docker

LIMIT_S = 0.4
FREE_S = 3 * (LIMIT_S + 2)
"""An order of magnitude: a limit and 2 s."""


async def freely(work):
    """Await it, and see that it ends about as soon as its limit."""
    watch = Stopwatch()
    done = await work
    assert watch.seconds < FREE_S
    return done


async def assert_usable(box, shell):
    """What was done may cost commands of the attacker's, but a few at most; on a busy machine short limits do, too."""
    for run in (lambda command: shell.run(command, timeout=LIMIT_S), box.exec):
        said = []
        for _ in range(10):
            said.append(await freely(run("echo $((6 * 7))")))
            if said[-1].ok:
                break
        assert "42" in said[-1].output.splitlines(), said  # what the attackers print is in it, too, before and after
    await freely(box.write_file("/var/tmp/ours", b"x" * 100_000))
    assert await freely(box.read_file("/var/tmp/ours")) == b"x" * 100_000


IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def spec(spec):
    return replace(spec, workdir="/var/tmp")


@pytest_asyncio.fixture(loop_scope="session")
async def box(kind, kept_box):
    """A box that the test isn't the first to have."""
    if kind == "local":
        pytest.skip("nothing is isolated there")
    return kept_box


@pytest.fixture
async def attacked_image(kind, backend, spec, user, tmp_path):
    """The suite's image; with a user of its own where no other is asked for."""
    if user is not None or kind == "local":
        return spec.image
    (tmp_path / "Dockerfile").write_text(f"FROM {spec.image}\nUSER games\n")
    return await backend.ensure_image(None, tmp_path)


USERS = [
    "root",
    pytest.param(None, id="image's own", marks=pytest.mark.slow),
    pytest.param("nobody", marks=pytest.mark.slow),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", USERS)
async def test_whatever_runs_inside_we_are_free_again_with_its_limit(kind, backend, attacked_image, user):
    if kind == "local":
        pytest.skip("nothing is isolated there")
    async with backend.open(SandboxSpec(attacked_image, workdir="/var/tmp", limits=Limits(pids=128), user=user)) as box:
        for name, attack in {**IN_A_FRESH_SHELL, **IN_A_SESSION}.items():
            shell = await box.session()
            assert (await shell.run("echo here")).output == "here\n", name
            run = box.exec if name in IN_A_FRESH_SHELL else shell.run
            try:
                await freely(run(attack, timeout=LIMIT_S))
                await assert_usable(box, shell)
            except SandboxEnded:
                assert (kind, name) == ("runsc", "processes breed"), "gVisor ends, as it gets no more threads"
                await box.reset()
                continue
            except AssertionError as error:
                raise AssertionError(f"after {name!r} {error}") from error
            for _ in range(10):
                if (await freely(box.exec("kill -9 -1; rm -rf /dev/shm/*"))).exit_code != 126:  # no more processes
                    break
                await asyncio.sleep(0.1)
            await freely(shell.close())
        # The last, since there is no way back.
        await freely(box.exec("rm -f /dev/null; mkfifo /dev/null", timeout=LIMIT_S))
        assert (await freely(box.exec(["cat"], timeout=LIMIT_S))).raw == b"", "not our own stream"


async def need_python(box):
    if not (await box.exec("command -v python3")).ok:
        pytest.skip("this image has no python3 to attack with")


@IN_ONE_LOOP
async def test_a_process_that_goes_on_without_its_first_thread_ends_with_the_limit(box):
    await need_python(box)
    watch, limit = Stopwatch(), 2.0
    assert (await box.exec(["python3", "-c", HEADLESS], timeout=limit)).timed_out
    assert watch.seconds < limit + FREE_S
    assert "python" not in (await box.exec("cat /proc/[0-9]*/comm")).output


@IN_ONE_LOOP
async def test_who_traces_a_commands_processes_holds_none_past_its_limit(box):
    await need_python(box)
    begin = ["sh", "-c", 'python3 -c "$0" & until test -e ready; do sleep 0.1; done', TRACE_ENDS]
    assert (await box.exec(begin)).ok
    await box.write_file("go", b"")
    watch, limit = Stopwatch(), 2.0
    assert (await box.exec("sleep 60", timeout=limit)).timed_out
    assert watch.seconds < limit + FREE_S
    assert (await box.exec("echo fine", timeout=10)).output == "fine\n"


@IN_ONE_LOOP
async def test_files_that_are_leased_hold_nobody_up(box):
    """To open one from outside would take up to 45 s (fs.lease-break-time), with the next one again."""
    await need_python(box)
    await box.exec(["sh", "-c", 'python3 -c "$0" & until test -e leased; do sleep 0.1; done', LEASES], timeout=10)
    await freely(box.download("."))
    await freely(box.exec("cat leased-*"))


@IN_ONE_LOOP
async def test_trees_go_wherever_something_else_is_or_nothing(box):
    await box.exec("mkdir -p t/place/deep; echo old >t/place/deep/file; ln -s place t/link")
    await box.upload(archive({"place": b"new", "link": b"new"}), "t")
    assert (await box.exec("cat t/place t/link; ls t")).output == "newnewlink\nplace\n"
    deep = "/".join(["a"] * 1500)
    await box.upload(archive({deep: b"1"}), "t")
    assert content(await box.download("t"), deep) == b"1"


@IN_ONE_LOOP
async def test_paths_that_lead_nowhere_are_no_failure_of_ours(box):
    links = {"long": "x" * 4000, "name": "y" * 300, "nowhere": "none", "round": "round", "many": "./" * 2040}
    await box.upload(archive({}, links=links), ".")
    for name in links:
        for work in (
            box.read_file(f"{name}/file"),
            box.write_file(f"{name}/round/file", b"x"),
            box.upload(archive({"file": b"x"}), f"{name}/file"),
            box.upload(archive({f"{name}/file": b"x"}), "."),
            box.download(f"{name}/file"),
            box.download(f"{name}/"),
        ):
            with contextlib.suppress(OSError):  # of which ours are none
                await freely(work)
    assert (await box.exec("echo fine")).output == "fine\n"


@IN_ONE_LOOP
async def test_what_changes_while_it_is_read_comes_whole(box):
    await need_python(box)
    changing = asyncio.create_task(box.exec(["python3", "-c", CHANGES], timeout=300))
    assert (await box.exec("until test -e tree/zz; do sleep 0.1; done", timeout=120)).ok
    for _ in range(10):
        names = members(await box.download("tree"))
        assert {"0", "99", "zz"} <= names.keys()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)


@IN_ONE_LOOP
@pytest.mark.parametrize("attack", [EXCHANGES, PIPES_IN_PLACE])
async def test_pipes_in_the_place_of_files_hold_up_nobody_who_moves_trees(box, attack):
    await need_python(box)
    exchanging = asyncio.create_task(box.exec(["python3", "-c", attack], timeout=60))
    await box.exec("until test -e tree; do sleep 0.1; done", timeout=20)
    for _ in range(20):
        await asyncio.wait_for(box.upload(archive({"placed": b"x"}), "tree"), 30)
        await asyncio.wait_for(box.download("tree"), 30)
    exchanging.cancel()
    await asyncio.gather(exchanging, return_exceptions=True)
    await box.upload(archive({"placed": b"y"}), "tree")
    assert await box.read_file("tree/placed") == b"y"


async def test_a_file_that_comes_and_goes_is_written_under_its_name_or_not_at_all(kind, backend, spec):
    if kind == "local":
        pytest.skip("nobody is hostile there")
    async with backend.open(replace(spec, limits=Limits(cpus=2.0))) as box:
        await need_python(box)
        going = asyncio.create_task(box.exec(["python3", "-c", COMES_AND_GOES], timeout=60))
        await box.exec("until test -e tree; do sleep 0.1; done", timeout=20)
        for _ in range(400):
            with contextlib.suppress(OSError):
                await freely(box.write_file("tree/name", b"x"))
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        assert set((await box.exec("ls -A tree")).output.splitlines()) <= {"name"}


@IN_ONE_LOOP
async def test_a_branch_has_every_file_or_there_is_none(kind, box):
    """By such names layers of images say what is gone."""
    make = "mkdir d e; touch d/a d/.wh.a e/keep e/.wh..wh..opq; touch \"$(printf 'new\\nline')\" ...; mkfifo pipe"
    assert (await box.exec(make)).ok
    before = (await box.exec("find . | sort; ls /var | wc -l")).output
    try:
        async with box.fork(1) as (branch,):
            assert (await branch.exec("find . | sort; ls /var | wc -l")).output == before
    except NotSupported:
        raise  # of all forks, not of these files
    except SandboxError as error:
        assert kind != "crun" and ".wh." in str(error)
    await box.exec("rm -r d/.wh.* e/.wh.*")
    async with box.fork(1) as (branch,):
        assert (await branch.exec("find d e | sort")).output == "d\nd/a\ne\ne/keep\n"


async def processes(daemon: aiodocker.Docker, name: str) -> list[tuple[int, str]]:
    """Their ids on the machine and their command lines, the first one's first."""
    first = (await daemon.containers.container(name).show())["State"]["Pid"]
    return [(pid, _command_line(pid)) for pid in descendants(first)]


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="reaches into containers from outside")


@needs_root
async def test_a_full_pipe_to_a_shell_holds_nobody_up(docker_box):
    """Nobody inside can open it any more, but by tracing the shell."""
    shell = await docker_box.session()
    await shell.run("x=kept")
    await shell.run("(sleep 0.05; kill -STOP $$) & :")
    await asyncio.sleep(0.2)
    async with connect() as daemon:
        (pid,) = [pid for pid, command in await processes(daemon, docker_box.id) if "/dev/shm" in command]
    pipe = os.open(f"/proc/{pid}/fd/3", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe, b"x" * size)
    assert (await freely(shell.run("echo $x", timeout=LIMIT_S))).output == "kept\n"
    os.close(pipe)


@needs_root
async def test_an_executor_that_answers_nothing_holds_nobody_up(base_image, monkeypatch):
    for module, name in ((channel, "_ANSWER_S"), (channel, "_TAKE_BACK_S"), (streams, "TAKEN_S"), (stream, "TAKEN_S")):
        monkeypatch.setattr(module, name, 0.5)
    async with DockerBackend(starter="docker") as backend, connect() as daemon:
        async with backend.open(SandboxSpec(base_image)) as box:
            shell = await box.session()
            await shell.run("true")
            os.kill((await processes(daemon, box.id))[0][0], signal.SIGSTOP)
            for work in (
                box.exec("true", timeout=LIMIT_S),
                shell.run("true", timeout=LIMIT_S),
                box.write_file("x", b"x" * 10_000_000),
                box.read_file("/etc/passwd"),
            ):
                with pytest.raises((SandboxTimeout, SandboxDied)):
                    await freely(work)
            watch = Stopwatch()
        assert watch.seconds < FREE_S
        filters = {"label": [f"{PREFIX}owner={backend.owner.id}"]}
        assert await daemon.containers.list(all=True, filters=filters) == []


async def one_of_many(box, shells, rng: random.Random, number: int) -> str:
    """Run a command with a limit or a cancellation about when it ends. Returns what became of it."""
    run, seconds = rng.choice([box.exec, *(shell.run for shell in shells)]), rng.choice([0, 0, 0.01, 0.03])
    command = f"echo begin-{number}; sleep {seconds}; echo end-{number}"
    limit = rng.choice([10.0, seconds + rng.uniform(0, 0.02)])
    running = asyncio.create_task(run(command, timeout=limit))
    if rng.random() < 0.3:
        await asyncio.sleep(seconds + rng.uniform(0, 0.02))
        running.cancel()
    try:
        done = await running
    except asyncio.CancelledError:
        return "cancelled"
    lines = done.output.split()
    if done.timed_out:
        assert lines in ([], [f"begin-{number}"], [f"begin-{number}", f"end-{number}"]), (number, done)
        return "timed out"
    assert (done.exit_code, lines) == (0, [f"begin-{number}", f"end-{number}"]), (number, done)
    return "ended"


@pytest.mark.parametrize("commands", [200, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
async def test_each_result_is_its_own_commands(docker_backend, base_image, commands):
    """Limits and cancellations come at random moments, about when commands end."""
    rng, became = random.Random(0), []
    async with docker_backend.open(SandboxSpec(base_image, limits=Limits(cpus=2.0))) as box:
        shells = [await box.session() for _ in range(3)]

        async def some(numbers):
            for number in numbers:
                became.append(await one_of_many(box, shells, rng, number))

        await asyncio.gather(*(some(range(first, commands, 4)) for first in range(4)))
        for shell in shells:
            assert (await shell.run("echo fine")).output == "fine\n"
    assert len(became) == commands
    assert min(map(became.count, ("ended", "timed out", "cancelled"))) > commands // 100


_ATTACKED = f"""
import asyncio, sys
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

ATTACKS = {list(IN_A_FRESH_SHELL.values())!r}

async def main():
    spec = SandboxSpec(sys.argv[1], workdir="/tmp")
    async with DockerBackend(starter="docker") as backend, backend.open(spec) as box:
        shell = await box.session()
        await shell.run("true")
        print(backend.owner.id, flush=True)
        attack = ATTACKS[int(sys.argv[2]) % len(ATTACKS)]
        stopped = shell.run("(kill -STOP $$) & sleep 60")
        await asyncio.gather(box.exec(attack, timeout=60), stopped, box.exec("sleep 60"))
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("owners", [2, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
async def test_a_killed_owners_attacked_sandboxes_are_gone(base_image, owners):
    rng = random.Random(1)
    async with connect() as daemon:
        for number in range(owners):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _ATTACKED, base_image, str(number)), stdout=asyncio.subprocess.PIPE
            )
            owner = (await process.stdout.readline()).decode().strip()
            await asyncio.sleep(rng.uniform(0, 1.5))
            process.kill()
            await process.wait()
            filters = {"label": [f"{PREFIX}owner={owner}"]}

            async def none_runs(filters=filters):
                return not await daemon.containers.list(filters=filters)

            await until(none_runs)
            async with DockerBackend(starter="docker"):
                assert await daemon.containers.list(all=True, filters=filters) == []
