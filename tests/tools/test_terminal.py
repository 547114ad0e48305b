"""The terminal: what lasts from one command to the next, and what no command can break."""

import pytest
from stopwatch import Stopwatch
from waiting import until

from sandboxes.base import ExecResult
from tools import Terminal, ToolError


@pytest.fixture
def terminal(shell_sandbox):
    return Terminal(shell_sandbox)


async def run(terminal, command, timeout=20):
    return (await terminal.terminal(command, timeout)).content


async def in_marked_directory(terminal):
    """Puts the terminal into a directory and a variable that the tests recognise."""
    assert await run(terminal, "mkdir -p kept && cd kept && export MARK=here") == "(no output)"


async def still_marked(terminal):
    return await run(terminal, 'echo "${PWD##*/} $MARK"') == "kept here"


async def test_commands_start_in_the_workdir(terminal, shell_sandbox):
    assert await run(terminal, "pwd") == shell_sandbox.workdir


async def test_output_of_both_streams_comes_in_order(terminal):
    assert await run(terminal, "echo a; echo b >&2; echo c") == "a\nb\nc"


async def test_a_command_without_output_says_so(terminal):
    assert await run(terminal, "true") == "(no output)"


async def test_an_exit_code_is_shown_when_it_is_not_zero(terminal):
    assert await run(terminal, "echo a; exit 3") == "a\n[exit code 3]"
    assert await run(terminal, "false") == "[exit code 1]"


async def test_metadata_carry_the_exit_code(terminal):
    result = await terminal.terminal("exit 3")
    assert result.metadata["exit_code"] == 3
    assert result.metadata["timed_out"] is False
    assert not result.is_error


async def test_directory_and_exported_variables_last(terminal):
    await in_marked_directory(terminal)
    assert await still_marked(terminal)


async def test_variables_that_are_not_exported_functions_and_aliases_last(terminal):
    await run(terminal, "plain=1; f() { echo in f; }; alias again='echo it is'")
    assert await run(terminal, 'echo "[$plain]"; f; alias again') in (
        "[1]\nin f\nalias again='echo it is'",
        "[1]\nin f\nagain='echo it is'",
    )


async def test_a_shell_that_ends_with_changes_is_told(terminal):
    notice = "; the shell has ended: the working directory and variables are as before]"
    for command, code in {"cd /; exit 3": 3, "A=1; exec true": 0, "export A=1; kill -9 $$": 137}.items():
        assert await run(terminal, command) == f"[exit code {code}{notice}"
    assert await run(terminal, "exit 3") == "[exit code 3]", "it has lost nothing"


async def test_the_umask_lasts(terminal):
    await run(terminal, "umask 077")
    await run(terminal, "true")
    assert (await run(terminal, "umask")).lstrip("0") == "77"


async def test_an_umask_that_denies_everything_does_not_cost_the_state(terminal):
    await in_marked_directory(terminal)
    await run(terminal, "umask 777")
    await run(terminal, "export LATER=1")
    assert await run(terminal, "umask 022; echo $LATER") == "1"
    assert await still_marked(terminal)


async def test_cd_minus_goes_back(terminal):
    await in_marked_directory(terminal)
    await run(terminal, "cd /usr")
    await run(terminal, "true")
    assert (await run(terminal, "cd - >/dev/null; pwd")).endswith("/kept")


async def test_a_variable_may_hold_anything(terminal):
    await run(
        terminal,
        """export A='quote " and '"'"'
newline $HOME `date` \\ %s ü'""",
    )
    expected = """quote " and '\nnewline $HOME `date` \\ %s ü"""
    assert await run(terminal, 'printf "%s" "$A"') == expected
    assert await run(terminal, 'printf "%s" "$A"') == expected


@pytest.mark.parametrize("name", ["with space", "new\nline", "trailing\n", "-dash", "quote'\"$HOME", "*", "ü"])
async def test_a_directory_may_have_any_name(terminal, shell_sandbox, name):
    quoted = "'" + name.replace("'", "'\"'\"'") + "'"
    await run(terminal, f"mkdir -- {quoted} && cd -- ./{quoted} && export MARK=1 && touch found")
    assert await run(terminal, "ls; echo $MARK") == "found\n1"
    assert await run(terminal, "cd ..; pwd") == shell_sandbox.workdir


async def test_a_state_that_has_shrunk_leaves_nothing_behind(terminal):
    await run(terminal, "for n in 1 2 3 4 5 6 7 8 9; do export LONG$n=$(seq 1 200); done")
    await run(terminal, "true")
    await run(terminal, "unset LONG1 LONG2 LONG3 LONG4 LONG5 LONG6 LONG7 LONG8 LONG9; export MARK='unset MARK'")
    for _ in range(3):
        assert await run(terminal, "echo $MARK; env | grep -c LONG") == "unset MARK\n0\n[exit code 1]"


async def test_a_save_that_is_cut_short_cannot_harm_the_state_before_it(terminal):
    await in_marked_directory(terminal)
    # The state to come goes into the other file than the one that the command before has left.
    await run(terminal, """echo '(' >"$__dir/state.$__slot"; kill -9 $$""")
    assert await still_marked(terminal)
    slots = {await run(terminal, "echo $__slot") for _ in range(2)}
    assert slots == {"0", "1"}


async def test_unset_of_a_variable_of_the_sandbox_lasts(terminal):
    await run(terminal, "unset HOME LANG")
    assert await run(terminal, 'echo "[${HOME-unset}]"') == "[unset]"


async def test_state_lasts_without_PATH(terminal):
    await in_marked_directory(terminal)
    await run(terminal, "unset PATH; export MORE=1")
    assert "127" in await run(terminal, "git --version")
    assert await run(terminal, "export PATH=/usr/bin:/bin; echo $MORE") == "1"
    assert await still_marked(terminal)


async def test_an_assigned_PWD_does_not_mislead(terminal):
    await in_marked_directory(terminal)
    await run(terminal, "PWD=/nowhere")
    assert await still_marked(terminal)


SAVED = {
    "exit": "export MARK=here; exit 3",
    "errexit": "set -e; false; echo unreached",
    "nounset": "set -u; echo $undefined_variable",
    "noclobber": "set -C",
    "noglob": "set -f",
    "xtrace": "set -x; exit 4",
    "verbose": "set -v",
    "fields": "IFS=/",
    "closed streams": "exec >&- 2>&-",
    "redirected streams": "exec >log 2>&1; echo into the log",
    "ignored exit": "trap '' EXIT",
    "own exit trap": "trap 'echo bye' EXIT",
    "missing directory": "cd /nonexistent",
    "function": "cd() { :; }; pwd() { echo nowhere; }; command cd .",
    "here document": "cat <<END\n$MARK ) ' \"\nEND",
    "read-only": "readonly READ=1; export READ",
    "subshell": "(cd /; exit 5)",
}
KEPT = {
    "exec": "export MARK=gone; cd /; exec true",
    "kill -9": "export MARK=gone; cd /; kill -9 $$",
    "unbalanced single quote": "cd / && echo 'unbalanced",
    "unbalanced double quote": 'cd / && echo "unbalanced',
    "unfinished if": "if true; then cd /",
    "no execution": "set -n; cd /",  # only the time limit ends a shell that runs nothing any more
    "exit with own trap": "trap 'true' EXIT; cd /; exit 3",
}


@pytest.mark.parametrize("command", SAVED.values(), ids=SAVED)
async def test_state_lasts_after(terminal, command):
    await in_marked_directory(terminal)
    await run(terminal, command)
    assert await still_marked(terminal)
    # The command after it saves and restores as ever.
    await run(terminal, "export MARK=there; cd ..; cd kept")
    assert await run(terminal, 'echo "${PWD##*/} $MARK"') == "kept there"


@pytest.mark.parametrize("command", KEPT.values(), ids=KEPT)
async def test_state_from_before_is_kept_after(terminal, command):
    await in_marked_directory(terminal)
    await run(terminal, command, timeout=1 if command == KEPT["no execution"] else 2)
    assert await still_marked(terminal)


async def test_a_trap_of_the_command_runs_once_and_its_exit_code_counts(terminal):
    assert await run(terminal, "trap 'echo bye' EXIT; echo hello") == "hello\nbye"
    assert await run(terminal, "trap 'echo bye' EXIT; exit 7") == "bye\n[exit code 7]"


async def test_tracing_shows_the_command_alone(terminal):
    lines = (await run(terminal, "set -x; true; exit 4")).splitlines()
    assert [line.lstrip("+ ") for line in lines] == ["true", "exit 4", "[exit code 4]"]


async def test_a_signal_is_an_exit_code(terminal):
    assert await run(terminal, "kill -9 $$") == "[exit code 137]"


@pytest.mark.parametrize("command", ["echo 'unbalanced", 'echo "unbalanced'])
async def test_an_unbalanced_quote_is_a_syntax_error(terminal, command):
    shown = await run(terminal, command)
    assert "[exit code" in shown
    assert "nterminated" in shown or "unexpected EOF" in shown


async def test_several_lines_and_a_here_document_work(terminal):
    assert await run(terminal, "for i in 1 2; do\n  echo $i\ndone\ncat <<'END'\n$x 'y'\nEND") == "1\n2\n$x 'y'"


async def test_the_command_sees_no_arguments_and_no_variables_of_ours(terminal):
    shown = await run(terminal, 'echo "$#"; env')
    assert shown.startswith("0\n")
    assert "terminal_" not in shown and "ATROPOS_LOOP" not in shown


async def test_a_command_that_reads_finds_the_end_of_its_input(terminal):
    assert await run(terminal, "cat; read x; echo $?") == "1"


async def test_programs_do_not_wait_for_a_key(terminal):
    assert await run(terminal, "echo $PAGER $GIT_PAGER $TERM $DEBIAN_FRONTEND") == "cat cat dumb noninteractive"


async def test_the_sandbox_own_variables_are_those_of_its_session(terminal, shell_sandbox):
    names = "env | grep '^ATROPOS_' | sort"
    first, second = await run(terminal, names), await run(terminal, names)
    fresh = (await shell_sandbox.exec(names)).output
    assert first.count("ATROPOS_") == second.count("ATROPOS_") == fresh.count("ATROPOS_")
    assert first != fresh.strip() or not first.startswith("ATROPOS_")


async def test_a_deleted_directory_is_reported_and_left(terminal, shell_sandbox):
    await run(terminal, "mkdir gone; cd gone; rmdir ../gone; export MARK=1")
    shown = await run(terminal, "pwd; echo $MARK")
    assert shown.startswith("[the directory ") and "/gone is gone; now in " in shown
    assert shown.endswith(f"\n{shell_sandbox.workdir}\n1")
    assert await run(terminal, "pwd") == shell_sandbox.workdir


async def test_a_deleted_workdir_is_survived(terminal, shell_sandbox):
    assert await run(terminal, 'cd ..; rm -rf "$OLDPWD"; cd "$OLDPWD" 2>/dev/null || echo gone') == "gone"
    assert await run(terminal, "echo alive") == "alive"


async def test_deleted_state_is_forgotten_without_harm(terminal, shell_sandbox):
    await in_marked_directory(terminal)
    await run(terminal, 'rm -rf "$__dir"')
    assert await still_marked(terminal)


async def test_a_timeout_kills_shows_the_output_so_far_and_keeps_the_state(terminal):
    await in_marked_directory(terminal)
    watch = Stopwatch()
    shown = await run(terminal, "cd /; echo partial; sleep 61.7 & sleep 61.7", timeout=1)
    assert watch.seconds < 10
    # Between them a shell may still report that its child was killed.
    assert shown.startswith("partial\n") and "\n[timed out after 1 s and was killed" in shown
    assert await still_marked(terminal)
    assert await run(terminal, "pgrep -f 'sleep 61[.]7'") == "[exit code 1]"


async def test_a_background_job_does_not_hold_the_command(terminal):
    watch = Stopwatch()
    assert await run(terminal, "sleep 30 & echo started") == "started"
    assert watch.seconds < 5


async def test_a_background_job_with_redirected_output_runs_on(terminal):
    await run(terminal, "(sleep 0.5; echo done) > log 2>&1 &")
    assert await run(terminal, "until [ -s log ]; do sleep 0.1; done; cat log", timeout=60) == "done"


async def test_a_background_job_survives_writing_to_a_command_that_has_ended(terminal, shell_sandbox):
    await run(terminal, "(sleep 0.3; echo lost; echo lost >&2; echo survived > log) & true")

    async def wrote():
        return (await shell_sandbox.exec("cat log 2>&1")).output == "survived\n"

    await until(wrote)  # not in the terminal, whose commands would show what is written meanwhile
    assert await run(terminal, "cat log") == "survived"


async def test_pkill_does_not_find_its_own_shell(terminal):
    shown = await run(terminal, "pkill -f some_unheard_of_server.py; echo alive")
    assert shown == "alive"


async def test_long_output_is_cut_and_kept_in_a_file(terminal):
    shown = await run(terminal, "seq 1 20000")
    assert len(shown) < 8_200
    head, note, tail = shown.partition("\n[... ")
    assert head.startswith("1\n2\n3\n") and note and tail.endswith("\n19999\n20000")
    cut, _, path = tail.partition("]")[0].removesuffix(" ...").partition(" characters cut; full output: ")
    assert int(cut.replace(",", "")) == len("\n".join(map(str, range(1, 20001)))) - 8_000
    assert await run(terminal, f"wc -l < {path}; tail -1 {path}") == "20000\n20000"


async def test_long_output_is_cut_also_where_it_cannot_be_kept(terminal):
    path = (await run(terminal, "seq 1 20000")).partition("full output: ")[2].partition(" ")[0]
    blocked = path.replace("output-1", "output-3")
    await run(terminal, f"mkdir {blocked}")
    assert "characters cut; they could not be kept: " in await run(terminal, "seq 1 20000")


async def test_no_message_of_a_failed_command_becomes_a_directory(terminal, shell_sandbox, monkeypatch):
    async def refused(*_, **__):
        return ExecResult(126, b"sandbox: cannot start a process: Resource temporarily unavailable\n")

    with monkeypatch.context() as patch:
        patch.setattr(shell_sandbox, "exec", refused)
        assert "they could not be kept: sandbox: cannot start a process" in await run(terminal, "seq 1 20000")
    assert await run(terminal, "ls") == "(no output)"
    assert "full output: /" in await run(terminal, "seq 1 20000")


async def test_a_flood_is_bounded_and_says_what_is_kept(terminal, shell_sandbox):
    shown = await run(terminal, "head -c 30000000 /dev/zero | tr '\\0' x")
    assert len(shown) < 8_300
    assert "; the first and last 500,000 bytes: " in shown
    path = shown.partition(" bytes: ")[2].partition(" ")[0]
    assert len(await shell_sandbox.read_file(path)) < 1_001_000


async def test_binary_output_is_shown_safely(terminal):
    shown = await run(terminal, "head -c 3000 /bin/sh; printf '\\377\\376\\0\\033[31mred\\033[0m'")
    assert shown.encode()  # no lone surrogates
    assert "\0" not in shown and "\x1b" not in shown
    assert shown.endswith("red")


async def test_a_progress_bar_is_shown_in_its_last_state(terminal):
    assert await run(terminal, "printf '10%%\\r50%%\\r100%%\\ndone\\r\\n'") == "100%\ndone"


@pytest.mark.parametrize(
    ("command", "timeout", "said"),
    [
        ("true", 0, "from 1 to 600"),
        ("true", 601, "from 1 to 600"),
        ("echo a\0b", 5, "null"),
        ("x" * 130_000, 5, "120,000 bytes"),
    ],
)
async def test_impossible_commands_are_refused(terminal, command, timeout, said):
    with pytest.raises(ToolError, match=said):
        await terminal.terminal(command, timeout)


async def test_the_longest_command_runs(terminal):
    assert await run(terminal, "echo " + "x" * 100_000 + " | wc -c") == "100001"


async def test_one_command_costs_one_command_of_the_session(shell_sandbox):
    class Counting:
        calls = 0

        async def session(self, **options):
            self.shell = await shell_sandbox.session(**options)
            return self

        async def run(self, command, **options):
            self.calls += 1
            return await self.shell.run(command, **options)

    counting = Counting()
    terminal = Terminal(counting)
    await run(terminal, "true")
    first = counting.calls
    for _ in range(5):
        await run(terminal, "cd /; export A=1")
    assert counting.calls - first == 5


async def test_two_terminals_of_one_sandbox_keep_apart(shell_sandbox):
    one, other = Terminal(shell_sandbox), Terminal(shell_sandbox)
    await run(one, "cd /usr; export A=1")
    assert await run(other, "pwd; echo [$A]") == f"{shell_sandbox.workdir}\n[]"
