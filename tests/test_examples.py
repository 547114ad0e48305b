"""The examples, copied out of the repository and run as a user would run them."""

import json
import shutil
from pathlib import Path

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine

from envs.records.read import read_rollouts
from envs.swe import STARTER

CHOOSES_THE_BACKEND = """
import sys
from envs.cli import run
from envs.swe.environment import SWEEnv
from sandboxes.registry import load_backend

class Chosen(SWEEnv):
    def make_backend(self):
        return load_backend("sandbox_backend:LoggingBackend")

if __name__ == "__main__":
    sys.exit(run(Chosen))
"""
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def last_message(prompt):
    return prompt.rsplit("<|im_start|>user\n", 1)[1].split("<|im_end|>")[0]


def multiplies(prompt):
    said = last_message(prompt)
    if "<tool_response>" in said:
        return said.split("\n")[1]
    return call("calculator", expression=said.removeprefix("What is ").strip("?"))


def runs_python(prompt):
    if "<tool_response>" in last_message(prompt):
        return "done"
    return call("python", code="open('notes.txt', 'w').write('6 * 7 = 42'); print(6 * 7)")


def is_careless(prompt):
    return "done" if "<tool_response>" in last_message(prompt) else "<tool_call>oops</tool_call>"


def asks_who_it_is(prompt):
    return "done" if "<tool_response>" in last_message(prompt) else call("terminal", command="id -un")


@pytest.fixture
def run_example(smollm2_tokenizer, tmp_path):
    folder = tmp_path / "tokenizer"
    smollm2_tokenizer.save_pretrained(folder)

    def run(name, policy, *options, main=None):
        script = Path(shutil.copy(EXAMPLES[0].parent / name, tmp_path))
        if main is not None:
            script = tmp_path / "mine.py"
            script.write_text(main)
        with ScriptedEngine(policy, smollm2_tokenizer, root=str(folder)) as engine:
            done = programs.run(
                [
                    script,
                    "process",
                    f"--openai.base_url={engine.url}",
                    "--env.total_steps=1",
                    "--env.group_size=2",
                    f"--env.run_dir={tmp_path / 'run'}",
                    *options,
                ],
                cwd=tmp_path,
            )
        assert done.returncode == 0, done.stderr
        run.stderr = done.stderr
        (group,) = [orjson.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_bytes().splitlines()]
        return group, list(read_rollouts(tmp_path / "run"))

    return run


def test_an_environment_of_ones_own(run_example):
    group, _ = run_example("environment.py", multiplies)
    assert group["scores"] == [1.0, 1.0]


@pytest.mark.docker
def test_a_tool_of_ones_own(run_example, docker_backend):
    _, rollouts = run_example("tool.py", runs_python, f"--env.tasks={STARTER / 'create-notes'}")
    assert rollouts[0].result.steps[0].results[0].content.strip() == "42"


@pytest.mark.docker
def test_a_reward_of_ones_own(run_example, docker_backend):
    group, _ = run_example("reward.py", is_careless, f"--env.tasks={STARTER / 'create-notes'}")
    assert group["scores"] == [-0.1, -0.1]


@pytest.mark.docker
def test_a_sandbox_backend_of_ones_own(run_example, docker_backend):
    tasks = f"--env.tasks={STARTER / 'create-notes'}"
    run_example("sandbox_backend.py", asks_who_it_is, tasks, main=CHOOSES_THE_BACKEND)
    assert "ended with 0: root" in run_example.stderr
    assert "/verifier/run.sh" in run_example.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_fewer_than_forty_lines(path):
    assert len(path.read_text().splitlines()) < 40
