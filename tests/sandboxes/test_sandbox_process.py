"""What every backend must do with commands that are followed while they run."""

import asyncio
import contextlib
import random
import signal
import time

import pytest
from memory import resident_mb
from naps import count_of
from stopwatch import Stopwatch

from sandboxes.base import PtySize, SandboxDied

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.any_starter]

WINDOW = 128 << 10


@pytest.fixture
def box(kept_box):
    return kept_box


@pytest.fixture
def nap() -> str:
    """The length of a sleep that no one else sleeps."""
    return str(random.randint(10**7, 10**8))


async def naps_left(box, nap) -> int:
    return int((await box.exec(count_of(nap))).output)


async def naps_begun(box, nap) -> int:
    """Wait until two sleep. Returns how many do."""
    for _ in range(100):
        if (found := await naps_left(box, nap)) >= 2:
            break
        await asyncio.sleep(0.1)
    return found


async def until(process, text: bytes) -> bytes:
    """Read until the output holds a text. Returns what came."""
    seen = b""
    async with asyncio.timeout(120):
        while text not in seen:
            piece = await process.stdout.read()
            assert piece, seen
            seen += piece
    return seen


class TestOutputWhileItRuns:
    async def test_it_comes_while_the_command_runs(self, box):
        async with box.start("echo one; sleep 1; echo two") as process:
            began = time.monotonic()
            assert await process.stdout.readline() == b"one\n"
            assert process.exit_code is None
            assert await process.stdout.readline() == b"two\n"
            assert time.monotonic() - began > 0.5
            assert await process.stdout.readline() == b""
            result = await process.wait()
        assert (result.exit_code, result.output, result.timed_out) == (0, "one\ntwo\n", False)
        assert process.exit_code == 0

    async def test_it_is_iterated_over_in_pieces(self, box):
        async with box.start("head -c 1000000 /dev/zero") as process:
            pieces = [piece async for piece in process]
        assert sum(map(len, pieces)) == 1_000_000
        assert max(map(len, pieces)) <= 65536

    async def test_both_streams_are_one_in_order(self, box):
        async with box.start("for i in 1 2 3; do echo out $i; echo err $i >&2; done") as process:
            assert b"".join([piece async for piece in process]) == b"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
            with pytest.raises(ValueError, match="split=True"):
                _ = process.stderr

    async def test_or_each_is_read_by_itself(self, box):
        async with box.start("echo out; echo err >&2; sleep 60", split=True) as process:
            assert await process.stderr.readline() == b"err\n"
            assert await process.stdout.readline() == b"out\n"
            with pytest.raises(ValueError, match="apart"):
                aiter(process)

    async def test_the_result_holds_each_whether_it_was_read_or_not(self, box):
        async with box.start("echo out; echo err >&2", split=True) as process:
            assert await process.stdout.readline() == b"out\n"
            result = await process.wait()
        assert (result.stdout, result.stderr) == ("out\n", "err\n")
        assert sorted(result.output.split()) == ["err", "out"]

    async def test_what_is_not_read_is_in_the_result_bounded_as_any(self, box):
        lines = "i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done"
        whole = "".join(f"line {i}\n" for i in range(60_000))
        async with box.start(lines, max_output=1000) as process:
            await process.stdout.readline()
            result = await process.wait()
        marker = f"\n[... {len(whole) - 1000} bytes dropped ...]\n"
        assert result.truncated
        assert result.output == whole[:500] + marker + whole[-500:]

    async def test_what_wait_has_read_is_not_silently_missing(self, box):
        async with box.start("head -c 1000000 /dev/zero") as process:
            await process.stdout.read(10)
            await process.wait()
            with pytest.raises(ValueError, match="its result holds it"):
                while await process.stdout.read():
                    pass

    async def test_another_task_that_reads_gets_all_while_this_one_waits(self, box):
        async def read_slowly():
            return [await asyncio.sleep(0.01, piece) async for piece in process]

        async with box.start("head -c 1000000 /dev/zero") as process:
            reading = asyncio.create_task(read_slowly())
            await asyncio.sleep(0)
            result = await process.wait()
            assert (sum(map(len, await reading)), len(result.raw)) == (1_000_000, 1_000_000)

    async def test_what_is_not_read_holds_the_command_up(self, box):
        async with box.start("head -c 1000000 /dev/zero; echo >done; echo; sleep 60") as process:
            await process.stdout.read(1)
            await asyncio.sleep(0.5)
            assert (await box.exec("test -e done")).exit_code == 1
            async for _ in process:
                if (await box.exec("test -e done")).ok:
                    return
        raise AssertionError("it was never done")

    async def test_it_is_all_there_long_after_the_command_ended(self, box):
        async with box.start("head -c 190000 /dev/zero") as process:
            await asyncio.sleep(2)
            assert sum([len(piece) async for piece in process]) == 190_000

    async def test_a_line_without_end_comes_in_pieces(self, box):
        async with box.start("head -c 300000 /dev/zero; echo; echo next") as process:
            lines = []
            while line := await process.stdout.readline():
                lines.append(line)
        assert b"".join(lines) == b"\0" * 300_000 + b"\nnext\n"
        assert max(map(len, lines)) <= 2 * WINDOW and lines[-1] == b"next\n"

    async def test_one_in_the_background_that_holds_it_open_does_not_block(self, box):
        async with box.start("sleep 5432 & echo started") as process:
            assert b"".join([piece async for piece in process]) == b"started\n"
            assert (await process.wait()).exit_code == 0

    async def test_what_it_leaves_in_the_background_lives_on_and_may_print(self, box):
        tick = "i=0; while :; do i=$((i+1)); echo $i; echo $i >next; mv next count; sleep 0.05; done"
        async with box.start(f"echo 0 >count; ({tick}) &") as process:
            await process.wait()
        before = int(await box.read_file("count"))
        for _ in range(100):
            if int(await box.read_file("count")) > before:
                return
            await asyncio.sleep(0.2)
        pytest.fail("it ticks no more")


class TestInput:
    async def test_what_is_written_is_answered_while_it_runs(self, box):
        async with box.start("while read line; do echo got $line; done", stdin=True) as process:
            for word in ("one", "two"):
                await process.write(f"{word}\n".encode())
                assert await process.stdout.readline() == f"got {word}\n".encode()
            await process.close_stdin()
            assert await process.stdout.read() == b""
            assert (await process.wait()).exit_code == 0

    async def test_megabytes_make_the_round_trip(self, box):
        data = random.randbytes(3_000_000)

        async def feed():
            await process.write(data)
            await process.close_stdin()

        async with box.start(["cat"], stdin=True, max_output=5_000_000) as process:
            feeding = asyncio.create_task(feed())
            assert b"".join([piece async for piece in process]) == data
            await feeding
            assert (await process.wait()).raw == data

    async def test_without_one_it_meets_the_end(self, box):
        async with box.start("cat; echo done") as process:
            assert (await process.wait()).output == "done\n"
            with pytest.raises(ValueError, match="stdin=True"):
                await process.write(b"x")

    async def test_it_can_be_opened_by_its_name(self, box):
        async with box.start("cat /dev/stdin", stdin=True) as process:
            await process.write(b"x")
            await process.close_stdin()
            assert (await process.wait()).output == "x"

    async def test_a_command_that_never_reads_holds_the_writer_up_until_it_ends(self, box):
        async with box.start("sleep 1.5", stdin=True) as process:
            began = time.monotonic()
            with pytest.raises(BrokenPipeError):
                await asyncio.wait_for(process.write(b"x" * 10_000_000), 20)
            assert time.monotonic() - began > 1
            with pytest.raises(BrokenPipeError):
                await process.write(b"x")

    async def test_one_that_closes_it_breaks_the_pipe(self, box):
        async with box.start("exec <&-; echo closed; sleep 60", stdin=True) as process:
            await process.stdout.readline()
            with pytest.raises(BrokenPipeError):
                while True:
                    await asyncio.wait_for(process.write(b"x" * 1000), 20)

    async def test_a_writer_that_is_cancelled_leaves_the_sandbox_whole(self, box):
        async with box.start("sleep 60", stdin=True) as process:
            writing = asyncio.create_task(process.write(b"x" * 10_000_000))
            await asyncio.sleep(0.2)
            writing.cancel()
            await asyncio.wait({writing})
            assert (await box.exec("echo fine")).output == "fine\n"


class TestSignals:
    async def test_one_reaches_the_command(self, box):
        async with box.start("trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done") as process:
            await process.stdout.readline()
            await process.send_signal(signal.SIGUSR1)
            await until(process, b"caught\n")
            assert (await process.wait()).exit_code == 3

    async def test_and_what_it_runs_in_its_group(self, box):
        async with box.start("cat; sleep 60", stdin=True) as process:
            await process.write(b"ready\n")  # a shell's child that is no program yet loses its SIGINT
            assert await process.stdout.readline() == b"ready\n"
            await process.send_signal(signal.SIGINT)
            assert (await asyncio.wait_for(process.wait(), 20)).exit_code == 130

    async def test_one_right_after_the_start_ends_it(self, box):
        for _ in range(20):
            async with box.start("sleep 60") as process:
                await process.send_signal(signal.SIGTERM)
                assert (await asyncio.wait_for(process.wait(), 20)).exit_code == 143

    async def test_who_ignores_them_is_killed_with_all_it_started(self, box, nap):
        ignoring = f"trap '' TERM INT HUP; (setsid sleep {nap} &); echo ready; while :; do sleep {nap}; done"
        async with box.start(ignoring) as process:
            await process.stdout.readline()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                await process.send_signal(number)
            await asyncio.sleep(0.2)
            assert process.exit_code is None
            assert await naps_left(box, nap) > 0
            await process.kill()
            assert process.exit_code == 137
        assert await naps_left(box, nap) == 0

    async def test_to_one_that_has_ended_means_nothing(self, box):
        async with box.start("true") as process:
            await process.wait()
            await process.send_signal(signal.SIGTERM)
            await process.kill()
        with pytest.raises(ValueError, match="no signal"):
            await process.send_signal(1000)


class TestEnds:
    async def test_the_end_of_the_block_kills_everything(self, box, nap):
        async with box.start(f"(setsid sleep {nap} >/dev/null 2>&1 &); echo ready; sleep {nap}") as process:
            await process.stdout.readline()
            assert await naps_begun(box, nap) == 2
        assert await naps_left(box, nap) == 0
        assert process.exit_code == 137

    async def test_so_does_a_cancellation(self, box, nap):
        async def use():
            async with box.start(f"echo ready; sleep {nap}") as process:
                await process.stdout.readline()
                begun.set()
                await process.wait()

        begun = asyncio.Event()
        task = asyncio.create_task(use())
        await asyncio.wait_for(begun.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await naps_left(box, nap) == 0

    async def test_a_time_limit_is_a_result_with_what_was_printed(self, box):
        watch = Stopwatch()
        async with box.start("echo begun; sleep 60; echo never", timeout=1) as process:
            assert await process.stdout.readline() == b"begun\n"
            result = await process.wait()
        assert (result.exit_code, result.timed_out, result.output) == (124, True, "begun\n")
        assert result.duration_s >= 1 and watch.seconds < 10

    async def test_a_program_that_cannot_run_is_a_result(self, box):
        async with box.start(["no-such-program"], split=True) as process:
            result = await process.wait()
        assert (result.exit_code, result.stdout) == (127, "")
        assert "no-such-program" in result.stderr
        async with box.start("true", cwd="/no/such/place") as process:
            assert (await process.wait()).exit_code == 126

    async def test_the_environment_and_the_directory_are_as_of_exec(self, box):
        await box.exec("mkdir sub")
        async with box.start("echo $COLOUR $SHAPE; pwd", env={"SHAPE": "round"}, cwd="sub") as process:
            assert (await process.wait()).output == f"green round\n{box.workdir}/sub\n"

    async def test_a_sandbox_that_is_stopped_is_told_to_who_reads_writes_or_waits(self, box):
        async with box.start("sleep 60", stdin=True) as process:
            works = [
                asyncio.create_task(work)
                for work in (process.wait(), process.stdout.read(), process.write(b"x" * 1_000_000))
            ]
            await asyncio.sleep(0.2)
            await box.stop()
            for work in works:
                with pytest.raises((SandboxDied, BrokenPipeError)):
                    await asyncio.wait_for(work, 20)

    async def test_many_run_at_once(self, box):
        async def echo(number):
            async with box.start(["cat"], stdin=True) as process:
                await process.write(f"{number}\n".encode())
                line = await process.stdout.readline()
                await process.close_stdin()
                assert (await process.wait()).ok
                return int(line)

        assert await asyncio.gather(*(echo(number) for number in range(40))) == list(range(40))


class TestTerminals:
    async def test_a_command_has_one_of_the_size_that_was_asked_for(self, box):
        async with box.start("tty -s && stty size; echo $TERM", pty=PtySize(40, 132)) as process:
            assert (await process.wait()).output == "40 132\r\nxterm-256color\r\n"

    async def test_what_is_typed_is_shown_and_read(self, box):
        async with box.start("read line; echo got $line", pty=PtySize()) as process:
            await process.write(b"hello\n")
            assert await until(process, b"got hello\r\n") == b"hello\r\ngot hello\r\n"
            assert (await process.wait()).exit_code == 0

    async def test_ctrl_c_interrupts_and_ctrl_d_ends(self, box):
        async with box.start(["sh", "-c", "trap 'echo caught' INT; cat; echo done"], pty=PtySize()) as process:
            await process.write(b"x\n")
            await until(process, b"x\r\nx\r\n")
            await process.write(b"\x03")
            await until(process, b"done\r\n")
        async with box.start("cat; echo done", pty=PtySize()) as process:
            await process.close_stdin()
            assert "done" in (await process.wait()).output

    async def test_it_is_its_own_and_can_be_opened_by_its_names(self, box):
        async with box.start("echo one >/dev/tty; echo two >$(tty); echo three >/dev/stderr", pty=PtySize()) as process:
            assert (await process.wait()).output == "one\r\ntwo\r\nthree\r\n"

    async def test_a_new_size_is_seen_and_signalled(self, box):
        script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
        async with box.start(script, pty=PtySize()) as process:
            await until(process, b"ready")
            await process.resize(PtySize(50, 100))
            await until(process, b"50 100")

    async def test_its_whole_output_comes_though_it_is_read_late(self, box):
        async with box.start("stty -opost; head -c 60000 /dev/zero | tr '\\0' x; echo end", pty=PtySize()) as process:
            await asyncio.sleep(1)
            seen = b"".join([piece async for piece in process])
        assert seen == b"x" * 60_000 + b"end\n"

    async def test_much_output_comes_whole(self, box):
        async with box.start("stty -opost; head -c 3000000 /dev/zero | tr '\\0' x", pty=PtySize()) as process:
            assert sum([len(piece) async for piece in process]) == 3_000_000

    async def test_a_program_that_sets_it_up_and_sends_garbage_harms_nobody(self, box):
        script = "stty raw -echo; head -c 1000000 /dev/urandom; stty sane; kill -9 $$"
        async with box.start(script, pty=PtySize(1, 1)) as process:
            for size in range(1, 200):
                await process.resize(PtySize(size, 65535))
            assert sum([len(piece) async for piece in process]) == 1_000_000
            assert (await process.wait()).exit_code == 137
        assert (await box.exec("echo fine")).output == "fine\n"

    async def test_what_nobody_reads_from_it_holds_the_typist_up(self, box):
        async with box.start("stty raw -echo; echo ready; sleep 60", pty=PtySize()) as process:
            await until(process, b"ready")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.write(b"x" * 1_000_000), 1)
        assert (await box.exec("echo fine")).output == "fine\n"

    async def test_a_terminal_has_one_stream_and_others_have_no_size(self, box):
        with pytest.raises(ValueError, match="one stream"):
            async with box.start("true", pty=PtySize(), split=True):
                pass
        async with box.start("true") as process:
            with pytest.raises(ValueError, match="pty="):
                await process.resize(PtySize())
        with pytest.raises(ValueError, match="65535"):
            PtySize(0, 80)

    async def test_an_interactive_shell_can_be_driven(self, box):
        async with box.start(["sh", "-i"], pty=PtySize(), env={"PS1": "ready> "}) as process:
            await until(process, b"ready> ")
            await process.write(b"sleep 60\n")
            await asyncio.sleep(0.3)
            await process.write(b"\x03")
            await until(process, b"ready> ")
            await process.write(b"echo $((6 * 7))\n")
            await until(process, b"\r\n42\r\n")
            await process.write(b"exit 5\n")
            assert (await process.wait()).exit_code == 5


class TestHostile:
    async def test_a_flood_of_both_streams_that_is_read_slowly_costs_a_fixed_buffer(self, box):
        flood = "yes out & yes err >&2 & wait"
        async with box.start(flood, split=True, max_output=1000) as process:
            await process.stdout.read(), await process.stderr.read()
            before, began = resident_mb(), time.monotonic()
            while time.monotonic() - began < 1.5:
                assert await process.stdout.readline() and await process.stderr.readline()
                await asyncio.sleep(0.001)
            assert resident_mb() - before < 8

    async def test_a_flood_that_is_waited_for_costs_a_fixed_buffer_and_is_counted(self, box):
        before = resident_mb()
        async with box.start("cat /dev/zero", timeout=1.5) as process:
            await process.stdout.read()
            result = await process.wait()
        assert (result.timed_out, result.truncated) == (True, True)
        assert len(result.raw) < 1_000_100
        assert int(result.raw.partition(b"[... ")[2].split()[0]) > 20_000_000
        assert resident_mb() - before < 8

    async def test_a_hundred_that_nobody_reads_hold_nobody_up(self, kind, box):
        before = resident_mb()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(10 if kind == "local" else 100):  # there each is looked for in /proc
                await stack.enter_async_context(box.start(["yes"]))
            watch = Stopwatch()
            for _ in range(5):
                assert (await box.exec("echo fine", timeout=20)).output == "fine\n"
            assert watch.seconds < 10
            assert resident_mb() - before < 40  # 128 KB each, at both ends of our own pipes

    async def test_one_that_forks_away_and_floods_on_ends_all_the_same(self, box):
        async with box.start("(setsid yes &); echo started") as process:
            watch = Stopwatch()
            async for _ in process:
                pass
            assert (await process.wait()).exit_code == 0
            assert watch.seconds < 10

    async def test_a_command_that_stops_itself_is_killed_with_its_block(self, box):
        async with box.start("echo ready; kill -STOP 0; echo never", pty=PtySize()) as process:
            await until(process, b"ready")
        assert process.exit_code == 137

    async def test_what_stands_in_the_place_of_terminals_holds_nobody_up(self, kind, backend_beside, spec):
        if kind == "local":
            pytest.skip("they are this machine's")
        async with backend_beside.open(spec) as box:  # others would find it without terminals
            for place in ("mkfifo /dev/ptmx", "ln -s /dev/zero /dev/ptmx", "ln -s /dev/tty /dev/ptmx", "true"):
                assert (await box.exec(f"rm -f /dev/ptmx; {place}")).ok
                async with box.start("echo ran", pty=PtySize()) as process:
                    result = await asyncio.wait_for(process.wait(), 10)
                assert result.exit_code == 126 and "cannot start a process: No such" in result.output, place
            assert (await box.exec("echo fine")).output == "fine\n"

    async def test_one_that_fills_its_own_input_holds_up_its_writer_alone(self, box):
        async with box.start("exec 3>/dev/stdin; echo ready; cat /dev/zero >&3", stdin=True) as process:
            await process.stdout.readline()
            await asyncio.sleep(0.3)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.write(b"x" * 1_000_000), 1)
            assert (await box.exec("echo fine")).output == "fine\n"

    async def test_with_a_reset_it_is_gone(self, backend_beside, spec):
        async with backend_beside.open(spec) as box, box.start("echo ready; sleep 60", stdin=True) as process:
            await process.stdout.readline()
            await box.reset()
            try:
                result = await asyncio.wait_for(process.wait(), 20)
            except SandboxDied:
                pass
            else:
                assert result.exit_code == 137  # it was killed
            assert (await box.exec("echo fine")).output == "fine\n"
