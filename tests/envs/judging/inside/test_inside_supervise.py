"""What a wrapper's call is taken for."""

import os
import subprocess
import sys

import ours
import processes
import pytest
import rewarding
import supervise
from python_call import PythonCall

TASKS_TIME = (1, 10**18)
"""When all files of the task were made."""


@pytest.fixture
def tests(tmp_path, monkeypatch):
    for module in (supervise, ours, rewarding):
        monkeypatch.setattr(module, "TESTS", str(tmp_path))
    for module in (ours, rewarding):
        monkeypatch.setattr(module, "workdir", lambda: str(tmp_path / "app"))
    (tmp_path / "grade.py").write_text("# /logs/verifier\n")
    (tmp_path / "run.py").write_text("import pytest\npytest.main()\n")
    (tmp_path / "start.py").write_text("import subprocess\nsubprocess.run(['pytest'])\n")
    (tmp_path / "mock.py").write_text("from unittest import mock\n")
    (tmp_path / "test.sh").write_text(
        "python3 -c 'print(1)  # /logs/verifier'\ncat > late.py << X\n# /logs/verifier\nX\n"
    )
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    for name in ("stamp", "since"):
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        os.utime(path, ns=TASKS_TIME)
    (tmp_path / "late.py").write_text("# /logs/verifier\n")
    (tmp_path / "copied.py").write_text("print(1)  # /logs/verifier\n# more\n")
    return tmp_path


@pytest.mark.parametrize(
    "args, kind, what, rest, safe, kept",
    [
        ("-m pytest -q", "module", "pytest", ["-q"], False, []),
        ("-mpytest", "module", "pytest", [], False, []),
        ("-Im pytest", "module", "pytest", [], True, []),
        ("-X utf8 -W ignore -m pytest", "module", "pytest", [], False, ["-Xutf8", "-Wignore"]),
        ("-Xutf8 -Wignore -OO -um unittest a", "module", "unittest", ["a"], False, ["-Xutf8", "-Wignore", "-O", "-O"]),
        ("--check-hash-based-pycs always -P a.py -m pytest", "script", "a.py", ["-m", "pytest"], True, []),
        ("-c code -m pytest", "code", "code", ["-m", "pytest"], False, []),
        ("-sBc code", "code", "code", [], False, []),
        ("- a", "stdin", "", ["a"], False, []),
        ("-I", "stdin", "", [], True, []),
    ],
)
def test_a_call_of_python_is_read_as_python_reads_it(args, kind, what, rest, safe, kept):
    call = PythonCall(args.split())
    assert (call.kind, call.what, call.args, call.safe_path, call.kept) == (kind, what, rest, safe, kept)


@pytest.mark.parametrize(
    "name, kind",
    [
        *[
            ("grade.py", "grader"),
            ("run.py", "tests"),
            ("start.py", "grader"),
            ("mock.py", "other"),
            ("none.py", "other"),
        ],
        *[("late.py", "grader"), ("copied.py", "other")],
    ],
)
def test_a_script_of_the_tests_is_taken_for_what_it_does(tests, name, kind):
    call = PythonCall([str(tests / name)])
    assert supervise.kind_of(call, supervise.source_file(call)) == kind


@pytest.mark.parametrize(
    "args, kind",
    [("-m unittest a", "tests"), ("-m coverage run a", "tests"), ("-m coverage report", "other"), ("-m pip", "other")],
)
def test_runners_of_tests_are_watched_as_modules(args, kind):
    assert supervise.kind_of(PythonCall(args.split()), "") == kind


@pytest.mark.parametrize(
    "args, kind",
    [
        ("-m pack", "grader"),
        ("-m pack.write", "grader"),
        ("-m pack.other", "other"),
        ("{}/pack", "grader"),
        ("{}/helped.py", "grader"),
        ("{}/judges.py", "other"),
        ("{}/told.py --reward=/logs/verifier/reward.txt", "grader"),
        ("{}/told.py /logs/verifier", "grader"),
        ("{}/told.py /logs/verifier/out.txt", "other"),
        ("{}/variable.py", "grader"),
    ],
)
def test_a_program_that_is_told_where_the_reward_goes_is_a_grader(tests, monkeypatch, args, kind):
    files = {
        "pack/write.py": "def put(x): open('/logs/verifier/reward.txt', 'w').write(x)\n",
        "pack/other.py": "",
        "pack/__main__.py": "from .write import put\n",
        "app/solution.py": "",
        "helped.py": "import json\nfrom pack import write\n",
        "judges.py": "import solution, pack.write\n",
        "told.py": "print(1)\n",
        "variable.py": "import os\nprint(os.environ['WHERE'])\n",
    }
    for name, text in files.items():
        (tests / name).parent.mkdir(exist_ok=True)
        (tests / name).write_text(text)
        os.utime(tests / name, ns=TASKS_TIME)
    monkeypatch.chdir(tests)
    monkeypatch.setenv("WHERE", "/logs/verifier/reward.txt")
    call = PythonCall(args.format(tests).split())
    assert supervise.kind_of(call, supervise.source_file(call)) == kind


def test_no_script_outside_of_the_tests_is_a_grader(tests, tmp_path_factory):
    other = tmp_path_factory.mktemp("app") / "grade.py"
    other.write_text("# another /logs/verifier\n")
    (tests / "link.py").symlink_to(other)
    for path in (other, tests / "link.py"):
        assert supervise.kind_of(PythonCall([str(path)]), str(path)) == "other"


def test_code_is_a_grader_only_where_a_file_of_the_tests_has_it(tests, tmp_path_factory):
    (tests / "whole.py").write_text("print(3)  # /logs/verifier\n")
    os.utime(tests / "whole.py", ns=TASKS_TIME)
    code = tmp_path_factory.mktemp("verifier") / "code"
    for number, kind in ((1, "grader"), (2, "other"), (3, "grader")):
        source = f"print({number})  # /logs/verifier"
        code.write_text(source)
        assert supervise.kind_of(PythonCall(["-c", source]), str(code)) == kind


def test_what_is_asked_in_another_process_comes_back():
    assert supervise.apart(lambda text: text + str(os.getpid()), "") != str(os.getpid())
    assert supervise.apart(str.upper, "a") == "A"


@pytest.mark.parametrize(
    "said, is_set",
    [("export OUT=$(mktemp)", True), ("env['OUT'] = path", True), ("{'OUT': path}", True), ("$OUT", False)],
)
def test_a_variable_is_the_tasks_where_its_files_set_it(tests, tmp_path, monkeypatch, said, is_set):
    (tmp_path / "environment").write_text("LAYOUT=1\nHOME=/root\n")
    monkeypatch.setattr(supervise, "HERE", str(tmp_path))
    monkeypatch.setenv("OUT", "1")
    monkeypatch.setenv("HOME", "/root")
    (tests / "run.sh").write_text(said)
    os.utime(tests / "run.sh", ns=TASKS_TIME)
    assert supervise.is_set("OUT") is is_set
    assert supervise.is_set("HOME")


def test_a_virtual_environment_has_what_the_image_has(tmp_path, monkeypatch):
    (tmp_path / "tree").mkdir()
    (tmp_path / "workdir").symlink_to(tmp_path / "tree")
    for module in (processes, supervise):
        monkeypatch.setattr(module, "HERE", str(tmp_path))
    assert supervise.run_python(sys.executable, ["-m", "venv", str(tmp_path / "new")]) == 0
    command = [str(tmp_path / "new/bin/python"), "-c", "import sys; print(sys.prefix)"]
    assert subprocess.check_output(command, text=True).strip() == str(tmp_path / "new")
    assert (tmp_path / "new/bin/pytest").readlink() == tmp_path / "bin/pytest"


def test_judged_code_makes_a_virtual_environment_where_it_had_a_hand(tmp_path, monkeypatch):
    (tmp_path / "tree").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "workdir").symlink_to(tmp_path / "tree")
    for module in (processes, supervise):
        monkeypatch.setattr(module, "HERE", str(tmp_path))
    calls = []
    monkeypatch.setattr(supervise, "drop", lambda *call: calls.append(call))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    places = ["there", "tree/new", "shared/new", "shared/in/new", "link/new"]
    for path in places:
        supervise.run_python(sys.executable, ["-m", "venv", "--clear", str(tmp_path / path)])
    assert [call[1][-1] for call in calls] == [str(tmp_path / path) for path in places]
