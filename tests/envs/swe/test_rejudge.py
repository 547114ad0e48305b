"""A run's rollouts are judged again without a model: the same verdicts, or exactly those that should change."""

import asyncio
import itertools
import shutil
from types import SimpleNamespace

import orjson
import pytest
from otlp_receiver import OTLPReceiver
from readers import reading_only, shared_folder
from scripted_engine import ScriptedEngine

from envs.checking.manifest import CheckResult, write_manifest
from envs.options import EngineConfig
from envs.records.read import read_rollouts
from envs.running.commands import process_groups
from envs.swe import STARTER
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.swe.parsers import rejudge_parser
from envs.swe.rejudge import main, read_setting
from envs.tasks.harbor import load_task

COMMANDS = {
    "greeting.txt": [
        "echo hello world > greeting.txt",
        "printf 'hello world' > greeting.txt",
        "echo hi > greeting.txt",
    ],
    "first.txt": ["head -1 log.txt > first.txt; echo more >> log.txt; env | grep TRACEPARENT", "true"],
}


def policy():
    """Runs the commands of a task one after the other, a rollout each, then says that it is done."""
    cycles = {name: itertools.cycle(commands) for name, commands in COMMANDS.items()}

    def reply(prompt):
        asked = prompt.rsplit("<|im_start|>user", 1)[1]
        if "<tool_response>" in asked or "exit" in asked:
            return "Done."
        (command,) = (next(commands) for name, commands in cycles.items() if name in asked)
        return f'<tool_call>{{"name": "terminal", "arguments": {{"command": "{command}"}}}}</tool_call>'

    return reply


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("create-greeting", "first-line"):
        shutil.copytree(STARTER / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def run(tasks, base_image, smollm2_tokenizer, tokenizer_folder, tmp_path_factory):
    """A run of six rollouts, with the spans that it sent."""
    with ScriptedEngine(policy(), smollm2_tokenizer) as engine, OTLPReceiver() as receiver:
        config = SWEEnvConfig(
            tasks=str(tasks),
            base_image=base_image,
            group_size=3,
            total_steps=2,
            tokenizer_name=tokenizer_folder,
            run_dir=tmp_path_factory.mktemp("run") / "run",
            otlp_url=receiver.url,
            tools=["terminal"],
        )
        asyncio.run(process_groups(SWEEnv(config, [EngineConfig(base_url=engine.url, model_name="scripted")])))
        yield SimpleNamespace(path=config.run_dir, spans=receiver)


def again(run, capsys, *options):
    """What `rejudge` says of a run, by rollout."""
    out = run.path / "again.jsonl"
    out.unlink(missing_ok=True)
    status = main([str(run.path), "--out", str(out), *map(str, options)])
    told = capsys.readouterr()
    lines = [orjson.loads(line) for line in out.read_bytes().splitlines()] if out.exists() else []
    return SimpleNamespace(
        status=status, said=told.out, errors=told.err, lines={line["rollout"]: line for line in lines}
    )


@pytest.mark.docker
def test_rollouts_carry_under_what_and_what_was_made(run):
    saved = list(read_rollouts(run.path))
    assert len(saved) == 6
    assert {one.verdict.solved for one in saved} == {True, False}
    for one in saved:
        assert one.result.conditions.model == "scripted"
        assert [tool["function"]["name"] for tool in one.result.conditions.tools] == ["terminal"]
        assert one.result.conditions.sampling["temperature"] == 1.0
        assert len(one.work) == 1
    hello = [one for one in saved if "+++ b/greeting.txt\n@@ -0,0 +1 @@\n+hello world\n" in one.verdict.patch]
    assert len(hello) == 2
    assert any("--- a/log.txt\n+++ b/log.txt\n" in one.verdict.patch for one in saved)
    assert any("AssertionError" in one.verdict.output for one in saved)


@pytest.mark.docker
def test_a_rollouts_spans_are_a_tree_in_which_each_lies_within_its_parent(run):
    roots = run.spans.roots
    assert len(roots) == 6
    saved = {one.id: one for one in read_rollouts(run.path)}
    for root in roots:
        below = run.spans.below(root)
        assert all(root.start <= span.start <= span.end <= root.end for span in below)
        names = [span.name for span in below]
        opened = ["sandbox image", "sandbox start tree", "verifier open", "sandbox open"]
        closed = ["sandbox changes", "sandbox close", "verifier", "verifier close"]
        assert names == [*opened, "turn 0", "turn 1", *closed]
        turn = run.spans.below(root)[4]
        assert [span.name for span in run.spans.below(turn)] == ["chat scripted", "execute_tool terminal"]
        one = saved[root.told["gen_ai.conversation.id"]]
        assert root.told["atropos.reward"] == one.reward.value
        assert root.told["gen_ai.usage.output_tokens"] == sum(step.completion_tokens for step in one.result.steps)
        assert root.told["atropos.task.id"] == one.task_id
        assert root.events == ["gen_ai.evaluation.result"]


@pytest.mark.docker
def test_a_command_in_the_sandbox_is_told_its_trace(run):
    told = [
        message["content"]
        for one in read_rollouts(run.path)
        for message in one.result.messages
        if "TRACEPARENT=" in message["content"] and message["role"] != "assistant"
    ]
    traces = {root.trace.hex() for root in run.spans.roots}
    assert len(told) == 2
    assert all(text.split("TRACEPARENT=00-")[1][:32] in traces for text in told)


@pytest.mark.docker
def test_the_same_tests_give_the_same_verdicts(run, capsys):
    found = again(run, capsys)
    assert found.status == 0
    assert "6 rollouts judged again, 0 verdicts changed, 0 not judged" in found.said
    assert found.lines.keys() == {one.id for one in read_rollouts(run.path)}


@pytest.mark.docker
def test_one_test_made_stricter_changes_exactly_the_verdicts_that_it_should(run, tasks, tmp_path, capsys):
    stricter = tmp_path / "stricter"
    shutil.copytree(tasks, stricter)
    with (stricter / "create-greeting/tests/test_state.py").open("a") as file:
        file.write("\n    def test_the_line_ends(self):\n        text = Path('/app/greeting.txt').read_text()\n")
        file.write("        self.assertTrue(text.endswith('\\n'))\n")
    found = again(run, capsys, "--tasks", stricter)
    without = {one.id for one in read_rollouts(run.path) if "+hello world\n\\ No newline" in one.verdict.patch}
    assert len(without) == 1
    assert {name for name, line in found.lines.items() if line["changed"]} == without
    for name in without:
        assert (found.lines[name]["before"], found.lines[name]["now"]) == (1.0, 0.0)
        assert found.lines[name]["tests"]["test_state.py::State::test_the_line_ends"] == [None, "failed"]
    assert "1 verdict changed" in found.said


@pytest.mark.docker
def test_other_rewards_and_tasks_that_are_gone(run, tasks, tmp_path, capsys, monkeypatch):
    (tmp_path / "own_reward.py").write_text("def half(task, outcome):\n    return outcome.verdict.reward / 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = again(run, capsys, "--only", "first-line", "elsewhere", "--reward", "own_reward:half")
    assert "--only: no rollout is of a task with the tag or the id elsewhere\n" in found.errors
    assert sorted(line["reward_now"] for line in found.lines.values()) == [0.0, 0.5, 0.5]
    (tmp_path / "short.py").write_text(
        "from envs.rewards import Shaping\nones = Shaping(long_reply=1000, free_tokens=1)\n"
    )
    first, other = (set(load_task(tasks / name).tags) for name in ("first-line", "create-greeting"))
    tag = (first - other).pop()
    found = again(run, capsys, "--only", tag, "--reward", "short:ones")
    assert len(found.lines) == 3
    assert all(
        line["reward_now"] < line["reward_before"] and line["now"] == line["before"] for line in found.lines.values()
    )
    one = tmp_path / "one"
    shutil.copytree(tasks / "first-line", one / "first-line")
    found = again(run, capsys, "--tasks", one)
    assert found.status == 1
    assert sum("no task of this name" in line["problem"] for line in found.lines.values()) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "holds no rollouts; name the directory of a run"),
        (["--reward", "nowhere:reward"], "--reward"),
        (["--tasks", "/nowhere"], "/nowhere"),
        (["--sandbox", "local"], "holds no rollout that can be read"),
        (["--sandbox", "local", "--only", "a", "b"], "holds no rollout of a, b that can be read"),
    ],
)
def test_what_can_not_be_is_said(tmp_path, capsys, options, said):
    if options:
        (tmp_path / "rollouts.jsonl").touch()
        options = [*options, *([] if "--tasks" in options else ["--tasks", "starter"])]
    assert main([str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("options", [None, {"group_size": 8}])
def test_a_run_that_does_not_say_its_tasks_needs_them_named(tmp_path, capsys, options):
    (tmp_path / "rollouts.jsonl").touch()
    if options:  # as of a function
        (tmp_path / "run.json").write_bytes(orjson.dumps({"starts": [{"options": options}]}))
    assert main([str(tmp_path)]) == 2
    assert "give --tasks" in capsys.readouterr().err


def test_a_run_of_another_user_needs_another_place_for_the_verdicts(tmp_path, capsys):
    with shared_folder() as run:
        (run / "rollouts.jsonl").touch()
        with reading_only(run):
            assert main([str(run), "--tasks", "starter", "--sandbox", "local"]) == 2
    assert f"this user can't write in {run}; give --out FILE" in capsys.readouterr().err


def test_tasks_that_were_elsewhere_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts.jsonl").touch()
    (tmp_path / "run.json").write_text('{"starts": [{"options": {"tasks": "my-tasks"}}]}')
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path} had its tasks in my-tasks, and nothing is there" in capsys.readouterr().err


def test_the_tasks_are_those_of_the_runs_own_manifest(tmp_path):
    shutil.copytree(STARTER / "create-greeting", tmp_path / "tasks/create-greeting")
    digest = load_task(tmp_path / "tasks/create-greeting").digest
    record = '[{"tests": ["test_greeting"]}]'
    checked = CheckResult("create-greeting", digest, "image", (1.0,), (0.0,), 1.0, record=record)
    write_manifest(tmp_path / "elsewhere.json", [checked])
    saved = {"tasks": str(tmp_path / "tasks"), "manifest": str(tmp_path / "elsewhere.json")}
    (tmp_path / "run.json").write_bytes(orjson.dumps({"starts": [{"options": saved}]}))
    setting = read_setting(rejudge_parser().parse_args([str(tmp_path)]))
    assert setting.tasks["create-greeting"].hidden.record == record
