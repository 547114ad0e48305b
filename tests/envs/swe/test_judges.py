"""A run with a judge by model, from the command line to its saved verdicts."""

import asyncio
import json
import os

import programs
import pytest
from judge_samples import judge_task, judging, naive
from scripted_engine import ScriptedEngine

from envs.records.read import read_rollouts


def policy(prompt):
    if "<tool_response>" in prompt.rsplit("<|im_start|>user\n", 1)[1]:
        return "Done."
    return (
        f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': 'echo 42 > answer.txt'}})}</tool_call>"
    )


async def run(*argv):
    env = {**os.environ, "THE_KEY": "sk-of-the-judge"}
    done = await asyncio.to_thread(programs.run, ["-m", "envs.swe", *argv], env=env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.docker
async def test_a_run_names_the_judge_of_its_tasks(smollm2_tokenizer, tokenizer_folder, tmp_path, base_image):
    judge_task(tmp_path / "tasks/answer", base_image)
    with ScriptedEngine(policy, smollm2_tokenizer, root=tokenizer_folder) as engine:
        given = [
            f"--openai.base_url={engine.url}",
            f"--env.tasks={tmp_path / 'tasks'}",
            f"--env.run_dir={tmp_path / 'run'}",
        ]
        async with judging(naive) as (url, asked):
            status, said = await run("evaluate", *given, f"--env.judge={url}", "--env.judge_key=THE_KEY")
            checked, told = await run("tasks", "check", str(tmp_path / "tasks"), "--judge", url)
    assert status == 0, said
    assert checked == 0, told
    (rollout,) = read_rollouts(tmp_path / "run")
    assert rollout.verdict.reward == 1.0 and "looked for 42" in rollout.verdict.explanation
    assert asked[0][1]["Authorization"] == "Bearer sk-of-the-judge"
    saved = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"sk-of-the-judge" not in saved


async def test_a_task_that_asks_a_judge_is_no_task_of_a_run_without_one(tmp_path):
    judge_task(tmp_path / "tasks/answer", "debian")
    status, said = await run("evaluate", f"--env.tasks={tmp_path / 'tasks'}", "--openai.base_url=http://127.0.0.1:9")
    assert status != 0
    remedy = "name one with --env.judge URL (tasks check: --judge URL)"
    assert f"task answer: its test.sh asks a model to judge; {remedy}" in said


async def test_a_judge_that_does_not_know_its_model_is_refused_at_the_start(tmp_path):
    judge_task(tmp_path / "tasks/answer", "debian")
    async with judging(lambda body: 400) as (url, _):
        given = [f"--env.tasks={tmp_path / 'tasks'}", f"--env.judge={url}", "--env.judge_model=typo"]
        status, said = await run("evaluate", *given, "--openai.base_url=http://127.0.0.1:9")
    assert status == 2
    assert f"--env.judge: the judge at {url} refuses a plain question: HTTP 400" in said
