"""What every backend must do; runs on the local one and on Docker."""

import asyncio
import contextlib
import random
import time
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio
from memory import resident_mb
from naps import count_of
from small_archives import archive, content, members
from stopwatch import Stopwatch
from waiting import until

from sandboxes.base import (
    Backend,
    ExecResult,
    NotSupported,
    Sandbox,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def box(kept_box):
    return kept_box


@pytest.fixture
def backend(backend_beside):
    return backend_beside


DAEMON = "(setsid sh -c 'setsid sleep NAP & sleep NAP' >/dev/null 2>&1 </dev/null &);"


class Naps:
    """Sleeps of a length that no one else sleeps, so that they can be counted."""

    def __init__(self, box: Sandbox, seconds: int) -> None:
        self.box = box
        self.seconds = str(seconds)

    def __call__(self, script: str) -> str:
        return script.replace("NAP", self.seconds)

    async def left(self) -> int:
        return int((await self.box.exec(count_of(self.seconds))).output)

    async def begin(self, during: asyncio.Task[ExecResult]) -> bool:
        """Wait until there are some, while something goes on. Tells whether there were."""
        while not during.done():
            if await self.left():
                return True
            await asyncio.sleep(0.1)
        return False


@pytest.fixture
def naps(box) -> Naps:
    return Naps(box, random.randint(10**7, 10**8))


@pytest.mark.any_starter
class TestCommands:
    async def test_both_protocols_are_met(self, backend, box):
        assert isinstance(box, Sandbox)
        assert isinstance(backend, Backend)

    async def test_a_string_runs_in_a_shell(self, box):
        result = await box.exec("echo one && echo two | tr a-z A-Z")
        assert (result.exit_code, result.output) == (0, "one\nTWO\n")
        assert result.ok and not result.timed_out and not result.truncated

    async def test_a_sequence_runs_without_a_shell(self, box):
        assert (await box.exec(["echo", "$HOME;", "a  b", ""])).output == "$HOME; a  b \n"

    @pytest.mark.parametrize("code", [1, 2, 77, 255])
    async def test_the_exit_code_comes_back(self, box, code):
        assert (await box.exec(f"exit {code}")).exit_code == code

    @pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("KILL", 137), ("SEGV", 139)])
    async def test_death_by_signal_reads_as_in_a_shell(self, box, signal, code):
        assert (await box.exec(f"kill -{signal} $$")).exit_code == code

    async def test_this_machines_name_is_found(self, box):
        assert (await box.exec("getent hosts localhost")).ok

    async def test_an_unknown_program_is_a_result(self, box):
        result = await box.exec(["no-such-program"])
        assert result.exit_code == 127
        assert "no-such-program" in result.output

    async def test_a_program_that_is_not_executable_is_a_result(self, box):
        await box.write_file("plain", b"text")
        assert (await box.exec(["./plain"])).exit_code == 126

    async def test_an_unknown_directory_is_a_result(self, box):
        result = await box.exec("true", cwd="/no/such/place")
        assert result.exit_code == 126
        assert "/no/such/place" in result.output

    async def test_an_empty_command_is_the_callers_mistake(self, box):
        with pytest.raises(ValueError, match="empty"):
            await box.exec([])

    async def test_stdout_and_stderr_keep_their_order(self, box):
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
        expected = "".join(f"out {i}\nerr {i}\n" for i in range(1, 10))
        assert (await box.exec(script)).output == expected

    async def test_commands_start_in_the_workdir(self, box):
        assert (await box.exec("pwd")).output == box.workdir + "\n"

    async def test_cwd_is_relative_to_the_workdir_or_absolute(self, box):
        await box.exec("mkdir -p sub/deep")
        assert (await box.exec("pwd", cwd="sub/deep")).output == f"{box.workdir}/sub/deep\n"
        assert (await box.exec("pwd", cwd=f"{box.workdir}/sub")).output == f"{box.workdir}/sub\n"

    async def test_the_environment_is_the_specs_with_the_commands_on_top(self, box):
        show = "echo $COLOUR $SHAPE"
        assert (await box.exec(show)).output == "green\n"
        assert (await box.exec(show, env={"COLOUR": "red", "SHAPE": "a b = c"})).output == "red a b = c\n"
        assert (await box.exec(show)).output == "green\n"

    async def test_there_is_a_home_and_a_path(self, box):
        assert (await box.exec('cd "$HOME" && command -v ls')).ok

    async def test_stdin_reaches_the_command(self, box):
        data = bytes(range(256)) * 5000
        result = await box.exec("cat", stdin=data, max_output=2_000_000)
        assert result.raw == data

    async def test_unread_stdin_does_not_block(self, box):
        assert (await box.exec("true", stdin=b"x" * 3_000_000, timeout=10)).exit_code == 0

    async def test_reading_stdin_when_none_is_given_meets_the_end(self, box):
        result = await box.exec("read line; echo status $?; cat; echo done", timeout=10)
        assert result.output == "status 1\ndone\n"

    @pytest.mark.parametrize(
        "command",
        ["exit", "exit 3", "exec true", "set -e; false", "echo 'unbalanced", 'echo "$(', "exec >&- 2>&-", "kill -9 0"],
    )
    async def test_what_breaks_a_shell_leaves_the_sandbox_whole(self, box, command):
        assert not (await box.exec(command, timeout=10)).timed_out
        assert (await box.exec("echo fine")).output == "fine\n"

    async def test_commands_do_not_share_a_shell(self, box):
        await box.exec("cd /; export LEAK=1")
        assert (await box.exec("echo $LEAK; pwd")).output == f"\n{box.workdir}\n"

    async def test_durations_are_measured(self, box):
        began = time.monotonic()
        duration = (await box.exec("sleep 0.2")).duration_s
        assert 0.2 <= duration <= time.monotonic() - began

    async def test_many_commands_run_at_once(self, box):
        watch = Stopwatch()
        results = await asyncio.gather(*(box.exec(f"sleep 0.5; echo {i}") for i in range(40)))
        assert [r.output for r in results] == [f"{i}\n" for i in range(40)]
        assert watch.seconds < 15  # one after the other they would take 20; gVisor starts them slowly

    async def test_a_quick_command_does_not_wait_for_a_slow_one(self, box):
        slow = asyncio.create_task(box.exec("sleep 3"))
        await asyncio.sleep(0.05)
        watch = Stopwatch()
        await box.exec("true")
        assert watch.seconds < 2
        assert not slow.done()
        assert (await slow).ok


@pytest.mark.any_starter
class TestOutput:
    async def test_bytes_that_are_not_utf8_are_kept(self, box):
        result = await box.exec("printf '\\377\\000\\200ok'")
        assert result.raw == b"\xff\0\x80ok"
        assert result.output == "\ufffd\0\ufffdok"

    async def test_what_fits_comes_back_whole(self, box):
        result = await box.exec("head -c 1000 /dev/zero", max_output=1000)
        assert (result.raw, result.truncated) == (b"\0" * 1000, False)

    async def test_the_middle_of_a_long_output_is_dropped_and_counted(self, box):
        result = await box.exec("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", max_output=1000)
        whole = "".join(f"line {i}\n" for i in range(2000))
        assert result.truncated
        marker = f"\n[... {len(whole) - 1000} bytes dropped ...]\n"
        assert result.output == whole[:500] + marker + whole[-500:]

    async def test_one_byte_too_many_is_dropped(self, box):
        result = await box.exec("printf 0123456789a", max_output=10)
        assert result.raw == b"01234\n[... 1 bytes dropped ...]\n6789a"

    async def test_no_output_at_all_can_be_asked_for(self, box):
        result = await box.exec("printf abc", max_output=0)
        assert result.raw == b"\n[... 3 bytes dropped ...]\n"

    async def test_a_flood_costs_a_fixed_buffer(self, box):
        result = await box.exec("yes | head -c 50000000", max_output=10_000, timeout=60)
        assert (result.exit_code, result.truncated) == (0, True)
        assert len(result.raw) < 10_100
        assert b"[... 49990000 bytes dropped ...]" in result.raw

    async def test_an_endless_flood_is_stopped_by_its_time_limit(self, box):
        watch = Stopwatch()
        result = await box.exec("yes", timeout=0.5, max_output=1000)
        assert (result.exit_code, result.timed_out, result.truncated) == (124, True, True)
        assert watch.seconds < 10

    @pytest.mark.parametrize("shell", ["fresh", "session"])
    async def test_ten_gigabytes_cost_us_a_fixed_buffer_and_end_with_the_time_limit(self, box, shell):
        runner = box.exec if shell == "fresh" else (await box.session()).run
        await runner("head -c 3000000 /dev/zero", max_output=1_000_000)  # buffers are there before it begins
        before, highest = resident_mb(), 0.0
        watch = Stopwatch()
        flood = asyncio.create_task(runner("cat /dev/zero", timeout=1.5, max_output=1_000_000))
        while not flood.done():
            highest = max(highest, resident_mb())
            await asyncio.sleep(0.01)
        result = await flood
        assert (result.timed_out, result.truncated) == (True, True)
        assert len(result.raw) < 1_000_100 and watch.seconds < 10
        dropped = int(result.raw.partition(b"[... ")[2].split()[0])
        assert dropped > 10_000_000  # it did print more than we may take, also on a busy machine
        assert highest - before < 8

    async def test_a_megabyte_comes_back(self, box):
        result = await box.exec("head -c 1000000 /dev/zero | tr '\\0' x")
        assert result.raw == b"x" * 1_000_000


@pytest.mark.any_starter
class TestStreamsApart:
    async def test_each_has_its_own_and_both_are_together(self, box):
        result = await box.exec("echo out; echo err >&2; echo more", split=True)
        assert (result.stdout, result.stderr) == ("out\nmore\n", "err\n")
        assert sorted(result.output.split()) == ["err", "more", "out"]
        assert not result.truncated

    async def test_both_together_are_in_the_order_in_which_they_came(self, box):
        result = await box.exec("echo 1 >&2; sleep 0.3; echo 2; sleep 0.3; echo 3 >&2", split=True)
        assert result.output == "1\n2\n3\n"

    async def test_a_result_without_them_says_how_to_get_them(self, box):
        result = await box.exec("echo out")
        for read in (lambda: result.stdout, lambda: result.stderr):
            with pytest.raises(ValueError, match="split=True"):
                read()

    async def test_each_can_be_opened_by_its_name(self, box):
        result = await box.exec("echo out >/dev/stdout; echo err >/dev/stderr", split=True)
        assert (result.stdout, result.stderr) == ("out\n", "err\n")

    async def test_a_flood_of_both_costs_a_fixed_buffer_each(self, box):
        flood = "(yes out | head -c 20000000) & yes err | head -c 10000000 >&2; wait"
        result = await box.exec(flood, split=True, max_output=1000)
        assert (result.exit_code, result.truncated) == (0, True)
        for text, size in ((result.output, 30_000_000), (result.stdout, 20_000_000), (result.stderr, 10_000_000)):
            assert f"[... {size - 1000} bytes dropped ...]" in text and len(text) < 1100
        assert set(result.stdout.split("\n[...")[0].split()) <= {"out", "ou", "o"}
        assert set(result.stderr.split("\n[...")[0].split()) <= {"err", "er", "e"}

    async def test_what_fits_comes_back_whole(self, box):
        result = await box.exec("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2", split=True)
        assert (len(result.raw), len(result.stdout), len(result.stderr)) == (500_000, 300_000, 200_000)

    async def test_a_time_limit_returns_what_each_had(self, box):
        result = await box.exec("echo out; echo err >&2; sleep 60", split=True, timeout=1)
        assert (result.timed_out, result.stdout, result.stderr) == (True, "out\n", "err\n")

    @pytest.mark.parametrize("command", ["exec >&-; sleep 0.2; echo err >&2", "exec 2>&-; sleep 0.2; echo out"])
    async def test_one_that_is_closed_ends_nothing(self, box, command):
        result = await box.exec(command, split=True)
        assert result.exit_code == 0
        assert result.stdout + result.stderr in ("err\n", "out\n")

    async def test_a_process_in_the_background_that_holds_one_does_not_block(self, box):
        result = await box.exec("(sleep 5432 >/dev/null) & echo out", split=True, timeout=20)
        assert (result.stdout, result.timed_out) == ("out\n", False)

    async def test_what_keeps_a_command_from_running_is_said_on_stderr(self, box):
        result = await box.exec(["no-such-program"], split=True)
        assert (result.exit_code, result.stdout) == (127, "")
        assert "no-such-program" in result.stderr


@pytest.mark.any_starter
class TestTimeLimits:
    async def test_a_timeout_is_a_result_with_what_was_printed(self, box):
        watch = Stopwatch()
        result = await box.exec("echo begun; sleep 60; echo never", timeout=1)
        assert (result.exit_code, result.timed_out, result.output) == (124, True, "begun\n")
        assert result.duration_s >= 1 and watch.seconds < 10

    @pytest.mark.parametrize(
        "escape",
        [
            "sleep NAP &",
            "nohup sleep NAP >/dev/null 2>&1 &",
            DAEMON,
            "trap '' TERM HUP INT; sleep NAP;",
            "sh -c 'trap \"\" TERM; while :; do sleep NAP; done' &",
        ],
    )
    async def test_a_timeout_kills_daemons_too(self, box, naps, escape):
        for seconds in (1, 5, 60):  # on a busy machine they need more than the first to begin
            running = asyncio.create_task(box.exec(naps(f"{escape} sleep 600"), timeout=seconds))
            begun = await naps.begin(running)
            assert (await running).timed_out
            assert await naps.left() == 0
            if begun:
                return
        pytest.fail("they did not begin")

    async def test_a_timeout_kills_what_forks_again_and_again(self, kind, box, naps):
        script = "while :; do (sleep NAP &) ; (sh -c 'sleep NAP & sleep NAP' &); sleep 0.01; done"
        try:
            assert (await box.exec(naps(script), timeout=0.5)).timed_out
        except SandboxEnded:
            assert kind == "runsc", "gVisor ends where it gets no more threads"
            return
        assert await naps.left() == 0

    async def test_other_commands_survive_a_timeout(self, box):
        other = asyncio.create_task(box.exec("sleep 1; echo survived"))
        assert (await box.exec("sleep 60", timeout=0.2)).timed_out
        assert (await other).output == "survived\n"

    async def test_a_cancelled_command_is_killed(self, box, naps):
        task = asyncio.create_task(box.exec(naps(f"{DAEMON} sleep 60")))

        async def both():
            return await naps.left() == 2

        await until(both)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await naps.left() == 0

    async def test_the_next_command_works_after_a_cancellation(self, box):
        for delay in (0, 0.001, 0.01):
            task = asyncio.create_task(box.exec("cat; sleep 60", stdin=b"x" * 100_000))
            await asyncio.sleep(delay)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (await box.exec("echo fine")).output == "fine\n"


@pytest.mark.any_starter
class TestBackgroundProcesses:
    async def test_one_that_holds_the_output_open_does_not_block(self, box):
        watch = Stopwatch()
        result = await box.exec("sleep 5432 & echo started", timeout=20)
        assert (result.output, result.timed_out) == ("started\n", False)
        assert watch.seconds < 5

    async def test_one_that_keeps_printing_does_not_block(self, box):
        watch = Stopwatch()
        result = await box.exec("(while :; do echo tick; sleep 0.02; done) & echo started", timeout=20)
        assert not result.timed_out
        assert result.output.startswith(("started", "tick"))
        assert watch.seconds < 5

    async def test_it_lives_on_and_may_print(self, box):
        count = "i=0; while :; do i=$((i+1)); echo $i; echo $i >next; mv next count; sleep 0.05; done"
        server = f"echo 0 >count; ({count}) &"
        await box.exec(server)
        before = int(await box.read_file("count"))

        async def counts():
            return int(await box.read_file("count")) > before

        await until(counts)

    async def test_the_output_before_the_end_is_not_lost(self, box):
        result = await box.exec("sleep 5432 & head -c 300000 /dev/zero")
        assert len(result.raw) == 300_000


class TestFiles:
    async def test_bytes_make_the_round_trip(self, box):
        data = bytes(range(256)) * 4000
        await box.write_file("blob", data)
        assert await box.read_file("blob") == data

    async def test_an_empty_file_makes_the_round_trip(self, box):
        await box.write_file("empty", b"")
        assert await box.read_file("empty") == b""

    async def test_names_may_hold_anything(self, box):
        name = 'o\'dd "näme"\n$(x) -rf'
        await box.write_file(name, b"1")
        assert await box.read_file(name) == b"1"
        assert (await box.exec(["cat", name])).raw == b"1"

    async def test_writing_replaces_and_sets_the_mode(self, box):
        await box.write_file("run", b"a much longer text")
        await box.write_file("run", b"#!/bin/sh\necho ran\n", mode=0o755)
        assert (await box.exec(["./run"])).output == "ran\n"

    async def test_parents_are_made(self, box):
        await box.write_file("a/b/c.txt", b"deep")
        assert (await box.exec("cat a/b/c.txt")).output == "deep"

    async def test_a_link_is_written_through(self, box):
        await box.exec("echo old >target; ln -s target link")
        await box.write_file("link", b"new")
        assert (await box.exec("cat target; readlink link")).output == "newtarget\n"

    async def test_absolute_paths_work(self, box):
        path = f"{box.workdir}/absolute"
        await box.write_file(path, b"1")
        assert await box.read_file(path) == b"1"
        assert await box.read_file("/app/absolute") == b"1"

    async def test_a_missing_file_raises(self, box):
        with pytest.raises(FileNotFoundError):
            await box.read_file("nothing")

    async def test_a_directory_is_no_file(self, box):
        await box.exec("mkdir d")
        with pytest.raises(IsADirectoryError):
            await box.read_file("d")
        with pytest.raises(IsADirectoryError):
            await box.write_file("d", b"")

    async def test_a_file_is_no_directory(self, box):
        await box.write_file("f", b"")
        with pytest.raises(NotADirectoryError):
            await box.read_file("f/g")
        with pytest.raises(OSError, match="f"):
            await box.write_file("f/g", b"")

    async def test_a_pipe_is_refused_and_does_not_block(self, box):
        await box.exec("mkfifo pipe")
        for attempt in (box.read_file("pipe"), box.write_file("pipe", b"")):
            with pytest.raises(OSError, match="pipe"):
                await asyncio.wait_for(attempt, 5)

    async def test_a_file_that_is_too_large_raises(self, box):
        await box.exec("head -c 1001 /dev/zero >large")
        with pytest.raises(ValueError, match="1000 bytes"):
            await box.read_file("large", max_bytes=1000)
        assert len(await box.read_file("large", max_bytes=1001)) == 1001

    async def test_an_endless_file_raises(self, box):
        with pytest.raises((ValueError, OSError)):
            await asyncio.wait_for(box.read_file("/dev/zero", max_bytes=1000), 5)


class TestLinksInCircles:
    """None of these may hang, follow the circle for long, or end with anything but an OSError."""

    @pytest_asyncio.fixture(loop_scope="session")
    async def circle(self, box):
        await box.exec("ln -s loop loop; ln -s b a; ln -s a b; mkdir d; ln -s ../d d/up")
        return box

    @pytest.mark.parametrize("path", ["loop", "loop/x", "a", "b/x/y"])
    async def test_files_cannot_be_read_or_written_through_them(self, circle, path):
        for attempt in (circle.read_file(path), circle.write_file(path, b"1")):
            with pytest.raises(OSError, match=path[0]):
                await asyncio.wait_for(attempt, 10)

    @pytest.mark.parametrize("path", ["loop", "a", "a/x", "loop/x/y"])
    async def test_trees_cannot_be_uploaded_through_them(self, circle, path):
        with pytest.raises(OSError, match=path[0]):
            await asyncio.wait_for(circle.upload(archive({"x": b"1"}), path), 10)

    @pytest.mark.parametrize("path", ["a/x", "loop/x/y"])
    async def test_trees_cannot_be_downloaded_through_them(self, circle, path):
        with pytest.raises(OSError, match=path[0]):
            await asyncio.wait_for(circle.download(path), 10)

    async def test_a_tree_that_holds_them_comes_back_with_them(self, circle):
        links = {name: m.linkname for name, m in members(await circle.download(".")).items() if m.issym()}
        assert links == {"loop": "loop", "a": "b", "b": "a", "d/up": "../d"}

    async def test_the_sandbox_is_whole_after(self, circle):
        with contextlib.suppress(OSError):
            await circle.read_file("loop")
        assert (await circle.exec("cat loop || echo fine")).output.endswith("fine\n")


class Noting:
    """A reader of trees that notes names and contents."""

    def __init__(self):
        self.found = {}

    def add(self, member, content):
        self.found[member.name] = content and content.read()


class Weary:
    def add(self, member, content):
        raise ValueError("enough")


class TestTrees:
    async def test_an_uploaded_tree_is_there(self, box):
        tree = archive({"src/a.py": b"a", "b": b"b"}, links={"src/link": "../b"}, mode=0o755)
        await box.upload(tree, "new/place")
        seen = await box.exec("cat src/a.py src/link; readlink src/link; test -x b && echo x", cwd="new/place")
        assert seen.output == "ab../b\nx\n"

    async def test_a_tree_of_megabytes_is_uploaded(self, box):
        data = random.randbytes(5_000_000)
        await box.upload(archive({"big": data}), "t")
        assert await box.read_file("t/big") == data

    async def test_an_upload_adds_to_what_is_there(self, box):
        await box.exec("mkdir -m 700 t; echo old >t/old; echo old >t/both")
        await box.upload(archive({"new": b"new", "both": b"new"}), "t")
        seen = await box.exec("cat t/old t/new t/both; find . -name t -perm 700")
        assert seen.output == "old\nnewnew./t\n"

    async def test_a_downloaded_tree_has_names_relative_to_its_path(self, box):
        await box.exec("mkdir -p t/sub/empty; printf 1 >t/one; printf 2 >t/sub/two; chmod 750 t/sub/two")
        data = await box.download("t")
        assert sorted(members(data)) == ["one", "sub", "sub/empty", "sub/two"]
        assert content(data, "sub/two") == b"2"
        assert members(data)["sub/two"].mode & 0o777 == 0o750

    async def test_links_come_back_unfollowed(self, box):
        await box.exec(
            "mkdir t; printf 1 >t/one; ln -s /etc/passwd t/out; ln -s one t/in; ln -s . t/loop; ln t/one t/hard"
        )
        data = await box.download("t")
        links = {name: m.linkname for name, m in members(data).items() if m.issym()}
        assert links == {"out": "/etc/passwd", "in": "one", "loop": "."}
        assert {content(data, "one"), content(data, "hard")} == {b"1"}

    async def test_one_file_comes_back_under_its_name(self, box):
        await box.write_file("t/one", b"1")
        assert content(await box.download("t/one"), "one") == b"1"

    async def test_the_workdir_itself_can_be_downloaded(self, box):
        await box.write_file("one", b"1")
        assert list(members(await box.download("."))) == ["one"]
        assert list(members(await box.download(box.workdir + "/"))) == ["one"]

    async def test_long_names_make_the_round_trip(self, box):
        name = "/".join(["n" * 90] * 4)
        await box.upload(archive({name: b"1"}), "t")
        assert content(await box.download("t"), name) == b"1"

    async def test_a_missing_tree_raises(self, box):
        with pytest.raises(FileNotFoundError):
            await box.download("nothing")

    async def test_a_tree_that_is_too_large_raises(self, box):
        await box.exec("mkdir t; head -c 3000000 /dev/zero >t/large")
        with pytest.raises(ValueError, match="2000000 bytes"):
            await box.download("t", max_bytes=2_000_000)
        assert (await box.exec("echo fine")).ok

    async def test_a_tree_is_read_member_by_member_without_what_is_skipped(self, box):
        await box.exec(
            "mkdir -p t/.git/objects t/sub/.git; printf 1 >t/one; printf 2 >t/.git/two; printf 3 >t/sub/.git/x"
        )
        reader = await box.read_tree("t", Noting, skip=[".git"])
        assert reader.found == {"one": b"1", "sub": None}

    async def test_a_reader_ends_the_reading_by_an_error(self, box):
        await box.exec("mkdir t; printf 1 >t/one; printf 2 >t/two")
        with pytest.raises(ValueError, match="enough"):
            await box.read_tree("t", Weary)
        with pytest.raises(FileNotFoundError):
            await box.read_tree("nothing", Noting)
        assert (await box.read_tree("t", Noting)).found == {"one": b"1", "two": b"2"}

    async def test_files_can_be_downloaded_after_stop(self, box):
        await box.write_file("t/one", b"1")
        await box.stop()
        assert content(await box.download("t"), "one") == b"1"


class Named(asyncio.Protocol):
    """A door that says its name, and hands back what it is sent."""

    def __init__(self, name: bytes) -> None:
        self.name = name

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.name + b"\n")

    def data_received(self, data):
        self.transport.write(data)


ASK = """
import socket, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port)), 20) as s:
    s.sendall(b"hello")
    s.shutdown(socket.SHUT_WR)
    while data := s.recv(100):
        sys.stdout.buffer.write(data)
"""


class TestDoors:
    async def test_each_leads_to_who_serves_it_for_this_sandbox(self, backend, spec):
        async with contextlib.AsyncExitStack() as stack:
            boxes = []
            for name in (b"first", b"second"):
                doors = {"a": partial(Named, name + b" a"), "b": partial(Named, name + b" b")}
                boxes.append(await stack.enter_async_context(backend.open(replace(spec, doors=doors))))
            for name, box in zip(("first", "second"), boxes, strict=True):
                for door in ("a", "b"):
                    heard = await box.exec(["python3", "-c", ASK, box.door(door)])
                    assert heard.output == f"{name} {door}\nhello", box

    async def test_a_name_without_a_door_is_a_key_error(self, box):
        with pytest.raises(KeyError):
            box.door("none")


class TestEnds:
    async def test_stop_kills_everything_and_later_commands_raise(self, box):
        running = asyncio.create_task(box.exec("sleep 60"))
        await asyncio.sleep(0.2)
        await box.stop()
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await box.exec("true")

    async def test_stop_twice_is_stop(self, box):
        await box.stop()
        await box.stop()

    async def test_eight_open_at_once_and_are_apart(self, backend, spec):
        async with contextlib.AsyncExitStack() as stack:
            boxes = await asyncio.gather(*(stack.enter_async_context(backend.open(spec)) for _ in range(8)))
            names = [str(number).encode() for number in range(8)]
            await asyncio.gather(*(box.write_file("me", name) for box, name in zip(boxes, names, strict=True)))
            assert [await box.read_file("me") for box in boxes] == names

    async def test_another_user_is_refused_where_it_cannot_be(self, kind, box):
        try:
            ran = await box.exec("id -un", user="nobody")
        except NotSupported:
            assert kind not in ("docker", "crun", "runsc")
            return
        assert kind != "local"
        assert ran.output == "nobody\n"

    async def test_a_verifier_gets_no_sandbox_that_is_not_isolated(self, kind, backend, spec):
        if kind == "local":
            with pytest.raises(NotSupported, match="not isolated"):
                async with backend.open(replace(spec, switch_users=True)):
                    pass

    async def test_a_backend_that_was_not_entered_says_so(self, kind, make_backend, spec):
        with pytest.raises(SandboxError, match="enter the backend"):
            async with (await make_backend(kind)).open(spec):
                pass

    async def test_a_sandbox_is_gone_after_its_block(self, backend, spec):
        async with backend.open(spec) as box:
            assert isinstance(await box.exec("sleep 5432 &"), ExecResult)
        with pytest.raises((SandboxError, FileNotFoundError)):
            await box.download(".")

    async def test_an_exception_passes_through(self, backend, spec: SandboxSpec):
        with pytest.raises(ZeroDivisionError):
            async with backend.open(spec):
                raise ZeroDivisionError
