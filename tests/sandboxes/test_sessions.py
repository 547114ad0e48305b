"""A session keeps its shell's state, whatever a command does to the shell. Runs on both backends."""

import asyncio
import contextlib

import pytest
import pytest_asyncio
from naps import count_of
from stopwatch import Stopwatch

from sandboxes.base import SandboxDied, Session

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.any_starter]


@pytest.fixture
def box(kept_box):
    return kept_box


@pytest_asyncio.fixture(loop_scope="session")
async def shell(box):
    return await box.session(cwd="/app", env={"SHAPE": "round"})


async def output_of(shell: Session, command: str, timeout: float = 20) -> str:
    return (await shell.run(command, timeout=timeout)).output


async def mark(shell: Session) -> None:
    assert await output_of(shell, "mkdir -p kept; cd kept; export MARK=here; plain=5; f() { echo in f; }") == ""


async def assert_marked(shell: Session) -> None:
    # Other shells can't say what functions they have, so another one can't take them over.
    f = "case ${BASH_VERSION-} in (?*) f;; (*) echo in f;; esac"
    assert await output_of(shell, f'echo "${{PWD##*/}} $MARK $plain"; {f}') == "kept here 5\nin f\n"


class TestState:
    async def test_the_protocol_is_met(self, shell):
        assert isinstance(shell, Session)

    async def test_directory_variables_functions_and_umask_last(self, shell):
        await mark(shell)
        await output_of(shell, "umask 027")
        await assert_marked(shell)
        assert await output_of(shell, "umask") == "0027\n"

    async def test_it_starts_where_and_with_what_was_asked_for(self, box, shell):
        assert await output_of(shell, "pwd; echo $COLOUR $SHAPE") == f"{box.workdir}\ngreen round\n"

    async def test_the_last_exit_code_can_be_asked_for(self, shell):
        assert (await shell.run("false")).exit_code == 1
        assert await output_of(shell, "echo $?") == "1\n"

    async def test_background_jobs_can_be_waited_for(self, shell):
        await output_of(shell, "(sleep 0.3; exit 7) & job=$!")
        result = await shell.run("wait $job")
        assert (result.exit_code, result.shell_ended) == (7, False)

    async def test_two_sessions_are_apart(self, box, shell):
        other = await box.session()
        await output_of(shell, "export MARK=mine")
        assert await output_of(other, "echo [$MARK]") == "[]\n"

    async def test_commands_given_at_once_run_in_turn(self, shell):
        await output_of(shell, "n=0")
        await asyncio.gather(*(shell.run("n=$((n + 1))") for _ in range(20)))
        assert await output_of(shell, "echo $n") == "20\n"

    async def test_fresh_commands_run_beside_it(self, box, shell):
        slow = asyncio.create_task(shell.run("sleep 1; echo slow"))
        assert (await box.exec("echo quick")).output == "quick\n"
        assert (await slow).output == "slow\n"

    async def test_nothing_of_ours_is_open_in_its_commands(self, shell):
        assert await output_of(shell, "sh -c 'cd /proc/$$/fd; echo *'") == "0 1 2 3\n"  # 3 is the folder

    async def test_streams_keep_their_order(self, shell):
        assert await output_of(shell, "echo a; echo b >&2; echo c") == "a\nb\nc\n"

    async def test_or_they_are_apart(self, shell):
        result = await shell.run("echo a; echo b >&2; echo c; (echo d >&2); false", split=True)
        assert (result.stdout, result.stderr, result.exit_code) == ("a\nc\n", "b\nd\n", 1)
        assert sorted(result.output.split()) == ["a", "b", "c", "d"]
        assert await output_of(shell, "echo a; echo b >&2; echo c") == "a\nb\nc\n"
        assert (await shell.run("echo x", split=True)).stderr == ""
        with pytest.raises(ValueError, match="one stream"):
            _ = (await shell.run("echo x")).stdout

    async def test_each_is_bounded_by_itself(self, shell):
        result = await shell.run("head -c 5000 /dev/zero; echo short >&2", split=True, max_output=100)
        assert result.truncated and b"[... 4900 bytes dropped ...]" in result.raw_stdout
        assert result.stderr == "short\n"

    async def test_they_are_apart_where_the_shell_ends_and_after(self, shell):
        await mark(shell)
        for end, code in (("exit 3", 3), ("exec sh -c 'echo by; echo bye >&2'", 0), ("kill -9 $$", 137)):
            result = await shell.run(f"echo out; echo err >&2; {end}", split=True)
            assert (result.shell_ended, result.exit_code) == (True, code)
            assert result.stdout.startswith("out\n") and result.stderr.startswith("err\n"), end
            assert ("bye\n" in result.stderr, "by\n" in result.stdout) == ((True, True) if not code else (False, False))
        result = await shell.run("echo out; echo err >&2; sleep 60", split=True, timeout=0.5)
        assert (result.timed_out, result.stdout, result.stderr) == (True, "out\n", "err\n")
        result = await shell.run("trap 'echo bye >&2' EXIT; echo hello", split=True)
        assert (result.stdout, result.stderr) == ("hello\n", "bye\n")
        await assert_marked(shell)

    async def test_what_is_said_of_a_missing_directory_is_no_output_of_the_command(self, shell):
        await output_of(shell, "mkdir gone; cd gone; rmdir ../gone")
        result = await shell.run("echo here", split=True)
        assert result.stdout == "here\n" and "gone is gone; now in" in result.stderr

    async def test_a_long_command_is_taken_whole(self, shell):
        text = "".join(f"echo line {i}\n" for i in range(20_000))
        assert await output_of(shell, text) == "".join(f"line {i}\n" for i in range(20_000))

    async def test_output_is_bounded(self, shell):
        result = await shell.run("yes | head -c 3000000", max_output=1000)
        assert result.truncated and len(result.raw) < 1100
        assert b"[... 2999000 bytes dropped ...]" in result.raw

    async def test_binary_output_is_kept(self, shell):
        assert (await shell.run("printf '\\377\\000\\200ok'")).raw == b"\xff\0\x80ok"


GO_ON = {
    "unbalanced quote": "echo 'unbalanced",
    "unfinished command": "if true; then",
    "closed streams": "exec >&- 2>&-",
    "redirected streams": "exec >log 2>&1; echo hidden",
    "reading stdin": "read line; cat",
    "functions with our names": "read() { :; }; echo() { :; }; cd() { :; }; printf() { :; }; unset -f echo cd printf",
    "other field separators": "IFS=/e",
    "no PATH": "unset PATH",
    "a trap": "trap 'echo bye' EXIT",
    "no globbing": "set -f",
    "no clobbering": "set -C",
    "tracing": "set -xv",
    "unset variables": "set -u",
    "a return": "return 3",
    "a background job that holds the output": "sleep 54321 & ",
    "a pager": "PAGER=cat; git log | cat",
    "a deleted state": "rm -rf /dev/shm/.session* 2>/dev/null; true",
}
END = {
    "exit": ("exit 3", 3),
    "exec": ("exec true", 0),
    "exec of nothing": ("exec /no/such", 127),
    "errexit": ("set -e; false; echo unreached", 1),
    "nounset": ("set -u; echo $undefined", None),
    "kill": ("kill -9 $$", 137),
    "kill all": ("kill -9 0", 137),
    "a break out of the loop": ("exit", 0),
}


class TestShellsThatBreak:
    @pytest.mark.parametrize("command", GO_ON.values(), ids=GO_ON)
    async def test_the_shell_goes_on_after(self, shell, command):
        await mark(shell)
        assert not (await shell.run(command, timeout=10)).timed_out
        await assert_marked(shell)

    @pytest.mark.parametrize(("command", "code"), END.values(), ids=END)
    async def test_the_state_from_before_is_there_after(self, shell, command, code):
        if command == END["nounset"][0] and await output_of(shell, "echo ${BASH_VERSION-}") == "\n":
            pytest.skip("this shell goes on")
        await mark(shell)
        result = await shell.run(f"cd /; export MARK=gone; {command}", timeout=10)
        assert result.shell_ended and not result.timed_out
        assert code in (None, result.exit_code)
        await assert_marked(shell)
        await assert_marked(shell)

    async def test_variables_of_any_content_come_back(self, shell):
        await output_of(shell, """A='quote " and '"'"'\nnewline $HOME `date` \\ %s ü'""")
        await shell.run("exit")
        assert await output_of(shell, 'printf "%s" "$A"') == """quote " and '\nnewline $HOME `date` \\ %s ü"""

    async def test_a_state_that_was_not_saved_to_its_end_is_not_taken(self, box, shell):
        await mark(shell)
        await asyncio.sleep(0.1)  # so that the files' times tell them apart
        await output_of(shell, "cd /; MARK=half")
        result = await shell.run(
            'cd "$__dir"; if [ state.0 -nt state.1 ]; then : >state.0; else : >state.1; fi; kill -9 $$'
        )
        assert result.shell_ended
        await assert_marked(shell)

    async def test_a_command_that_is_cancelled_at_once_takes_no_state_with_it(self, shell):
        for number in range(40):
            await output_of(shell, f"NUMBER={number}; eval 'f{number}() {{ :; }}'")
            running = asyncio.create_task(shell.run("sleep 60"))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await output_of(shell, "echo $NUMBER") == f"{number}\n"

    async def test_a_shell_that_dies_between_two_commands_is_replaced(self, box, shell):
        await mark(shell)
        pid = (await output_of(shell, "echo $$")).strip()
        await box.exec(f"kill -9 {pid}")
        await asyncio.sleep(0.1)
        await assert_marked(shell)


class TestWhatOneCommandOnlyLeavesToItself:
    async def test_a_trap_on_exit_runs_at_the_end_of_its_command(self, shell):
        result = await shell.run("trap 'echo bye $?; x=5' EXIT; echo hello; false")
        assert (result.exit_code, result.output, result.shell_ended) == (1, "hello\nbye 1\n", False)
        assert await output_of(shell, "echo next $x") == "next 5\n"

    async def test_it_also_runs_when_its_command_exits(self, shell):
        result = await shell.run("trap 'echo bye' EXIT; exit 7")
        assert (result.exit_code, result.output, result.shell_ended) == (7, "bye\n", True)

    async def test_other_traps_last(self, shell):
        await output_of(shell, """trap 'echo "it'"'"'s a signal"' USR1; trap '' INT; trap 'true' EXIT""")
        assert await output_of(shell, "kill -USR1 $$") == "it's a signal\n"


class TestDirectoriesThatAreGone:
    async def test_the_next_command_is_told_and_starts_where_the_session_did(self, box, shell):
        await output_of(shell, "mkdir gone; cd gone; rmdir ../gone")
        notice = f"[the directory {box.workdir}/gone is gone; now in {box.workdir}]\n"
        assert await output_of(shell, "pwd") == f"{notice}{box.workdir}\n"
        assert await output_of(shell, "pwd") == f"{box.workdir}\n"

    async def test_one_that_went_with_the_shell_is_told_too(self, box, shell):
        await output_of(shell, "mkdir gone; cd gone")
        await shell.run("rmdir ../gone; kill -9 $$")
        result = await shell.run("echo here", split=True)
        assert result.stdout == "here\n" and "gone is gone; now in" in result.stderr

    async def test_a_session_survives_its_first_directory(self, box, shell):
        await output_of(shell, "mkdir sub")
        other = await box.session(cwd="sub")
        await output_of(other, "cd /usr")
        await output_of(shell, "rm -rf sub")
        await other.run("exit 3")
        assert (await output_of(other, "pwd")).endswith("/usr\n")

    async def test_an_assigned_PWD_is_put_right(self, box, shell):
        await output_of(shell, "cd /usr; PWD=/nowhere")
        assert await output_of(shell, "echo $PWD; cd - >/dev/null; pwd") == f"/usr\n{box.workdir}\n"


class TestTimeLimits:
    async def test_what_the_command_started_is_killed_and_the_state_kept(self, box, shell):
        await mark(shell)
        daemon = "(setsid sh -c 'setsid sleep 4321 & sleep 4321' >/dev/null 2>&1 </dev/null &)"
        watch = Stopwatch()
        result = await shell.run(f"cd /; {daemon}; echo begun; sleep 60", timeout=0.5)
        assert (result.exit_code, result.timed_out, result.output) == (124, True, "begun\n")
        assert result.shell_ended and watch.seconds < 10
        left = count_of(4321)
        assert (await box.exec(left)).output == "0\n"
        await assert_marked(shell)

    async def test_a_server_from_an_earlier_command_lives_on(self, shell):
        await output_of(shell, "(while :; do echo tick >>ticks; sleep 0.05; done) & sleep 0.1")
        assert (await shell.run("sleep 60", timeout=0.3)).timed_out
        before = int(await output_of(shell, "wc -l <ticks"))
        for _ in range(20):
            await asyncio.sleep(0.1)
            if int(await output_of(shell, "wc -l <ticks")) > before:
                return
        pytest.fail("it ticks no more")

    async def test_a_cancelled_command_is_killed(self, shell):
        await mark(shell)
        for delay in (0, 0.001, 0.01, 0.2):
            task = asyncio.create_task(shell.run("cd /; sleep 60"))
            await asyncio.sleep(delay)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        watch = Stopwatch()
        await assert_marked(shell)
        assert watch.seconds < 5

    async def test_a_flood_is_stopped(self, shell):
        result = await shell.run("yes", timeout=0.5, max_output=1000)
        assert result.timed_out and result.truncated
        assert await output_of(shell, "echo fine") == "fine\n"


class TestEnds:
    async def test_what_a_job_prints_between_commands_is_nobodys(self, shell):
        await output_of(shell, "(sleep 0.2; echo late) &")
        await asyncio.sleep(0.5)
        assert await output_of(shell, "echo next") == "next\n"

    async def test_closing_kills_what_it_started(self, box, shell):
        await output_of(shell, "sleep 98765 & ")
        await shell.close()
        left = count_of(98765)
        assert (await box.exec(left)).output == "0\n"

    async def test_one_that_was_closed_says_so_and_its_sandbox_goes_on(self, box, shell):
        await output_of(shell, "true")
        await shell.close()
        with pytest.raises(SandboxDied, match="the session was closed"):
            await shell.run("true")
        await shell.close()
        assert (await box.exec("echo here")).output == "here\n"

    async def test_a_stopped_sandbox_ends_it(self, box, shell):
        running = asyncio.create_task(shell.run("sleep 60"))
        await asyncio.sleep(0.3)
        await box.stop()
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxDied):
            await shell.run("true")

    async def test_many_sessions_at_once(self, box):
        shells = await asyncio.gather(*(box.session() for _ in range(8)))
        results = await asyncio.gather(*(s.run(f"sleep 0.2; echo {i}") for i, s in enumerate(shells)))
        assert [r.output for r in results] == [f"{i}\n" for i in range(8)]
