"""What runners of other languages print, and the verdict on it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from envs.tasks.adapters.directory import INSIDE
from envs.tasks.adapters.printed import PARSERS

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
