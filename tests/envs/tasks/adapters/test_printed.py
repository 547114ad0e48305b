"""SWE-bench rows of other languages, whose tests are judged by what their runners print."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from clean_tree import CleanTree, a_few_at_a_time
from rows_on_disk import write
from test_unittests import diff

from envs.judging.check import check_tasks
from envs.judging.verifier import judge
from envs.swe.tasks import main
from envs.tasks.adapters.directory import INSIDE
from envs.tasks.adapters.printed import PARSERS
from envs.tasks.adapters.swebench import load
from envs.types import BadTask, TestStatus
from sandboxes.docker import DockerBackend

AWKS = [awk for awk in (["mawk"], ["gawk"], ["original-awk"], ["busybox", "awk"]) if shutil.which(awk[0])] or [["awk"]]

# What runners print, and what is seen in it: (status, section, name).
PRINTED = {
    "go": (
        """\
=== RUN   TestReplacer
=== RUN   TestReplacer/empty_(none)
    replacer_test.go:12: --- PASS: is what we hope for (0.00s)
--- FAIL: TestReplacer (0.01s)
    --- PASS: TestReplacer/empty_(none) (0.00s)
    --- SKIP: TestReplacer/slow (0.00s)
FAIL
FAIL\texample.org/replacer\t0.012s
?   \texample.org/cmd\t[no test files]
--- PASS: TestReplacer (1.20s)
ok  \texample.org/other\t(cached)
""",
        [
            ("failed", 0, "TestReplacer"),
            ("passed", 0, "TestReplacer/empty_(none)"),
            ("skipped", 0, "TestReplacer/slow"),
            ("passed", 2, "TestReplacer"),
        ],
    ),
    "cargo": (
        """\
     Running unittests src/lib.rs (target/debug/deps/axum-4c1f)

running 3 tests
test routing::tests::fallback ... ok
test routing::tests::slow ... ignored, takes long
test routing::tests::nested ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
test src/lib.rs - get (line 3) ... ok
""",
        [
            ("passed", 1, "routing::tests::fallback"),
            ("skipped", 1, "routing::tests::slow"),
            ("failed", 1, "routing::tests::nested"),
            ("passed", 2, "src/lib.rs - get (line 3)"),
        ],
    ),
    "jest": (
        """\
PASS packages/scope.test.js
  scope
    \x1b[32m✓\x1b[39m \x1b[2mreads (globals) (12 ms)\x1b[22m
    ✕ writes (3 ms)
    ○ skipped deletes
Tests:       1 failed, 1 skipped, 1 passed, 3 total
""",
        [
            ("passed", 0, "reads (globals) (12 ms)"),
            ("failed", 0, "writes (3 ms)"),
            ("skipped", 0, "skipped deletes"),
        ],
    ),
    "jest-json": (
        "[PASSED] OrderedMap > has order\n[FAILED] OrderedMap > is [a] map\n[PENDING] later\n",
        [("passed", 0, "OrderedMap > has order"), ("failed", 0, "OrderedMap > is [a] map")],
    ),
    "jest-files": (
        "PASS src/a.test.js (5.41 s)\nFAIL src/b.test.js\n  FAIL in a message\n",
        [("passed", 0, "src/a.test.js"), ("failed", 0, "src/b.test.js")],
    ),
    "vitest": (
        " ✓ packages/a.spec.ts > list > renders 12ms\n × packages/a.spec.ts > list > fails\n"
        " ↓ packages/a.spec.ts > later [skipped]\n",
        [
            ("passed", 0, "packages/a.spec.ts > list > renders"),
            ("failed", 0, "packages/a.spec.ts > list > fails"),
            ("skipped", 0, "packages/a.spec.ts > later"),
        ],
    ),
    "ticks": (
        "▶ sums\n  ✔ adds one (0.52ms)\n  ✖ adds two (1.2ms)\n﹣ later # SKIP\n"
        "    ✓ [chrome]: clicks 31ms\n    1) breaks\n",
        [
            ("passed", 0, "adds one"),
            ("failed", 0, "adds two"),
            ("passed", 0, "clicks"),
            ("failed", 0, "breaks"),
        ],
    ),
    "tap": (
        "TAP version 13\n# Subtest: sums\n    ok 1 - adds\n      ---\n      duration_ms: 0.5\n"
        "not ok 2 Sphere > setFromPoints\n1..2\n",
        [("passed", 0, "- adds"), ("failed", 0, "Sphere > setFromPoints")],
    ),
    "karma": (
        """\
  ✔ before anything started
18 06 2024 [launcher]: Starting browser ChromeNoSandboxHeadless
  Components
    ✔ should render components
    Component props
      ✖ should be given
    ✔ should be seen last
SUMMARY:
  ✔ 2 tests completed
""",
        [
            ("passed", 0, "Components > should render components"),
            ("failed", 0, "Components > Component props > should be given"),
            ("passed", 0, "Components > Component props > should be seen last"),
        ],
    ),
    "maven": (
        """\
+ mvnd test -B -pl gson -Dtest=com.google.gson.NamingTest#testUpper
[INFO] BUILD SUCCESS
+ mvnd test -B -pl gson -Dtest=com.google.gson.NamingTest#testLower
[INFO] Tests run: 1, Failures: 1
[INFO] BUILD FAILURE
""",
        [
            ("passed", 0, "com.google.gson.NamingTest#testUpper"),
            ("failed", 0, "com.google.gson.NamingTest#testLower"),
        ],
    ),
    "surefire": (
        """\
[INFO] Running org.example.FirstTest
[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.1 s -- in org.example.FirstTest
[INFO] Running org.example.SecondTest
[ERROR] Tests run: 2, Failures: 0, Errors: 1, Skipped: 0, Time elapsed: 0.02 s <<< FAILURE!
[INFO] Tests run: 6, Failures: 0, Errors: 1, Skipped: 0
""",
        [("passed", 0, "org.example.FirstTest"), ("failed", 0, "org.example.SecondTest")],
    ),
    "junit": (
        """\
<?xml version="1.0"?><testsuite><testcase name="adds &lt;two&gt;" classname="org.A" time="0.1"/>
<testcase classname="org.A"
  name="throws"><failure message="a > b">trace</failure></testcase><testcase name="later"><skipped/></testcase>
""",
        [("passed", 0, "org.A adds <two>"), ("failed", 0, "org.A throws"), ("skipped", 0, "later")],
    ),
    "junit-gradle": ('<testcase name="adds()" classname="org.A"></testcase>', [("passed", 0, "adds() (org.A)")]),
    "gradle": (
        """\
> Task :core:test
org.apache.lucene.TestPoint > testEquals PASSED
org.apache.lucene.TestPoint > testHash
    WARNING: something else
PASSED
org.apache.lucene.TestPoint > testRandom FAILED
""",
        [
            ("passed", 0, "org.apache.lucene.TestPoint > testEquals"),
            ("passed", 0, "org.apache.lucene.TestPoint > testHash"),
            ("failed", 0, "org.apache.lucene.TestPoint > testRandom"),
        ],
    ),
    "ant": (
        "    [junit] [PASS] lombok(Getter.java)\n    [junit] [ERR] lombok(Setter.java)\n",
        [("passed", 0, "lombok(Getter.java)"), ("failed", 0, "lombok(Setter.java)")],
    ),
    "phpunit": (
        """\
Round Down (PhpOffice\\Tests\\RoundDown)
 ✔ Rounds with data set "two (2)"
 ✘ Rounds nothing
   │ Failed asserting that 1 matches expected 2.
 ↩ Rounds later
""",
        [
            ("passed", 0, 'Round Down > Rounds with data set "two (2)"'),
            ("failed", 0, "Round Down > Rounds nothing"),
            ("skipped", 0, "Round Down > Rounds later"),
        ],
    ),
    "minitest": (
        "TestSite#test_: static files should be read. = 0.01 s = .\n"
        "TestSite#test_sort = 0.00 s = E\nA#b = 0.10 s = S\n",
        [
            ("passed", 0, "TestSite#test_: static files should be read"),
            ("failed", 0, "TestSite#test_sort"),
            ("skipped", 0, "A#b"),
        ],
    ),
    "cucumber": (
        "Feature: dates ....\nFeature: times ...F\n",
        [("passed", 0, "Feature: dates"), ("failed", 0, "Feature: times")],
    ),
    "ruby-unit": (
        "  test: rotate_age: takes a number:\t\t.: (0.002)\n  test_email:\t\tF\n===\n  test_later:\tO\n",
        [
            ("passed", 0, "rotate_age: takes a number"),
            ("failed", 0, "test_email"),
            ("skipped", 0, "test_later"),
        ],
    ),
    "rspec": (
        "is - was - ./spec/a_spec.rb[1:2] - passed\nbreaks - failed\n",
        [("passed", 0, "is - was - ./spec/a_spec.rb[1:2]"), ("failed", 0, "breaks")],
    ),
    "redis": (
        "[ok]: ACL GETUSER (3 ms)\n[err]: ACL LOAD fails in tests/unit/acl.tcl\n[skip]: later\n[ready]: 1234\n",
        [("passed", 0, "ACL GETUSER"), ("failed", 0, "ACL LOAD fails"), ("skipped", 0, "later")],
    ),
    "automake": (
        "PASS: tests/jqtest\n FAIL: tests/onigtest\n# PASS:  1\n",
        [("passed", 0, "tests/jqtest"), ("failed", 0, "tests/onigtest")],
    ),
    "micropython": (
        "pass  basics/string_format.py\nFAIL  basics/try.py\nskip  thread/a.py\n",
        [
            ("passed", 0, "basics/string_format.py"),
            ("failed", 0, "basics/try.py"),
            ("skipped", 0, "thread/a.py"),
        ],
    ),
    "googletest": (
        "1: [ RUN      ] ranges_test.format\n1: [       OK ] ranges_test.format (0 ms)\n"
        "1: [  FAILED  ] ranges_test.join (2 ms)\n1: [  FAILED  ] 1 test, listed below:\n",
        [("passed", 0, "ranges_test.format"), ("failed", 0, "ranges_test.join")],
    ),
}


def run_awk(awk: list[str], *arguments: str | Path, printed: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [*awk, *arguments], check=False, input=printed, capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize("awk", AWKS, ids=lambda awk: awk[0])
@pytest.mark.parametrize("form", PRINTED)
def test_results_are_read_from_what_each_runner_prints(form, awk):
    printed, expected = PRINTED[form]
    ran = run_awk(awk, "-v", f"forms={form}", "-f", INSIDE / "printed.awk", printed=printed.replace("\n", "\r\n", 1))
    assert ran.stderr == ""
    assert [(a, int(b), c) for a, b, c in (line.split("\t") for line in ran.stdout.splitlines())] == expected


def test_each_parser_has_forms_that_were_seen_to_work():
    assert {form for forms in PARSERS.values() for form in forms.split()} == PRINTED.keys()


@pytest.mark.parametrize("awk", AWKS, ids=lambda awk: awk[0])
@pytest.mark.parametrize(
    "results, ended, repeats, verdict",
    [
        ("passed 0 a;passed 0 b;skipped 0 c;failed 0 d", 1, 0, ""),
        ("passed 0 a (12 ms);passed 0 b", 0, 0, ""),
        ("passed 0 a;passed 1 a;passed 0 b", 0, 0, ""),
        ("passed 0 a;passed 0 a;passed 0 b", 0, 1, ""),
        ("passed 0 a;passed 0 a;passed 0 b", 0, 0, "(printed twice): a"),
        ("passed 0 a;failed 1 a;passed 0 b", 1, 1, "(differs): a"),
        ("failed 1 a;passed 0 a;passed 0 b", 1, 1, "(differs): a"),
        ("failed 1 a;passed 0 a;failed 1 a;passed 0 b", 1, 1, "(differs): a"),
        ("passed 0 a", 0, 0, "(missing): b"),
        ("", 0, 0, "(missing): a"),
        ("passed 0 a;skipped 0 b", 0, 0, "(skipped): b"),
        ("passed 0 a;passed 0 b", 1, 0, "no failure was printed"),
        ("passed 0 a;passed 0 b;failed 0 c", 137, 0, "did not come to their end"),
        ("passed 0 a;passed 0 b;failed 0 c", 127, 0, "did not come to their end"),
    ],
)
def test_every_listed_test_must_be_seen_to_pass(tmp_path, awk, results, ended, repeats, verdict):
    (tmp_path / "listed").write_text("a\nb [3.5 ms]\n")
    (tmp_path / "results").write_text(
        "".join("\t".join(line.split(" ", 2)) + "\n" for line in results.split(";") if line)
    )
    given = ["-v", f"ended={ended}", "-v", f"repeats={repeats}", "-f", INSIDE / "verdict.awk"]
    ran = run_awk(awk, *given, tmp_path / "listed", tmp_path / "results")
    assert (ran.returncode == 0) == (verdict == ""), ran.stderr
    assert verdict in ran.stderr
    assert [test["name"] for test in json.loads(ran.stdout)["results"]["tests"]] == ["a", "b [3.5 ms]"]


# Rows as each set has them.
MULTILINGUAL = {
    "repo": "caddyserver/caddy",
    "instance_id": "caddyserver__caddy-6411",
    "base_commit": "b8dbecb841",
    "patch": diff("replacer.go", "wrong\n", "right\n"),
    "test_patch": diff("replacer_test.go", "few\n", "more\n"),
    "problem_statement": "The replacer is wrong",
    "hints_text": "",
    "created_at": "2024-06-20T20:21:43Z",
    "version": "6411",
    "FAIL_TO_PASS": ["TestReplacerNew"],
    "PASS_TO_PASS": ["TestReplacer/empty"],
}
EVAL_SCRIPT = """\
#!/bin/bash
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
cd /testbed
git checkout b8dbecb841 replacer_test.go
git apply --verbose --reject - <<'EOF_114329324912'
diff --git a/replacer_test.go b/replacer_test.go
+more
EOF_114329324912
make generate
: '>>>>> Start Test Output'
go test -v .
: '>>>>> End Test Output'
git checkout b8dbecb841 replacer_test.go
"""
V5 = MULTILINGUAL | {"image": "swebench/caddy", "eval_script": EVAL_SCRIPT, "log_parser": "parse_log_gotest"}
LIVE = MULTILINGUAL | {
    "rebuild_cmds": ["go build ./..."],
    "test_cmds": ["go test -json ./... > out.json"],
    "print_cmds": ["cat out.json"],
    "log_parser": "import json\n\ndef parser(log: str) -> dict[str, str]:\n    return json.loads(log)\n",
}
REBENCH = MULTILINGUAL | {
    "image_name": "docker.io/swerebenchv2/caddy:6411",
    "install_config": json.dumps(
        {"install": ["go mod download"], "test_cmd": ["go test -v ./..."], "log_parser": "parse_log_gotest"}
    ),
}


def tasks_of(tmp_path: Path, *rows, printed_results=True):
    return load(write(tmp_path, *rows), tmp_path / "out", printed_results=printed_results)


def commands(task) -> list[str]:
    return [line for line in (task.hidden.tests / "commands.sh").read_text().splitlines() if line]


@pytest.fixture
def swebench(monkeypatch):
    """The package's lists, as in its version 4."""

    def parse_log_maven():
        pass

    def install(**more):
        spec = {"test_cmd": ["mvnd test -Dtest=A#b", "mvnd test -Dtest=A#c"], "build": ["make"]}
        modules = {
            "swebench": {},
            "swebench.harness": {},
            "swebench.harness.constants": {"MAP_REPO_VERSION_TO_SPECS": {"caddyserver/caddy": {"6411": spec}}},
            "swebench.harness.log_parsers": {"MAP_REPO_TO_PARSER": {"caddyserver/caddy": parse_log_maven}},
        }
        for name, values in modules.items():
            module = ModuleType(name)
            vars(module).update(values | more)
            monkeypatch.setitem(sys.modules, name, module)

    return SimpleNamespace(install=install)


def test_a_row_with_an_eval_script_runs_its_commands_but_not_its_reset(tmp_path):
    (task,) = tasks_of(tmp_path, V5)
    assert commands(task) == [
        "exec 3>&1 >&2",
        "set -o pipefail",
        "#!/bin/bash",
        "set -uxo pipefail",
        "cd /testbed",
        "git config --global --add safe.directory /testbed",
        "cd /testbed",
        "make generate",
        "exec >&3 3>&- 2>&1",
        "go test -v .",
    ]
    assert "printed-results" in task.tags
    assert "replacer_test.go" in task.hidden.protected
    assert (task.hidden.tests / "listed").read_text() == "TestReplacerNew\nTestReplacer/empty\n"
    script = (task.hidden.tests / "test.sh").read_text()
    assert "git" in script and "forms=go " in script and not re.search("@[A-Z]+@", script)


def test_a_row_of_the_live_set_prints_by_its_own_commands_and_is_read_by_its_own_parser(tmp_path):
    (task,) = tasks_of(tmp_path, LIVE)
    assert commands(task) == [
        "exec 3>&1 >&2",
        "set -o pipefail",
        "go build ./...",
        "go test -json ./... > out.json",
        "ended=$?",
        "exec >&3 3>&- 2>&1",
        "cat out.json",
        "exit $ended",
    ]
    parser = subprocess.run(
        [sys.executable, task.hidden.tests / "parser.py"],
        check=True,
        input='{"TestA": "pass", "TestB": "skip", "a b": "fail"}',
        capture_output=True,
        text=True,
    )
    assert parser.stdout == "passed\t0\tTestA\nskipped\t0\tTestB\nfailed\t0\ta b\n"


def test_a_row_of_swe_rebench_has_its_commands_and_parser_in_install_config(tmp_path):
    (task,) = tasks_of(tmp_path, REBENCH)
    assert commands(task)[-2:] == ["exec >&3 3>&- 2>&1", "go test -v ./..."]
    assert "WORKDIR /caddy" in (tmp_path / "out/caddyserver__caddy-6411/environment/Dockerfile").read_text()


def test_a_row_of_the_multilingual_set_has_its_commands_and_parser_in_the_package(tmp_path, swebench):
    swebench.install()
    (task,) = tasks_of(tmp_path, MULTILINGUAL)
    assert commands(task)[2:] == [
        "make",
        "exec >&3 3>&- 2>&1",
        "set -x",
        "mvnd test -Dtest=A#b",
        "mvnd test -Dtest=A#c",
    ]
    assert "forms=maven " in (task.hidden.tests / "test.sh").read_text()


def test_without_the_package_or_with_one_that_has_no_lists_the_remedy_is_named(tmp_path, monkeypatch):
    for module in (None, ModuleType("swebench.harness.log_parsers")):
        monkeypatch.setitem(sys.modules, "swebench", module and ModuleType("swebench"))
        monkeypatch.setitem(sys.modules, "swebench.harness", module and ModuleType("swebench.harness"))
        monkeypatch.setitem(sys.modules, "swebench.harness.log_parsers", module)
        with pytest.raises(BadTask, match=r"log_parser is missing; pip install atropos-agent\[swebench\]"):
            tasks_of(tmp_path, MULTILINGUAL)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"log_parser": "parse_log_calypso"}, "log_parser 'parse_log_calypso' isn't known; known are parse_log_ant, "),
        ({"log_parser": ["parse_log_gotest"]}, "isn't known"),
        ({"eval_type": "fail_only"}, "eval_type fail_only takes a test that doesn't run for one that passes"),
        ({"eval_script": "go test"}, "eval_script has no >>>>> Start Test Output"),
        ({"test_patch": ""}, "test_patch is missing, and eval_script has one"),
        ({"FAIL_TO_PASS": ["a\nb"]}, "'a\\nb' is not the name of a test on one line"),
        ({"eval_script": None, "test_cmds": [1]}, "test_cmds must be a command or a list of commands"),
        ({"eval_script": None}, "test_cmd is missing, and the package swebench doesn't know the repository 'a/b'"),
        (
            {"eval_script": None, "repo": "caddyserver/caddy", "version": "1"},
            "test_cmd is missing, and swebench has no version '1'",
        ),
    ],
)
def test_a_row_that_can_not_be_read_is_refused_with_its_field(tmp_path, swebench, change, message):
    swebench.install()
    with pytest.raises(BadTask) as raised:
        tasks_of(tmp_path, V5 | {"repo": "a/b"} | change)
    assert message in str(raised.value)
    assert "rows.jsonl:1: caddyserver__caddy-6411" in str(raised.value)


def test_without_being_asked_for_such_rows_are_refused(tmp_path, capsys):
    with pytest.raises(BadTask, match=r"FAIL_TO_PASS: 'TestReplacerNew' .*--printed-results takes them for true"):
        tasks_of(tmp_path, V5, printed_results=False)
    convert = ["convert", "swebench", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]
    assert main([*convert, "--printed-results"]) == 0
    assert main(["convert", "functions", *convert[2:], "--printed-results"]) == 2
    assert "--printed-results is for rows of swe-gym, swe-smith, swebench" in capsys.readouterr().err


# The package is an extra of ours that brings much along; who converts such rows installs it.
@pytest.mark.skipif(find_spec("swebench") is None, reason="the package swebench is not there")
def test_every_row_of_the_multilingual_set_has_a_parser_but_one():
    from swebench.harness import constants, log_parsers

    languages = {repo for repo, kind in constants.MAP_REPO_TO_EXT.items() if kind not in ("py", "js")}
    unknown = {log_parsers.MAP_REPO_TO_PARSER[repo].__name__ for repo in languages} - PARSERS.keys()
    assert unknown == {"parse_log_doctest"}


# A repository whose runner is a script that prints as go does.
WRONG = "echo 3\n"
RIGHT = "echo 4\n"
CASES = 'check TestZero "$(echo 0)" 0\n'
MORE_CASES = 'check TestSum/two "$(. ./sum.sh)" 4\n'
RUNNER = """\
#!/bin/bash
failed=0
check() {
    if [ "$2" = "$3" ]; then echo "--- PASS: $1 (0.00s)"; else echo "--- FAIL: $1 (0.00s)"; failed=1; fi
}
. ./cases.sh
echo "--- FAIL: TestBroken (0.00s)"
[ $failed = 0 ] && printf 'ok  \\tsum\\t0.1s\\n' || printf 'FAIL\\tsum\\t0.1s\\n'
exit 1
"""
SHELL = {
    "repo": "owner/sum",
    "instance_id": "owner__sum-1",
    "problem_statement": "two and two are four",
    "patch": diff("sum.sh", WRONG, RIGHT),
    "test_patch": diff("cases.sh", CASES, CASES + MORE_CASES),
    "FAIL_TO_PASS": ["TestSum/two"],
    "PASS_TO_PASS": ["TestZero"],
    "rebuild_cmds": ["echo built > built; echo '--- FAIL: TestZero (0.00s)'"],
    "test_cmds": ["test -s built || exit 9", "./run.sh"],
    "log_parser": "parse_log_gotest",
}
PARSER = """\
def parser(log):
    words = {"PASS:": "pass", "FAIL:": "fail"}
    lines = [line.split() for line in log.splitlines() if line.startswith("---")]
    return {line[2]: words[line[1]] for line in lines}
"""
# What an image may have by which a program is run as nobody.
MEANS = {
    "python": "true",
    "setpriv": "rm -rf /usr/bin/python3* /usr/lib/python3*",
    "su": "rm -rf /usr/bin/python3* /usr/lib/python3* /usr/bin/setpriv",
    "nothing": "rm -rf /usr/bin/python3* /usr/lib/python3* /usr/bin/setpriv /bin/su /usr/bin/su",
}


async def image_of(backend: DockerBackend, context: Path, files: dict[str, str], build: str) -> str:
    for path, text in files.items():
        file = context / "repo" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (context / "Dockerfile").write_text(
        f"FROM atropos-agent/base:debian12\nRUN {build}\nWORKDIR /testbed\nCOPY repo/ /testbed/\n"
    )
    return await backend.ensure_image(None, context)


async def shell_image(backend: DockerBackend, tmp_path: Path, means: str) -> str:
    files = {"sum.sh": WRONG, "cases.sh": CASES, "run.sh": RUNNER}
    return await image_of(backend, tmp_path / means, files, MEANS[means])


@pytest.mark.long(12)
@pytest.mark.docker
@pytest.mark.parametrize("means", MEANS)
async def test_reference_solves_and_doing_nothing_does_not(docker_backend, tmp_path, means):
    image = await shell_image(docker_backend, tmp_path, means)
    own = {
        "instance_id": "own parser",
        "log_parser": PARSER,
        "print_cmds": ["cat log"],
        "test_cmds": ["./run.sh > log"],
    }
    wrong = [
        {"instance_id": "unknown test", "PASS_TO_PASS": ["TestNone"]},
        {"instance_id": "failing test", "PASS_TO_PASS": ["TestBroken"]},
        {"instance_id": "no such command", "test_cmds": ["go test"]},
        {"instance_id": "takes long", "test_cmds": ["timeout 1 sh -c './run.sh; sleep 9'"]},
        own | {"instance_id": "without python"},
    ]
    rows = [SHELL, SHELL | own, SHELL | own | {"instance_id": "of 0.1"}] if means == "python" else [SHELL]
    rows += [SHELL | change for change in (wrong[:4] if means == "python" else wrong[4:])]
    tasks = tasks_of(tmp_path, *(row | {"image": image} for row in rows))
    for task in tasks:
        if task.id == "of-0.1":  # its script looks for the image's Python where the verifier was then
            script = task.hidden.tests / "test.sh"
            script.write_text(script.read_text().replace("/verifier/python", "/judge/python"))
    async with DockerBackend() as backend:
        results = await check_tasks(backend, tasks)
    problems = {result.task_id: result.problem for result in results}
    expected = {
        "unknown-test": "(missing): TestNone",
        "failing-test": "(failed): TestBroken",
        "no-such-command": "exit status 127",
        "takes-long": "exit status 124",
        "without-python": "python3",
    }
    if means == "nothing":
        expected = dict.fromkeys(problems, "nothing can be run as nobody")
    for name, problem in problems.items():
        if name in expected:
            assert problem is not None and expected[name] in problem
        else:
            assert problem is None


# What is judged runs in the runner's shell; none of it gives 4.
CHEATS = {
    "prints what is looked for as well": "echo '--- PASS: TestSum/two (0.00s)'",
    "prints it where it is read": "echo '--- PASS: TestSum/two (0.00s)' >&2; echo 3",
    "prints it later": "(sleep 1; echo '--- PASS: TestSum/two (0.00s)' >&2) > /dev/null & echo 3",
    "prints another twice": "echo '--- PASS: TestZero (0.00s)' >&2; echo 4",
    "ends the runner": "echo '--- PASS: TestSum/two (0.00s)' >&2; kill -9 $PPID $$",
    "ends everything": "echo '--- PASS: TestSum/two (0.00s)' >&2; kill -9 -1",
    "ends early": "kill $$; echo 4",
    "keeps the reader waiting": "sleep 1000 > /dev/null & echo 3",
    "writes the reward": "echo 1 > /logs/verifier/reward.txt; echo 3",
    "empties what was printed": ": > /proc/self/fd/2; truncate -s 0 /tmp/tmp.*/output; echo 3",
    "reads the list": "cat /tests/listed >&2; cp /tests/listed /testbed/; echo 3",
    "takes the place of programs": (
        "for name in awk tail cat tar tr; do printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n'"
        " > $HOME/bin/$name; chmod +x $HOME/bin/$name; done; echo 3"
    ),
}


@pytest.mark.long(12)
@pytest.mark.docker
@pytest.mark.parametrize(
    "means, tried",
    [
        pytest.param("python", slice(0, None, 2), id="python"),
        pytest.param("setpriv", slice(1, None, 2), id="setpriv"),
        pytest.param("python", slice(None), id="python, all", marks=pytest.mark.slow),
        pytest.param("setpriv", slice(None), id="setpriv, all", marks=pytest.mark.slow),
    ],
)
async def test_no_cheat_is_rewarded_but_printing_alone(docker_backend, tmp_path, means, tried):
    cheats = dict(list(CHEATS.items())[tried])
    image = await shell_image(docker_backend, tmp_path, means)
    (task,) = tasks_of(tmp_path, SHELL | {"image": image})
    # Some images have programs in root's home.
    dockerfile = tmp_path / "out/owner__sum-1/environment/Dockerfile"
    first, rest = dockerfile.read_text().split("\n", 1)
    dockerfile.write_text(f"{first}\nENV PATH=/root/bin:$PATH\nRUN mkdir -p /root/bin\n{rest}")
    rewards = {}
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        tree = await CleanTree.read(backend, task, image)

        async def verdict(files: dict[str, str]):
            limited = replace(task, hidden=replace(task.hidden, timeout_s=60.0))
            return await judge(backend, limited, image, tree.written(files, mode=0o755))

        async def attempt(name: str, source: str) -> None:
            rewards[name] = (await verdict({"sum.sh": source + "\n"})).reward

        await a_few_at_a_time(attempt(name, source) for name, source in cheats.items())
        rewards["changes the tests"] = (
            await verdict({"cases.sh": "check TestZero 0 0\ncheck TestSum/two 4 4\n"})
        ).reward
        right = await verdict({"sum.sh": RIGHT})
        # What docs/reward.md says: what is printed alone can't be told from a result.
        printing = await verdict({"run.sh": "#!/bin/sh\nprintf -- '--- PASS: %s (0.00s)\\n' TestZero TestSum/two\n"})
    assert rewards == dict.fromkeys([*cheats, "changes the tests"], 0.0)
    assert (right.reward, printing.reward) == (1.0, 1.0)
    assert right.tests == {"TestSum/two": TestStatus.PASSED, "TestZero": TestStatus.PASSED}


# Real projects, by Debian's own compilers and runners.
REAL = {
    "go": dict(
        packages="golang-go",
        files={
            "go.mod": "module example.org/sum\n\ngo 1.19\n",
            "sum.go": "package sum\n\nfunc Sum(a, b int) int {\n\treturn a - b\n}\n",
            "other/other_test.go": 'package other\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {}\n',
            "sum_test.go": (
                'package sum\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {\n'
                '\tif Sum(0, 0) != 0 {\n\t\tt.Fatal("not 0")\n\t}\n}\n'
            ),
        },
        bug=("sum.go", "a - b", "a + b"),
        tests=(
            "sum_test.go",
            '\nfunc TestSum(t *testing.T) {\n\tt.Run("two", func(t *testing.T) {\n'
            '\t\tif Sum(2, 2) != 4 {\n\t\t\tt.Fatal("not 4")\n\t\t}\n\t})\n}\n',
        ),
        row={
            "test_cmds": "go test -v ./...",
            "log_parser": "parse_log_gotest",
            "FAIL_TO_PASS": ["TestSum", "TestSum/two"],
            "PASS_TO_PASS": ["TestZero"],
        },
    ),
    "node": dict(
        packages="nodejs",
        files={
            "package.json": '{"type": "module"}\n',
            "sum.js": "export const sum = (a, b) => a - b;\n",
            "test/sum.test.js": (
                "import test from 'node:test';\nimport assert from 'node:assert';\nimport { sum } from '../sum.js';\n\n"
                "test('adds nothing', () => assert.equal(sum(0, 0), 0));\n"
            ),
        },
        bug=("sum.js", "a - b", "a + b"),
        tests=("test/sum.test.js", "\ntest('adds two', () => assert.equal(sum(2, 2), 4));\n"),
        row={
            "test_cmds": ["node --test test/"],
            "log_parser": "parse_log_tap",
            "FAIL_TO_PASS": ["- adds two"],
            "PASS_TO_PASS": ["- adds nothing"],
        },
    ),
    "cargo": dict(
        packages="cargo",
        files={
            "Cargo.toml": '[package]\nname = "sum"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "pub fn sum(a: i64, b: i64) -> i64 {\n    a - b\n}\n",
            "tests/sums.rs": "use sum::sum;\n\n#[test]\nfn zero() {\n    assert_eq!(sum(0, 0), 0);\n}\n",
        },
        bug=("src/lib.rs", "a - b", "a + b"),
        tests=(
            "tests/sums.rs",
            "\nmod more {\n    #[test]\n    fn two() {\n        assert_eq!(sum::sum(2, 2), 4);\n    }\n}\n",
        ),
        row={
            "test_cmds": ["cargo test --no-fail-fast"],
            "log_parser": "parse_log_cargo",
            "FAIL_TO_PASS": ["more::two"],
            "PASS_TO_PASS": ["zero"],
        },
    ),
}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
@pytest.mark.parametrize("name", REAL)
async def test_real_projects(docker_backend, tmp_path, name, python):
    case = REAL[name]
    build = f"apt-get update && apt-get install -y --no-install-recommends {case['packages']}"
    build += "" if python else f" && {MEANS['setpriv']}"
    image = await image_of(docker_backend, tmp_path / "context", case["files"], build)
    file, wrong, right = case["bug"]
    source, tests = case["files"][file], case["files"][case["tests"][0]]
    row = {
        "image": image,
        "patch": diff(file, source, source.replace(wrong, right)),
        "test_patch": diff(case["tests"][0], tests, tests + case["tests"][1]),
        "rebuild_cmds": None,
    }
    async with DockerBackend() as backend:
        (result,) = await check_tasks(backend, tasks_of(tmp_path, SHELL | row | case["row"]))
    assert result.problem is None
