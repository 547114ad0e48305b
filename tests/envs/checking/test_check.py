"""Checking tasks: which may be used, and what is said of those that may not."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from task_formats import write
from turns import turn

import envs.swe
from envs.checking import check
from envs.checking.check import IN_DOUBT, check_tasks, render
from envs.checking.manifest import CheckResult
from envs.tasks.harbor import load_task, load_tasks
from envs.types import VERIFIER_TIMED_OUT, Task, TestStatus, Verdict
from sandboxes.base import DaemonUnavailable

STARTER = Path(envs.swe.__file__).parent / "starter"
ALL = sorted(path.parent.name for path in STARTER.glob("*/task.toml"))
SAMPLE = [ALL[turn(len(ALL))], ALL[turn(len(ALL)) - len(ALL) // 2]]


def make_task(root: Path, name: str, *, solve: str | None = "echo 1 > done", test: str = "test -e done") -> Path:
    files = {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Make a file named done.\n",
        "environment/Dockerfile": "FROM atropos-agent/base:debian12\nWORKDIR /app\n",
        "tests/test.sh": f"if {test}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    }
    return write(root / name, files if solve is None else {**files, "solution/solve.sh": f"{solve}\n"})


async def only(backend, directory, **options) -> CheckResult:
    (result,) = await check_tasks(backend, [load_task(directory)], **options)
    return result


@pytest.mark.docker
async def test_a_sample_of_the_starter_pack_can_be_used(docker_backend):
    seen = []
    tasks = [load_task(STARTER / name) for name in SAMPLE]
    results = await check_tasks(docker_backend, tasks, on_result=seen.append)
    assert [result.problem for result in results] == [None] * len(SAMPLE)
    assert [result.task_id for result in results] == list(SAMPLE)
    assert {(result.reference, result.nothing) for result in results} == {((1.0,), (0.0,))}
    assert [result.task_id for result in results if any("unwatched" in spot for spot in result.blind_spots)] == []
    assert len(seen) == len(SAMPLE)
    assert all(result.verifier_s > 0 and result.memory_mb > 0 and result.image_mb > 100 for result in results)


SKIPS = """\
import pytest

def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip)
    config.hook.pytest_deselected(items=[item for item in items if "manual" in item.name])
    items[:] = [item for item in items if "manual" not in item.name]
"""
SKIPPED = """\
import pytest

def test_done():
    assert open("/app/done").read() == "1\\n"

@pytest.mark.slow
def test_slow():
    assert 0

def test_manual():
    assert 0
"""


@pytest.mark.docker
async def test_what_a_suite_leaves_out_by_itself_is_not_demanded_once_the_reference_was_seen(docker_backend, tmp_path):
    directory = make_task(tmp_path, "skips", test="pytest -q /tests > /tmp/log")
    for name, text in (("conftest.py", SKIPS), ("test_it.py", SKIPPED)):
        (directory / "tests" / name).write_text(text)
    result = await only(docker_backend, directory)
    assert (result.problem, result.reference, result.nothing) == (None, (1.0,), (0.0,))
    assert list(json.loads(result.record)[0]["tests"]) == ["test_it.py::test_done"]


@pytest.mark.docker
async def test_tests_that_the_reference_passes_are_watched_though_it_fails_others(docker_backend, tmp_path):
    directory = make_task(tmp_path, "some", test="pytest -q /tests > /tmp/log || grep -q '1 passed' /tmp/log")
    (directory / "tests/test_it.py").write_text(SKIPPED)
    result = await only(docker_backend, directory)
    assert (result.problem, result.reference, result.nothing, result.watched) == (None, (1.0,), (0.0,), True)
    assert list(json.loads(result.record)[0]["tests"]) == ["test_it.py::test_done"]
    names = "test_it.py::test_manual, test_it.py::test_slow"
    assert result.blind_spots == (f"failed tests: the reference fails {names}; nobody is asked for them",)


@pytest.mark.docker
async def test_a_test_sh_may_end_before_its_tests_where_nothing_was_done(docker_backend, tmp_path):
    directory = make_task(tmp_path, "early")
    (directory / "tests/test.sh").write_text(
        "echo 0 > /logs/verifier/reward.txt\n[ -e done ] || exit 1\n"
        "python3 -m pytest -q /tests/test_it.py && echo 1 > /logs/verifier/reward.txt\n"
    )
    (directory / "tests/test_it.py").write_text("def test_it():\n    assert int(open('/app/done').read()) == 1\n")
    result = await only(docker_backend, directory)
    assert (result.problem, result.reference, result.nothing) == (None, (1.0,), (0.0,))


@pytest.mark.docker
@pytest.mark.parametrize(
    "options, said",
    [
        ({"solve": "echo oops; exit 4"}, "the reference is not rewarded. solve.sh ended with status 4: oops"),
        ({"solve": "exit 3"}, "the reference is not rewarded. solve.sh ended with status 3."),
        ({"test": "true"}, "an untouched tree is rewarded"),
    ],
    ids=["reference", "silent reference", "nothing"],
)
async def test_what_is_wrong_with_a_task_is_said(docker_backend, tmp_path, options, said):
    result = await only(docker_backend, make_task(tmp_path, "bad", **options))
    assert not result.ok
    assert said in result.problem


SERVES = """\
import http.server, os
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"forty-two")
if os.fork() == 0:
    http.server.HTTPServer(("127.0.0.1", 8123), Answers).serve_forever()
"""
ASKS = """\
from urllib.request import urlopen

def test_answer():
    assert urlopen("http://127.0.0.1:8123").read() == b"forty-two"
"""


@pytest.mark.docker
@pytest.mark.parametrize("watched", [True, False])
async def test_a_reference_whose_work_is_not_carried_is_judged_where_it_was_done(docker_backend, tmp_path, watched):
    pytest_runs = "python3 -m pytest -q /tests/test_it.py > /dev/null"
    outside = {"solve": "echo 1 > /opt/done", "test": "cd / && test -e opt/done"}
    runs = {"solve": f"cat > s.py <<'END'\n{SERVES}END\npython3 s.py > /dev/null 2>&1; sleep 1", "test": pytest_runs}
    directory = make_task(tmp_path, "placed", **(runs if watched else outside))
    (directory / "tests/test_it.py").write_text(ASKS if watched else "")
    result = await only(docker_backend, directory)
    assert (result.problem, result.reference, result.nothing) == (None, (1.0,), (0.0,))
    assert (result.watched, result.in_place) == (watched, True)
    assert result.blind_spots[-1].startswith("judged in place")
    assert [*json.loads(result.record or "[{}]")[0].get("tests", [])] == ["test_it.py::test_answer"] * watched


class Unasked:
    """A backend that is not asked for anything."""


async def test_no_image_is_built_for_a_task_without_a_reference(tmp_path):
    result = await only(Unasked(), make_task(tmp_path, "bare", solve=None))
    assert result.problem == "task bare has no solution/solve.sh; without a reference it can't be checked"


@pytest.fixture
def verdicts(monkeypatch):
    """Sets the verdicts on the reference and on the untouched tree, in their order; the last one stays."""

    def give(reference, nothing):
        def following(verdicts, said):
            left = list(verdicts)

            async def judge(backend, starts, task, image):
                verdict = left.pop(0) if len(left) > 1 else left[0]
                return (verdict, "") if said else verdict

            return judge

        monkeypatch.setattr(check, "solve", following(reference, True))
        monkeypatch.setattr(check, "do_nothing", following(nothing, False))

    return give


class Built:
    """A backend that has every image."""

    async def ensure_image(self, name, context):
        return "image"


def passing(*failed):
    """A verdict on two tests, without those that failed."""
    tests = {name: TestStatus.FAILED if name in failed else TestStatus.PASSED for name in ("one", "two")}
    return Verdict(float(not failed), "", tests)


SOUND, UNTOUCHED = passing(), passing("one", "two")


async def test_a_task_in_doubt_stays_in_use_if_the_trees_without_an_agents_code_agree(verdicts, tmp_path):
    verdicts([SOUND], [UNTOUCHED])
    directory = make_task(tmp_path, "fine")
    once, often = await only(Built(), directory), await only(Built(), directory, doubted={"fine"})
    assert (once.reference, once.nothing) == ((1.0,), (0.0,))
    assert (often.ok, often.reference, often.nothing) == (True, (1.0,) * IN_DOUBT, (0.0,) * IN_DOUBT)
    (kept,) = await check_tasks(Built(), [load_task(directory)], known={"fine": often}, doubted={"fine"})
    assert kept is often
    (again,) = await check_tasks(Built(), [load_task(directory)], known={"fine": once}, doubted={"fine"})
    assert again.reference == often.reference


@pytest.mark.parametrize(
    ("reference", "nothing", "repeats", "tests"),
    [
        ([SOUND, SOUND, passing("two"), SOUND], [UNTOUCHED], (3, 0), ("two",)),
        ([SOUND], [UNTOUCHED, UNTOUCHED, UNTOUCHED, passing("one")], (IN_DOUBT, 4), ("two",)),
        ([SOUND], [UNTOUCHED, replace(UNTOUCHED, reward=0.5)], (IN_DOUBT, 2), ()),
    ],
    ids=["reference", "untouched", "reward"],
)
async def test_two_verdicts_on_one_tree_that_disagree_end_the_check(
    verdicts, tmp_path, reference, nothing, repeats, tests
):
    verdicts(reference, nothing)
    result = await only(Built(), make_task(tmp_path, "shaky"), doubted={"shaky"})
    assert (result.ok, result.flaky, result.flaky_tests) == (False, True, tests)
    assert result.problem.startswith("repeats disagree: the task is flaky")
    assert (len(result.reference), len(result.nothing)) == repeats


async def test_a_time_that_ran_out_is_no_word_on_single_tests(verdicts, tmp_path):
    late = Verdict(0.0, "", {"one": TestStatus.MISSING}, {VERIFIER_TIMED_OUT: 1.0})
    verdicts([SOUND], [UNTOUCHED, late, UNTOUCHED])
    assert (await only(Built(), make_task(tmp_path, "fine"), repeats=3)).ok


@pytest.mark.docker
async def test_a_task_that_cannot_be_built_does_not_stop_the_others(docker_backend, tmp_path):
    broken = make_task(tmp_path, "broken")
    (broken / "environment/Dockerfile").write_text("FROM atropos-agent/base:debian12\nRUN exit 7\n")
    make_task(tmp_path, "fine")
    results = await check_tasks(docker_backend, load_tasks(tmp_path))
    assert [result.ok for result in results] == [False, True]


async def test_an_engine_that_is_gone_ends_the_check(tmp_path):
    class Backend:
        async def ensure_image(self, name, context):
            raise DaemonUnavailable("start it")

    with pytest.raises(DaemonUnavailable):
        await check_tasks(Backend(), [load_task(make_task(tmp_path, name)) for name in "abc"])


async def test_what_was_checked_before_is_checked_again_only_when_it_has_to_be(verdicts, tmp_path):
    verdicts([SOUND], [UNTOUCHED])
    directory = make_task(tmp_path, "fine")
    first = await only(Built(), directory)

    async def again(known, repeats=1):
        (found,) = await check_tasks(Built(), [load_task(directory)], known={"fine": known}, repeats=repeats)
        return found

    assert await again(first) is first
    twice = await again(first, repeats=2)
    assert (twice.ok, twice.reference, twice.nothing) == (True, (1.0, 1.0), (0.0, 0.0))
    assert (await again(replace(first, problem="no engine"))).ok
    flaky = replace(first, problem="repeats disagree", flaky=True)
    assert await again(flaky) is flaky
    (directory / "tests/more").write_text("x")
    assert (await again(flaky)).ok


COMPARED = {"tests": {"a": [], "b": [["a.py", 1, 0]]}, "unverified": []}
PRINTED = {"tags": ("printed-results",)}


@pytest.mark.parametrize(
    ("record", "watched", "options", "spots"),
    [
        ([COMPARED], True, {}, []),
        ([{**COMPARED, "unverified": ["a"]}], True, {}, ["forced tests: 1 of 2 compare with nothing that has decoys"]),
        ([], True, {}, ["forced tests: repeats called the tests differently, so none is asked for"]),
        ([COMPARED], False, {}, ["unwatched"]),
        ([COMPARED], False, PRINTED, ["printed results"]),
    ],
)
def test_what_a_tasks_tests_could_not_notice_is_named_by_class(record, watched, options, spots):
    seen = Verdict(1.0, "", evidence=[COMPARED])
    found = check._blind_spots(Task("one", "", **options), [seen], json.dumps(record) if record else "", watched)
    assert all(line.startswith(spot) for line, spot in zip(found, spots, strict=True))


GOOD = CheckResult("good", "", "", (1.0,), (0.0,), 1)


def shown(*results: CheckResult, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(render(results))
    return console.file.getvalue()


def test_the_table_names_what_is_wrong_and_why_in_full_width():
    assert shown(GOOD).strip() == "1 of 1 task can be used"
    line = "[error]: " + "x" * 50 + " the last word"
    text = shown(GOOD, CheckResult("bad", "", "", (), (), 2, "many lines\n" * 1000 + line))
    assert "1 of 2 tasks can be used" in text
    assert "bad" in text and line in text and "good" not in text
    assert "\x1b" not in shown(CheckResult("\x1b[31mred", "", "", (), (), 2, "\x1b]0;title\x07 and more"))


def test_what_tests_could_not_notice_is_shown_for_each_task():
    blind = replace(
        GOOD,
        task_id="blind",
        blind_spots=("forced tests: 5 of 9 compare with nothing that has decoys", "grader as root: [it] does"),
        unverified=("a.py::one", "a.py::two", "a.py::three", "a.py::four"),
    )
    text = shown(GOOD, blind, width=160)
    assert "2 of 2 tasks can be used; the tests of 1 can't notice every class of cheating" in " ".join(text.split())
    words = ("blind", "5 of 9", "[it]", "a.py::three", "and 1 more, in the manifest")
    assert all(word in text for word in words) and "good" not in text
