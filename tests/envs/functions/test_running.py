"""Runs without a trainer: results are what is saved, whatever agent and model."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from asking import ask
from sums import Sums, right

from envs.functions.running import run
from envs.options import EngineConfig, UsageError
from envs.records.read import read_rollouts
from envs.running.database import RunDirectoryError, lock_directory


async def answers(task, llm):
    return float(await ask(llm, task.instruction) == "four")


async def test_results_are_what_is_read_back_from_the_directory_in_the_order_of_the_tasks(attempted):
    found = await attempted(answers, ["a", "b"], says=lambda prompt: "four" if "b" in prompt[-40:] else "5", samples=2)
    assert [one.task_id for one in found] == ["task-0", "task-0", "task-1", "task-1"]
    assert [one.seat.member for one in found] == [0, 1, 0, 1]
    saved = {one.id: one for one in read_rollouts(found.run_dir)}
    assert {one.id: one for one in found} == saved
    assert all(one.result.segments and one.result.record for one in found), "rows are there, where there are ids"
    frame = found.frame()
    assert list(frame["task"]) == [one.task_id for one in found]
    assert list(frame["reward"]) == [one.reward.value for one in found]


async def test_a_python_function_can_be_the_model_and_makes_no_rows(tmp_path):
    async def model(messages):
        return "four" if messages[-1]["content"] == "What is 2 + 2?" else "?"

    found = await run(answers, ["What is 2 + 2?"], llm=model, progress=False, run_dir=tmp_path)
    assert (found.mean_reward, found[0].result.segments, found[0].result.carries_tokens) == (1.0, (), False)


async def still(task, llm):
    return 1.0


@pytest.mark.parametrize("installed", [False, True])
async def test_a_proxy_that_clients_of_a_function_can_not_use_is_named_at_the_start(
    tmp_path, monkeypatch, caplog, installed
):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")  # the run adds to it
    monkeypatch.setitem(sys.modules, "socksio", ModuleType("socksio") if installed else None)
    if installed:
        sys.modules["socksio"].__spec__ = ModuleSpec("socksio", None)
    await run(still, ["2 + 2?"], llm=lambda messages: "four", progress=False, run_dir=tmp_path)
    assert ("AsyncOpenAI() and other clients of httpx that still makes will fail" in caplog.text) is not installed


async def test_a_model_that_returns_no_text_is_named(tmp_path):
    found = await run(answers, ["a"], llm=lambda messages: None, progress=False, run_dir=tmp_path, attempts=1)
    assert "returned a NoneType; a model returns a text" in str(found.failed[0][2])
    with pytest.raises(ValueError, match="no rollout was made"):
        _ = found.mean_reward


async def test_any_environment_runs_on_the_tasks_that_it_is_given(attempted):
    found = await attempted(Sums, [{"id": "sum-3", "instruction": "What is 3 + 3?"}], says=right)
    assert [(one.task_id, one.verdict.reward) for one in found] == [("sum-3", 1.0)]


async def test_a_bar_shows_how_far_it_is(attempted, engine, tokenizer_folder, tmp_path, capsys):
    engine.policy = lambda prompt: "four"
    await run(answers, ["a"], llm=engine.url, tokenizer_name=tokenizer_folder, run_dir=tmp_path)
    assert "1/1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("llm", "options", "said"),
    [
        (3, {}, "llm: 3 is no model"),
        ("nowhere", {}, r"base_url: this is no URL of a server; give one like"),
        (EngineConfig(), {"max_stps": 3}, r"max_stps: there is no such option; did you mean max_steps\?$"),
        (EngineConfig(), {"max_steps": "many"}, r"max_steps: Input should be a valid integer[^\n]*$"),
        (lambda messages: "", {"samples": 0}, "samples: 0 is too small; give 1 or more"),
    ],
)
async def test_what_can_not_be_used_is_told_at_the_start(llm, options, said):
    with pytest.raises(ValueError, match=said):
        await run(answers, ["a"], llm=llm, progress=False, **options)


async def test_what_is_no_agent_is_refused():
    with pytest.raises(UsageError, match="'x' is no agent"):
        await run("x", ["a"], llm=lambda messages: "")


async def test_a_directory_in_which_another_process_works_is_refused(tmp_path):
    with lock_directory(tmp_path), pytest.raises(RunDirectoryError, match="another process works in"):
        await run(answers, ["a"], llm=lambda messages: "", progress=False, run_dir=tmp_path)
    assert not (tmp_path / "metrics.json").exists()
