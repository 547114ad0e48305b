"""Messages name commands as the user called them, and failures with place and remedy."""

import os
import pathlib
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from envs import messages
from envs.messages import SWE, current_command, describe_error, replace_command
from envs.swe.__main__ import main


def called(monkeypatch: pytest.MonkeyPatch, module: str | None, argv0: str) -> None:
    spec = None if module is None else SimpleNamespace(name=module)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    monkeypatch.setattr(sys, "argv", [argv0])


@pytest.mark.parametrize(
    ("module", "argv0", "shown"),
    [
        (None, "/usr/local/bin/atropos-agent", "atropos-agent view RUN"),
        ("atropos_agent.__main__", "atropos_agent/__main__.py", "python -m atropos_agent view RUN"),
        ("envs.swe.__main__", "envs/swe/__main__.py", "python -m envs.swe view RUN"),
        ("pytest.__main__", "pytest/__main__.py", "python -m envs.swe view RUN"),
        (None, "mine.py", "python -m envs.swe view RUN"),
    ],
)
def test_our_command_is_written_as_it_was_called(monkeypatch, module, argv0, shown):
    called(monkeypatch, module, argv0)
    assert replace_command(f"{SWE} view RUN") == shown


def test_a_command_of_another_environment_is_written_as_it_says(monkeypatch):
    called(monkeypatch, None, "/usr/local/bin/atropos-agent")
    assert replace_command(f"`{SWE} groups RUN_DIR`", "python mine.py") == "`python mine.py groups RUN_DIR`"


def test_an_error_without_a_text_is_called_by_its_name():
    assert describe_error(AssertionError()) == "AssertionError"


def test_an_error_that_quotes_a_server_steers_no_terminal():
    assert describe_error(ValueError("it said \x1b[2J\x1b]0;x\x07\ttab\nline")) == "it said ]0;x\ttab\nline"


def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        pathlib.Path.cwd()
    assert describe_error(caught.value).startswith("the working directory is no longer there; change")


def test_a_user_without_a_home_is_told(monkeypatch, capsys):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert messages.run_main(lambda _: 0, []) == 2
    assert "HOME is not set" in capsys.readouterr().err


def test_a_script_of_the_users_is_called_by_python(monkeypatch):
    called(monkeypatch, None, "mine.py")
    assert current_command() == "python mine.py"


COMMANDS = [[], ["serve"], ["view"], ["groups"], ["agents"], ["agents", "update"], ["join"], ["export"], ["tasks"]]
COMMANDS += [["rejudge"], ["demo"], ["learn"], ["warmstart"], ["doctor"], ["tasks", "check"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_help_of_the_installed_command_names_another(monkeypatch, capsys, command):
    called(monkeypatch, None, "/usr/local/bin/atropos-agent")
    try:
        status = main([*command, "--help"])
    except SystemExit as end:  # argparse's
        status = end.code
    said = capsys.readouterr().out
    assert status == 0
    assert "atropos-agent" in said and "python -m" not in said


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape", "iso-8859-1", "utf-8"])
def test_a_terminal_of_another_encoding_gets_escapes(encoding):
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "envs.swe", "--help"], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "`tasks convert …`".encode(encoding.partition(":")[0], "backslashreplace") in done.stdout


def test_a_failure_of_a_file_names_the_place_and_the_remedy(tmp_path):
    with pytest.raises(OSError) as raised:
        (tmp_path / "absent").read_bytes()
    assert describe_error(raised.value) == (
        f"{tmp_path / 'absent'} can't be used (No such file or directory); mend that, or give another"
    )
    with pytest.raises(OSError) as raised:
        (tmp_path / "absent").rename(tmp_path / "there/name")
    assert describe_error(raised.value).startswith(f"{tmp_path / 'there/name'} can't be used")
    assert describe_error(OSError(28, "No space left on device")).startswith(
        "the disk is full ([Errno 28] No space left on"
    )
    assert describe_error(OSError("the disk is away")) == "the disk is away"
    assert describe_error(ValueError("no number")) == "no number"


def test_a_missing_file_of_certificates_is_named(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    assert describe_error(FileNotFoundError(2, "No such file")) == (
        "SSL_CERT_FILE names /no/such.pem, which is not there; correct or unset it"
    )


def test_a_socks_proxy_is_told_in_a_sentence():
    code = (
        "import sys, httpx; from envs.messages import run_main; sys.exit(run_main(lambda _: httpx.Client() and 0, []))"
    )
    env = {**os.environ, "ALL_PROXY": "socks5://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    sentence = "the environment names a SOCKS proxy: unset ALL_PROXY, or pip install 'httpx[socks]'"
    assert (done.returncode, done.stderr) == (1, f"{sentence}\n")
    assert describe_error(ImportError("Using SOCKS proxy, but …")) == sentence, "as a run's commands say it, too"


SLEEPER = """
import sys, time
from envs.messages import run_main

def main(_):
    try:
        print("runs", flush=True)
        time.sleep(600)
    finally:
        print("tidied", flush=True)

sys.exit(run_main(main, []))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_by_sigterm_as_by_ctrl_c(number):
    command = [sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "tidied\n", "interrupted\n")
