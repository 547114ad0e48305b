"""`tasks` on the command line."""

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import orjson
import programs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import rollout
from samples import task as sample
from scripted_engine import ScriptedEngine
from test_r2e import ROW as R2E_ROW

from envs.checking.attack import with_attack
from envs.checking.flakes import doubts_of
from envs.checking.manifest import Attack, CheckResult, read_manifest, write_manifest
from envs.judging.changes import Changes
from envs.judging.saved_changes import pack_changes
from envs.records.atif import to_atif
from envs.records.read import read_rollouts
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.swe.tasks import main
from envs.tasks.harbor import load_tasks
from envs.types import BadTasks


def make_task(root: Path, toml: str = "", name: str = "sample") -> None:
    """A Harbor task directory with what each must have."""
    for path, text in {
        "task.toml": toml,
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM scratch",
        "tests/test.sh": "true",
    }.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(text)


ROW = {
    "task_id": "HumanEval/1",
    "entry_point": "one",
    "prompt": "def one():\n",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


def test_converted_tasks_are_directories_that_every_command_takes(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    assert main(["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]) == 0
    assert [task.id for task in load_tasks(tmp_path / "out")] == ["HumanEval-1"]
    assert "holds 1 task" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n", "[]"])
def test_a_file_without_a_row_ends_it(tmp_path, capsys, text):
    path = tmp_path / ("rows.json" if text == "[]" else "rows.jsonl")
    path.write_text(text)
    assert main(["convert", "functions", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"{path} holds nothing to convert" in capsys.readouterr().err


def test_a_tag_that_no_task_has_ends_the_check_with_those_that_there_are(tmp_path, capsys):
    make_task(tmp_path, '[metadata]\ntags = ["one"]\n')
    assert main(["check", str(tmp_path), "--only", "typo"]) == 2
    assert "no task has one of the tags typo (--only); there are one" in capsys.readouterr().err


def test_rows_that_can_not_be_used_end_it_with_their_reason(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | {"test": ""}))
    assert main(["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]) == 2
    assert "rows.jsonl:1: test is missing or empty" in capsys.readouterr().err


def test_rows_that_can_not_be_used_may_be_left_out(tmp_path, capsys):
    bad = ROW | {"task_id": "HumanEval/2", "test": ""}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(bad)}\n")
    convert = ["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]
    assert main(convert) == 2
    assert "--skip-bad leaves them out" in capsys.readouterr().err
    assert main([*convert, "--skip-bad"]) == 0
    assert [task.id for task in load_tasks(tmp_path / "out")] == ["HumanEval-1"]
    said = capsys.readouterr()
    assert "holds 1 task" in said.out
    assert "rows.jsonl:2: test is missing or empty" in said.err


def two_tasks(root):
    """A task that can be used, and one that can't."""
    make_task(root, name="good")
    make_task(root, "[environment]\ngpus = 1\n", name="bad")


def test_a_check_may_leave_bad_tasks_out(tmp_path, capsys, monkeypatch):
    two_tasks(tmp_path)
    checked = []

    async def check(backend, tasks, **options):
        checked.extend(task.id for task in tasks)
        return []

    monkeypatch.setattr("envs.swe.tasks.check_tasks", check)
    monkeypatch.setattr("envs.swe.tasks.docker_backend", lambda hosts, base_image: nullcontext())
    assert main(["check", str(tmp_path)]) == 2
    assert "--skip-bad leaves them out" in capsys.readouterr().err
    assert checked == []
    assert main(["check", str(tmp_path), "--skip-bad"]) == 0
    assert "- task bad: task.toml: environment: gpus" in capsys.readouterr().err
    assert checked == ["good"]


def test_a_check_is_given_the_tasks_that_runs_put_in_doubt(tmp_path, capsys, monkeypatch):
    for name in ("shaky", "fine"):
        make_task(tmp_path / "tasks", name=name)
    work = (pack_changes(Changes(), 10**6),)
    untouched = [replace(rollout(of=sample(name), reward=reward), work=work) for name, reward in DRAWN]
    (tmp_path / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(to_atif(one)) + b"\n" for one in untouched))

    async def check(backend, tasks, doubted, on_result, **options):
        return [CheckResult(task.id, task.digest, "", (), (), 1, flaky=task.id in doubted) for task in tasks]

    monkeypatch.setattr("envs.swe.tasks.check_tasks", check)
    monkeypatch.setattr("envs.swe.tasks.docker_backend", lambda hosts, base_image: nullcontext())
    assert main(["check", str(tmp_path / "tasks"), "--seen", str(tmp_path)]) == 0
    assert "1 task in doubt: flaky 1, tests agreed 0" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "tasks"), "--seen", str(tmp_path / "none")]) == 2
    assert "none can't be read as a run" in capsys.readouterr().err


DRAWN = [("shaky", 1.0), ("shaky", 0.0), ("fine", 0.0), ("fine", 0.0), ("gone", 1.0), ("gone", 0.0)]
"""Rollouts' tasks and rewards. The last task is none of those that are checked."""
SOUND = CheckResult("good", "", "", (1.0,), (0.0,), 1)


@pytest.fixture
def without_docker(monkeypatch):
    """A check that finds every task sound, and an attack that is rewarded by the task `weak`."""

    async def check(backend, tasks, known, on_result, **options):
        for task in tasks:
            on_result(known.get(task.id) or CheckResult(task.id, task.digest, "", (1.0,), (0.0,), 1))
        return [known.get(task.id) or SOUND for task in tasks]

    async def attack(backend, tasks, results, on_result, **options):
        found = [
            with_attack(results[task.id], Attack("built-in", "exit", float(task.id == "weak"), task.id == "weak"))
            for task in tasks
        ]
        for result in found:
            on_result(result)
        return found

    monkeypatch.setattr("envs.swe.tasks.check_tasks", check)
    monkeypatch.setattr("envs.swe.tasks.attack_tasks", attack)
    monkeypatch.setattr("envs.swe.tasks.docker_backend", lambda hosts, base_image: nullcontext())


def test_a_large_manifest_is_not_written_for_each_task(tmp_path, without_docker, monkeypatch):
    clock, writes = Clock(), []

    def write(path, results):
        clock.now += 10
        write_manifest(path, results)
        writes.append(len(read_manifest(path)))

    monkeypatch.setattr("envs.checking.manifest.write_manifest", write)
    monkeypatch.setattr("envs.swe.tasks.time", clock)
    for number in range(9):
        make_task(tmp_path, name=f"task-{number}")
    for again, written in ((), [1, 9]), ((), []), (("--again",), []), (("--again", "--only", "task-3"), []):
        assert main(["check", str(tmp_path), *again]) == 0
        assert writes == written, "what was found before is there"
        writes.clear()


def test_a_second_check_of_some_tasks_keeps_what_is_known_of_others(tmp_path, without_docker):
    for name in ("one", "two"):
        make_task(tmp_path, name=name)
    assert main(["check", str(tmp_path)]) == 0
    assert main(["check", str(tmp_path), "--again", "--only", "one"]) == 0
    assert set(read_manifest(tmp_path / "manifest.json")) == {"one", "two"}
    (tmp_path / "manifest.json").write_text('{"version": 1, "tasks": {}}')
    assert main(["check", str(tmp_path)]) == 2
    assert main(["check", str(tmp_path), "--again", "--only", "one"]) == 0
    assert set(read_manifest(tmp_path / "manifest.json")) == {"one"}


def test_an_interrupted_check_keeps_what_it_found(tmp_path, monkeypatch, without_docker):
    monkeypatch.setattr("envs.swe.tasks.time", Clock())
    make_task(tmp_path, name="good")

    async def check(backend, tasks, on_result, **options):
        for name in ("good", "more"):
            on_result(replace(SOUND, task_id=name))
        raise KeyboardInterrupt

    monkeypatch.setattr("envs.swe.tasks.check_tasks", check)
    with pytest.raises(KeyboardInterrupt):
        main(["check", str(tmp_path)])
    assert set(read_manifest(tmp_path / "manifest.json")) == {"good", "more"}


class Clock:
    """A clock that stands still but for a write of a manifest."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_manifest_that_can_not_be_written_ends_a_check_before_it_begins(
    tmp_path, capsys, without_docker, monkeypatch
):
    make_task(tmp_path, name="good")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert main(["check", str(tmp_path)]) == 2
    assert "give another --manifest FILE" in capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()


def test_an_attack_checks_first_and_keeps_beside_that_what_was_rewarded(tmp_path, capsys, without_docker):
    make_task(tmp_path, name="good")
    assert main(["attack", str(tmp_path)]) == 0
    assert "0 of 1 task accepted a wrong patch; 1 attack tried" in capsys.readouterr().out
    make_task(tmp_path, name="weak")
    assert main(["attack", str(tmp_path)]) == 1
    kept = read_manifest(tmp_path / "manifest.json")
    assert {name: [one.name for one in result.accepts] for name, result in kept.items()} == {
        "good": [],
        "weak": ["exit"],
    }


def test_tasks_that_can_not_be_used_are_not_attacked(tmp_path, capsys, without_docker):
    make_task(tmp_path, name="weak")
    (task,) = load_tasks(tmp_path)
    write_manifest(tmp_path / "manifest.json", [CheckResult("weak", task.digest, "", (0.0,), (0.0,), 1, "why")])
    assert main(["attack", str(tmp_path)]) == 1, "nothing was attacked"
    said = capsys.readouterr()
    assert "0 of 0 tasks accepted a wrong patch" in said.out
    assert "1 task can't be used and won't be attacked" in said.err


def test_an_attack_of_the_starter_pack_leaves_no_file(capsys, without_docker, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["attack", "--only", "multifile"]) == 0
    assert "0 of 7 tasks accepted a wrong patch; 7 attacks tried" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["--openai.url=http://one", "--env.eval_sample=3"])
def test_options_of_an_attacking_model_are_read_as_those_of_an_evaluation(tmp_path, capsys, wrong, without_docker):
    make_task(tmp_path)
    assert main(["attack", str(tmp_path), wrong]) == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()


WEAK = "test -e done && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"


def cheats(prompt):
    """Does what a model does that was asked not to do the work."""
    assert "Do NOT do what it asks" in prompt
    if "<tool_response>" in prompt.rsplit("<|im_start|>user\n", 1)[1]:
        return "It is rewarded."
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': 'echo wrong > done'}})}</tool_call>"


@pytest.mark.docker
def test_what_a_model_achieved_stands_in_the_manifest_and_its_rollouts_are_kept(
    docker_backend, smollm2_tokenizer, tokenizer_folder, tmp_path
):
    for name, test in (("weak", "test -e done"), ("strong", '[ "$(cat done)" = 1 ]')):
        make_task(tmp_path / "tasks", name=name)
        folder = tmp_path / "tasks" / name
        (folder / "environment/Dockerfile").write_text("FROM atropos-agent/base:debian12\nWORKDIR /app\n")
        (folder / "tests/test.sh").write_text(WEAK.replace("test -e done", test))
        (folder / "solution").mkdir()
        (folder / "solution/solve.sh").write_text("echo 1 > done\n")
    with ScriptedEngine(cheats, smollm2_tokenizer, root=tokenizer_folder) as engine:
        asked = ["tasks", "attack", tmp_path / "tasks", f"--openai.base_url={engine.url}", "--env.eval_samples=2"]
        done = programs.run(["-m", "envs.swe", *map(str, asked), f"--env.run_dir={tmp_path / 'run'}"], env=os.environ)
    assert done.returncode == 1, done.stderr
    assert "1 of 2 tasks accepted a wrong patch; 4 attacks tried" in done.stdout
    kept = read_manifest(tmp_path / "tasks/manifest.json")
    assert {(one.name, one.reward) for one in kept["strong"].attacks} == {("attempt 1", 0.0), ("attempt 2", 0.0)}
    assert sorted(one.name for one in kept["weak"].accepts) == ["attempt 1", "attempt 2"]
    assert {one.by for one in kept["weak"].attacks} == {"scripted"}
    assert all("+wrong" in one.patch for one in kept["weak"].accepts)
    assert len(list(read_rollouts(tmp_path / "run"))) == 4


TESTED = """\
import pytest
from answer import answer
{shaky}
@pytest.mark.parametrize("n", [1, 2, 3, 4], ids="abcd")
def test_answer(n):
    {call}
    assert answer(n) == n * n
"""
GUESS = "import random\ndef answer(n): return random.choice([n * n, 0])\n"


def guesses(prompt):
    """Writes code that is right at random, if it is asked for code. The same code each time."""
    if "Write answer.py" not in prompt or "<tool_response>" in prompt.rsplit("<|im_start|>user\n", 1)[1]:
        return "It is done."
    call = {"name": "terminal", "arguments": {"command": f"printf {GUESS!r} > answer.py"}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


@pytest.mark.docker
def test_flaky_tests_seen_in_a_run_exclude_their_task_and_an_agents_random_code_does_not(
    docker_backend, smollm2_tokenizer, tokenizer_folder, tmp_path, monkeypatch, capsys
):
    for name, said in (("shaky", "Rest."), ("sound", "Write answer.py.")):
        make_task(tmp_path / "tasks", name=name)
        folder = tmp_path / "tasks" / name
        (folder / "instruction.md").write_text(said)
        (folder / "environment/Dockerfile").write_text(
            "FROM atropos-agent/base:debian12\nWORKDIR /app\nRUN echo 'def answer(n): return -1' > answer.py\n"
        )
        (folder / "tests/test.sh").write_text(
            "python3 -m pytest -q /tests/test_it.py && n=1 || n=0\necho $n > /logs/verifier/reward.txt\n"
        )
        shaky = "import random\n" if name == "shaky" else ""
        call = "if random.random() < 0.5: return" if name == "shaky" else "pass"
        (folder / "tests/test_it.py").write_text(TESTED.format(shaky=shaky, call=call))
        (folder / "solution").mkdir()
        (folder / "solution/solve.sh").write_text("echo 'def answer(n): return n * n' > answer.py\n")
    with ScriptedEngine(guesses, smollm2_tokenizer, root=tokenizer_folder) as engine:
        options = [f"--openai.base_url={engine.url}", f"--env.tasks={tmp_path / 'tasks'}", "--env.eval_samples=4"]
        options += [f"--env.run_dir={tmp_path / 'run'}"]
        done = programs.run(["-m", "envs.swe", "evaluate", *options], env=os.environ)
    assert done.returncode == 0, done.stderr
    assert set(doubts_of([tmp_path / "run"])) == {"shaky", "sound"}
    monkeypatch.setattr("envs.checking.check.IN_DOUBT", 4)
    assert main(["check", str(tmp_path / "tasks"), "--seen", str(tmp_path / "run")]) == 1
    assert "2 tasks in doubt: flaky 1, tests agreed 1" in capsys.readouterr().out
    kept = read_manifest(tmp_path / "tasks/manifest.json")
    assert (kept["sound"].ok, kept["sound"].reference) == (True, (1.0,) * 4)
    assert kept["shaky"].flaky and set(kept["shaky"].flaky_tests) <= {f"test_it.py::test_answer[{n}]" for n in "abcd"}
    train, _ = SWEEnv.load_tasks(SWEEnvConfig(tasks=str(tmp_path / "tasks")))
    assert [task.id for task in train] == ["sound"]


def test_a_run_leaves_bad_tasks_out_unless_it_is_to_refuse_them(tmp_path, caplog):
    two_tasks(tmp_path)
    train, _ = SWEEnv.load_tasks(SWEEnvConfig(tasks=str(tmp_path)))
    assert [task.id for task in train] == ["good"]
    assert "- task bad: task.toml: environment: gpus" in caplog.text
    with pytest.raises(BadTasks, match="1 task in"):
        SWEEnv.load_tasks(SWEEnvConfig(tasks=str(tmp_path), bad_tasks="refuse"))


def test_a_format_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "paper", "rows", "--out", "out"])
    assert "invalid choice: 'paper'" in capsys.readouterr().err


PATCH = "diff --git a/adder.py b/adder.py\n--- a/adder.py\n+++ b/adder.py\n@@ -1 +1 @@\n-wrong = 1\n+right = 1\n"
ADDED = """\
diff --git a/tests/test_a.py b/tests/test_a.py
new file mode 100644
--- /dev/null
+++ b/tests/test_a.py
@@ -0,0 +1 @@
+def test_a(): ...
"""
# A row of each set on the hub, with the fields and types of its Parquet files.
GYM_ROW = {
    "instance_id": "owner__adder-1",
    "hints_text": "",
    "patch": PATCH,
    "test_patch": ADDED,
    "created_at": "2024-01-01 00:00:00",
    "problem_statement": "adder is wrong",
    "repo": "owner/adder",
    "base_commit": "1" * 40,
    "version": "1.0",
    "PASS_TO_PASS": [],
    "FAIL_TO_PASS": ["tests/test_a.py::test_a"],
}
SMITH_ROW = {name: GYM_ROW[name] for name in ("instance_id", "repo", "patch", "FAIL_TO_PASS", "PASS_TO_PASS")} | {
    "image_name": "swesmith.x86_64.owner_1776_adder.12345678",
    "problem_statement": "adder is wrong",
}
REBENCH_ROW = GYM_ROW | {
    "image_name": "docker.io/swerebenchv2/owner-adder:1",
    "language": "python",
    "install_config": {"install": ["pip install ."], "log_parser": "parse_log_pytest", "test_cmd": ["pytest -rA"]},
}
GO_ROW = REBENCH_ROW | {
    "instance_id": "owner__goer-1",
    "language": "go",
    "FAIL_TO_PASS": ["TestA"],
    "test_patch": ADDED.replace("test_a.py", "a_test.go"),
    "install_config": {"install": [], "log_parser": "parse_log_gotest", "test_cmd": ["go test -v ./..."]},
}


def parquet(path, *rows):
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


@pytest.mark.parametrize(
    ("name", "row", "image"),
    [
        ("swe-gym", GYM_ROW, "xingyaoww/sweb.eval.x86_64.owner_s_adder-1:latest"),
        ("swe-smith", SMITH_ROW, "swesmith.x86_64.owner_1776_adder.12345678"),
        ("swe-rebench-v2", REBENCH_ROW, "docker.io/swerebenchv2/owner-adder:1"),
        ("r2e-gym", R2E_ROW, R2E_ROW["docker_image"]),
    ],
)
def test_a_published_set_is_converted_from_a_copy_of_its_parquet(tmp_path, capsys, name, row, image):
    copy = parquet(tmp_path / "train-00000-of-00001.parquet", row)
    assert main(["get", name, "--from", str(copy), "--out", str(tmp_path / "out")]) == 0
    (task,) = load_tasks(tmp_path / "out")
    assert f"FROM {image}\n" in (task.context / "Dockerfile").read_text()
    assert "holds 1 task" in capsys.readouterr().out
    assert json.loads((tmp_path / "out/source.json").read_text())["set"] == name


def test_a_published_sets_unusable_rows_are_left_out_and_listed_in_a_file(tmp_path, capsys):
    others = [GO_ROW | {"instance_id": f"owner__goer-{number}"} for number in range(20)]
    copy = parquet(tmp_path / "rows.parquet", REBENCH_ROW, *others)
    get = ["get", "swe-rebench-v2", "--from", str(copy), "--out", str(tmp_path / "out")]
    assert main(get) == 0
    said = capsys.readouterr().err
    assert said.startswith("20 rows in ")
    assert len(said.splitlines()) == 12
    assert (tmp_path / "out/left-out.txt").read_text().count("--printed-results") == 20
    assert main([*get, "--printed-results"]) == 0
    assert len(load_tasks(tmp_path / "out")) == 21


def test_what_is_sound_by_an_earlier_check_is_said(tmp_path, capsys):
    make_task(tmp_path / "copy", name="one")
    make_task(tmp_path / "copy", name="two")
    get = ["get", "terminal-bench-2", "--from", str(tmp_path / "copy"), "--out", str(tmp_path / "out")]
    assert main(get) == 0
    one = load_tasks(tmp_path / "out")[0]
    results = [CheckResult("one", one.digest, "", (1.0,), (0.0,), 1), CheckResult("two", "old", "", (1.0,), (0.0,), 1)]
    write_manifest(tmp_path / "out/manifest.json", results)
    assert main(get) == 0
    assert "holds 2 tasks" in (said := capsys.readouterr().out)
    assert "1 sound by manifest.json; `tasks check` tells" in " ".join(said.split())
