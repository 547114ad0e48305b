"""What pytest and unittest are seen to run, however they are called."""

import os
import re
import sys
from xml.etree import ElementTree

import pytest

SOLUTION = {"solution.py": "def f(x):\n    return x + x\n"}
TEST = "from solution import f\n\ndef test_it():\n    assert f(3) == 6\n"
CASE = (
    "import unittest\nfrom solution import f\nclass Cases(unittest.TestCase):\n    def test_it(self):\n"
    '        """It doubles."""\n        self.assertEqual(f(3), 6)\n    def test_sub(self):\n'
    "        for x in (1, 2):\n            with self.subTest(x=x):\n                self.assertEqual(f(x), x * 2)\n"
    "    @unittest.skip('no')\n    def test_skip(self): pass\n    @unittest.expectedFailure\n"
    "    def test_expected(self): self.fail()\nif __name__ == '__main__':\n    unittest.main()\n"
)
ROWS = """\
import pytest

@pytest.mark.parametrize("x, twice", [(4, 8), (0.5, 1.0), ("a", "aa"), (1, 2), (1, 2), ([1], [1, 1]), (b"a", b"aa"),
    pytest.param("\\n\\u20ac", "\\n\\u20ac" * 2), pytest.param(7, 14, id="seven"), (None, None)])
def test_f(x, twice):
    assert (x and x * 2) == twice
"""


@pytest.mark.parametrize(
    "command",
    ["-m pytest tests/test_a.py::test_it", "-X utf8 -mpytest -q --import-mode=importlib", "run.py", "start.py"],
)
async def test_however_pytest_is_called_its_tests_are_seen(judged, command):
    run = "import sys, pytest\nsys.exit(pytest.main(['tests', '-q']))\n"
    start = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-m', 'pytest', 'tests']))\n"
    files = {**SOLUTION, "tests/test_a.py": TEST, "run.py": run, "start.py": start}
    seen = await judged(files, command)
    assert (seen.status, seen.problem) == (0, None), seen.output
    assert [name.rpartition("/")[2] for name in seen.tests] == ["test_a.py::test_it"]
    assert set(seen.tests.values()) == {"passed"}
    assert seen.outcome.evidence["unverified"] == []


@pytest.mark.parametrize("command", ["-m unittest -v test_a", "-m unittest discover", "test_a.py", "-m pytest -q"])
async def test_however_unittest_is_called_its_tests_are_seen(judged, command):
    seen = await judged({**SOLUTION, "test_a.py": CASE}, command, record={"reference": True})
    assert (seen.status, seen.problem) == (0, None), seen.output
    assert {name.rpartition("::")[2]: what for name, what in seen.tests.items()} == {
        "test_it": "passed",
        "test_sub": "passed",
        "test_skip": "skipped",
        "test_expected": "skipped",
    }


OWN = """\
import sys, unittest
class Own:
    shouldStop = False
    def startTest(self, test): pass
    stopTest = stopTestRun = startTestRun = startTest
    def addSuccess(self, test): print("own")
    def addError(self, test, error): print(error)
    addFailure = addError
class Derived(unittest.TestResult):
    def addSuccess(self, test, details=None): print("derived")
class Case(unittest.TestCase):
    def run(self, result):
        result.startTest(self)
        self.test_it()
        result.addSuccess(self, **{"details": None} if type(result) is Derived else {})
        result.stopTest(self)
class Placeholder:
    def __call__(self, result):
        result.startTest(self)
        result.addSuccess(self)
        result.stopTest(self)
import test_a
class Others(Case, test_a.Cases): pass
Others.__qualname__, Others.__module__ = "Cases", "test_a"
result = {"own": Own, "derived": Derived}[sys.argv[1]]()
tests = test_a.Cases if sys.argv[2] == "unittests" else Others
unittest.TestSuite([Placeholder(), tests("test_it")]).run(result=result, debug=False)
"""


@pytest.mark.parametrize("result", ["own", "derived"])
@pytest.mark.parametrize("tests", ["unittests", "others"])
async def test_results_and_tests_of_other_frameworks_are_seen(judged, result, tests):
    """As nose2 and stestr have results of their own, and trial and testtools ones that are derived."""
    case = CASE.partition("    def test_sub")[0]
    seen = await judged({**SOLUTION, "test_a.py": case, "run.py": OWN}, f"run.py {result} {tests}")
    assert f"{result}\n" in seen.output
    assert (seen.status, seen.problem, seen.tests) == (0, None, {"test_a.py::Cases::test_it": "passed"}), seen.output
    liar = {"solution.py": "class Liar:\n    def __eq__(self, other): return True\ndef f(x): return Liar()\n"}
    forced = await judged({**liar, "test_a.py": case, "run.py": OWN}, f"run.py {result} {tests}")
    assert forced.tests == {"test_a.py::Cases::test_it": "failed"}


FORKS = """\
import multiprocessing, unittest
class Cases(unittest.TestCase):
    def test_one(self):
        from solution import f
        both.wait(20)
        self.assertEqual(f(3), 6)
        both.wait(20)
    def test_two(self):
        from solution import f
        both.wait(20)
        self.assertEqual(f(5), 10)
        both.wait(20)
def run(name):
    assert unittest.TestSuite([Cases(name)]).run(unittest.TestResult()).wasSuccessful()
if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    both = fork.Barrier(2)
    unittest.TestSuite().run(unittest.TestResult())
    __verifier__.begin()
    workers = [fork.Process(target=run, args=(name,)) for name in ("test_one", "test_two")]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
"""


async def test_tests_that_forked_processes_run_at_the_same_time_are_told_apart(judged):
    """As Django's runner has them with --parallel."""
    seen = await judged({**SOLUTION, "test_a.py": FORKS}, "test_a.py")
    assert seen.tests == {"test_a.py::Cases::test_one": "passed", "test_a.py::Cases::test_two": "passed"}, seen.output
    assert seen.outcome.evidence["unverified"] == []


async def test_failed_tests_of_unittest_are_seen_to_fail(judged):
    wrong = await judged({"solution.py": "def f(x):\n    return x\n", "test_a.py": CASE}, "test_a.py")
    assert (wrong.status, set(wrong.tests.values())) == (1, {"failed", "skipped"})


async def test_ids_reports_and_names_are_the_authors_own(judged, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/test_a.py").write_text(ROWS)
    command = "-m pytest -q -rA -p no:cacheprovider --junitxml=r.xml"
    seen = await judged({"here/test_a.py": ROWS}, f"{command} here")
    cases = ElementTree.parse(tmp_path / "r.xml").getroot().iter("testcase")
    reported = [case.get("name") for case in cases]
    printed = re.findall(r"^PASSED here/(.*)$", seen.output, re.MULTILINE)
    plain = await judged({}, f"{command} plain")
    assert re.findall(r"^PASSED plain/(.*)$", plain.output, re.MULTILINE) == printed
    assert [name.removeprefix("here/") for name in seen.tests] == printed
    assert reported == [case.get("name") for case in ElementTree.parse(tmp_path / "r.xml").getroot().iter("testcase")]
    assert seen.problem is None


PARTS = """\
import pytest, unittest
from solution import f

@pytest.mark.parametrize("odd", ["skip", "xfail", "fail", None])
def test_parts(subtests, odd):
    for x in (1, 2, 3):
        with subtests.test(x=x):
            if x == 2 and odd is not None:
                getattr(pytest, odd)("odd")
            assert f(x) == x + x

class Case(unittest.TestCase):
    def test_skip(self):
        for x in (1, 2, 3):
            with self.subTest(x=x):
                if x == 2:
                    self.skipTest("odd")
                self.assertEqual(f(x), x + x)
"""


async def test_a_test_passes_whose_part_is_skipped_or_fails_as_expected(judged):
    seen = await judged({**SOLUTION, "test_a.py": PARTS}, "-m pytest -q -rA -p no:cacheprovider")
    printed = re.findall(r"^PASSED test_a.py::(.*)$", seen.output, re.MULTILINE)
    assert printed == [name.removeprefix("test_a.py::") for name, what in seen.tests.items() if what == "passed"]
    assert {"test_parts[skip]", "test_parts[xfail]", "test_parts[None]"} <= set(printed)
    assert seen.tests["test_a.py::test_parts[fail]"] == "failed"


@pytest.mark.parametrize("command", ["-m pytest -q", "-m unittest test_a", "-m unittest discover", "test_a.py"])
async def test_an_end_before_the_first_test_is_seen_of_each_runner(judged, command):
    status = int("discover" in command)  # the status that it ends with changes nothing
    seen = await judged({"solution.py": f"import os\nos._exit({status})\n", "test_a.py": CASE}, command)
    assert (seen.status, seen.sign) == (status, "ended its tests early")


@pytest.mark.parametrize("command", ["-m unittest test_a", "test_a.py"])
async def test_code_that_can_not_be_imported_fails_its_tests_and_is_no_sign(judged, command):
    seen = await judged({"test_a.py": CASE}, command)
    assert (seen.status, seen.sign) == (1, None)
    assert seen.problem is not None and seen.problem != "nothing was seen"


async def test_a_process_that_imports_hidden_modules_beside_a_runner_changes_nothing(judged):
    """As a child of `multiprocessing` does, which never ends as programs do."""
    child = (
        "    def test_child(self):\n        run = 'import test_a, os; os._exit(0)'\n        import subprocess, sys\n"
    )
    child += "        self.assertEqual(subprocess.call([sys.executable, '-c', run]), 0)\n"
    case = CASE.replace("    def test_sub", child + "    def test_sub")
    seen = await judged({**SOLUTION, "test_a.py": case}, "test_a.py", record={"reference": True})
    assert (seen.status, seen.problem) == (0, None), seen.output


async def test_output_arguments_input_and_descriptors_are_the_callers_own(judged):
    test = (
        "import os, sys\ndef test_it():\n    assert os.environ['PYTHONPATH'].endswith(':.')\n"
        "    assert len(os.listdir('/proc/self/fd')) < 20\n    assert sys.argv[1:] == ['-q', '-s', 'test_a.py']\n"
        "    print('said by the test')\n"
    )
    seen = await judged({"test_a.py": test}, "-m pytest -q -s test_a.py")
    assert seen.problem is None, seen.output
    assert "said by the test" in seen.output and "verifier" not in seen.output


async def test_a_virtual_environment_that_the_tests_make_has_the_images_pytest(judged, tmp_path):
    run = (
        "import os, subprocess, sys\nnowhere = {**os.environ, 'HOME': '/nowhere', 'PYTHONWARNINGS': 'error'}\n"
        "subprocess.run([sys.executable, '-m', 'venv', '--without-pip', 'v'], env=nowhere, check=True)\n"
        "sys.exit(subprocess.call(['v/bin/pytest', '-q', 'test_a.py'], env=nowhere))\n"
    )
    seen = await judged({**SOLUTION, "test_a.py": TEST, "run.py": run}, "run.py")
    assert (seen.status, seen.problem) == (0, None), seen.output
    assert "1 passed" in seen.output and "arn" not in seen.output
    [shared] = tmp_path.glob("v/lib/python3*/site-packages/verifier.pth")
    folders = [line for line in shared.read_text().splitlines() if not line.startswith("import ")]
    assert folders and all(map(os.path.isdir, folders))


async def test_a_process_that_runs_no_tests_tells_nothing(judged):
    seen = await judged({**SOLUTION, "run.py": "import solution, unittest.mock\n"}, "run.py")
    assert (seen.status, seen.calls, seen.outcome) == (0, [], None)


async def test_without_a_door_tests_run_all_the_same(judged, tmp_path):
    run = f"import os, subprocess\nopen('{tmp_path}/.hook/port', 'w').write('1')\n"
    run += f"raise SystemExit(subprocess.call(['{sys.executable}', '-m', 'pytest', '-q', 'test_a.py']))\n"
    seen = await judged({**SOLUTION, "test_a.py": TEST, "run.py": run}, "run.py")
    assert (seen.status, seen.outcome) == (0, None)


RETRIES = """
import copy
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    for attempt in (1, 2):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            %s
            item.ihook.pytest_runtest_logreport(report=report)
            if report.outcome == "rerun":
                break
        else:
            return True
"""
FLAKY = "import solution\ndef test_flaky():\n    solution.runs += 1\n    assert solution.runs > 1\n"


@pytest.mark.parametrize(
    "done",
    [  # by pytest-rerunfailures to version 15, and by pytest-retry
        'report.outcome = "rerun" if report.failed else report.outcome',
        'if report.failed:\n                again = copy.copy(report); again.outcome = "retried"; '
        'item.ihook.pytest_runtest_logreport(report=again); report.outcome = "passed"',
    ],
    ids=["begun anew", "called anew"],
)
async def test_a_test_that_passes_at_another_attempt_has_passed(judged, done):
    seen = await judged({"solution.py": "runs = 0\n", "test_a.py": FLAKY, "conftest.py": RETRIES % done})
    assert (seen.status, seen.problem, seen.tests) == (0, None, {"test_a.py::test_flaky": "passed"}), seen.output


async def test_tests_of_a_process_that_began_in_a_folder_that_is_gone_are_seen(judged, tmp_path):
    whole = "os.environ['PYTHONPATH'] = ':'.join(map(os.path.abspath, os.environ['PYTHONPATH'].split(':')))\n"
    gone = f"import os, subprocess, sys\n{whole}os.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')\n"
    run = gone + f"sys.exit(subprocess.call([sys.executable, {str(tmp_path / 'test_a.py')!r}]))\n"
    files = {**SOLUTION, "test_a.py": CASE, "run.py": run}
    seen = await judged(files, "run.py", record={"reference": True})
    assert (seen.status, seen.problem, len(seen.tests)) == (0, None, 4), seen.output


async def test_workers_of_xdist_may_be_ended_once_their_session_is_finished(judged):
    """As the controller does on a busy machine."""
    end = "import os\ndef pytest_unconfigure(config):\n    hasattr(config, 'workerinput') and os._exit(0)\n"
    command = "-m pytest -c /dev/null --rootdir . -p xdist.plugin -n 1"
    seen = await judged({**SOLUTION, "test_a.py": TEST, "conftest.py": end}, command)
    assert (seen.status, seen.problem, seen.tests) == (0, None, {"test_a.py::test_it": "passed"}), seen.output


async def test_a_failed_test_shows_its_line_and_what_it_compared(judged):
    seen = await judged({"solution.py": "def f(x):\n    return None\n", "test_a.py": TEST})
    assert "test_a.py:4: AssertionError" in seen.output
    assert "assert None == one of " in seen.output and " where " not in seen.output
