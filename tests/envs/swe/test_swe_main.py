"""The commands as a user types them, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import programs
import pytest
from programs import Program, lines_of
from scripted_engine import ScriptedEngine
from stopwatch import Stopwatch

from envs.records.read import read_rollouts
from envs.swe import STARTER
from envs.swe.__main__ import main
from envs.tasks.harbor import load_tasks

TASKS = {task.instruction.strip(): task for task in load_tasks(STARTER) if "terminal" in task.tags}
TWO = ("create-notes", "count-words")


def command(*arguments):
    return ["-m", "envs.swe", *arguments]


def run(*arguments, **env):
    return programs.run(command(*arguments), env={**os.environ, **env})


def solves(prompt):
    """Runs the reference solution of the task that the prompt states, then submits."""
    if "<tool_response>\n" in prompt.rsplit("<|im_start|>user", 2)[-1]:
        return '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    instruction = prompt.rsplit("<|im_start|>user\n", 1)[1].split("<|im_end|>")[0].strip()
    script = (TASKS[instruction].hidden.solution / "solve.sh").read_text()
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': script}})}</tool_call>"


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(solves, smollm2_tokenizer, root=tokenizer_folder) as engine:
        yield engine


@pytest.fixture
def two_tasks(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in TWO:
        (folder / name).symlink_to(STARTER / name)
    return folder


@pytest.mark.docker
def test_process_writes_groups_rollouts_and_a_page(docker_backend, engine, two_tasks, tmp_path):
    done = run(
        "process",
        f"--openai.base_url={engine.url}",
        f"--env.tasks={two_tasks}",
        f"--env.run_dir={tmp_path / 'run'}",
        "--env.total_steps=2",
        "--env.group_size=2",
    )
    assert done.returncode == 0, done.stderr
    groups = [orjson.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_bytes().splitlines()]
    assert [group["scores"] for group in groups] == [[1.0, 1.0], [1.0, 1.0]]
    assert all(group["messages"] for group in groups)
    rollouts = list(read_rollouts(tmp_path / "run"))
    assert {rollout.task_id for rollout in rollouts} == set(TWO)
    page = (tmp_path / "run" / "rollouts.html").read_text()
    assert all(name in page for name in TWO)


@pytest.mark.docker
def test_evaluate_prints_a_table_and_keeps_the_results(docker_backend, engine, two_tasks, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"env:\n  tasks: {two_tasks}\n  eval_samples: 2\n  eval_ks: [1, 2]\nopenai:\n  base_url: {engine.url}\n"
    )
    done = run("evaluate", "--config", config, f"--env.run_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert "create-notes" in done.stdout
    assert "2/2" in done.stdout
    result = orjson.loads((tmp_path / "run" / "eval-0.json").read_bytes())
    assert result["pass_at"]["1"]["mean"] == result["pass_at"]["2"]["mean"] == 1.0


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_a_run_and_leaves_no_container(
    docker_backend, smollm2_tokenizer, tokenizer_folder, two_tasks, tmp_path, number
):
    with ScriptedEngine(solves, smollm2_tokenizer, root=tokenizer_folder, delay_s=300) as engine:
        process = Program(
            command(
                "process",
                f"--openai.base_url={engine.url}",
                f"--env.tasks={two_tasks}",
                f"--env.tokenizer_name={tokenizer_folder}",
                f"--env.run_dir={tmp_path / 'run'}",
                "--env.total_steps=2",
                "--env.group_size=4",
                "--env.sandbox_starter=docker",
            ),
            stdout=tmp_path / "log",
        )
        deadline = time.monotonic() + 120
        while len(containers_of(process.pid)) < 4 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert len(containers_of(process.pid)) >= 4
        process.send_signal(number)
        assert process.wait(timeout=120) == 130
    assert containers_of(process.pid) == []


def containers_of(pid):
    """Ids of containers, in whatever state, that the process with this id made."""
    shown = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=atropos-agent.pid={pid}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env.group_sise=4"], "group_sise"),
        (["--env.group_size=0"], "--env.group_size"),
        (["--env.worker_timeout=5"], "--env.worker_timeout: has no effect"),
        (["--env.max_reply_tokens=9000"], "max_reply_tokens (9000) must be smaller"),
        (["--env.tasks=/nonexistent"], "a task directory holds task.toml"),
        (["--env.tags=nothing"], "no task has one of the tags nothing"),
    ],
)
def test_bad_options_are_refused_at_once_with_the_remedy(arguments, said):
    watch = Stopwatch()
    done = run("serve", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert watch.seconds < 30


def test_misspelt_keys_of_a_file_are_refused_all_at_once(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("env:\n  group_sise: 4\n  max_steps: 0\nopenai:\n  base_ulr: x\n")
    done = run("serve", "--config", config)
    assert done.returncode == 2
    for place in ("env.group_sise: there is no such option", "env.max_steps", "openai.base_ulr"):
        assert place in done.stderr


@pytest.mark.docker
def test_a_missing_docker_daemon_is_told_with_the_remedy_and_waited_for(docker_backend, engine, two_tasks, tmp_path):
    there = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    options = (f"--openai.base_url={engine.url}", f"--env.tasks={two_tasks}", f"--env.run_dir={tmp_path / 'run'}")
    program = Program(
        command("evaluate", *options, "--env.eval_samples=1"),
        stdout=tmp_path / "log",
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/later.sock"},
    )
    said = next(line for line in lines_of(tmp_path / "log", program) if "Waiting for it" in line)
    assert "python -m sandboxes setup" in said
    (tmp_path / "later.sock").symlink_to(there)
    assert program.wait(120) == 0, (tmp_path / "log").read_text()


def test_what_only_the_user_can_mend_is_told_at_once_also_beside_a_missing_docker_daemon(tmp_path):
    done = run("serve", f"--env.tasks={tmp_path}", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert done.returncode == 2
    assert "holds no task" in done.stderr and "python -m sandboxes setup" in done.stderr


def test_a_wrong_tokenizer_is_refused(engine, tmp_path):
    done = run("serve", f"--openai.base_url={engine.url}", f"--env.tokenizer_name={tmp_path}")
    assert done.returncode == 2
    assert "--env.tokenizer_name" in done.stderr


def test_a_tokenizer_of_another_model_is_refused(engine, tokenizer_folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in Path(tokenizer_folder).iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    vocabulary = json.loads((other / "tokenizer.json").read_text())
    vocabulary["model"]["merges"] = vocabulary["model"]["merges"][:1000]
    (other / "tokenizer.json").write_text(json.dumps(vocabulary))
    done = run("serve", f"--openai.base_url={engine.url}", f"--env.tokenizer_name={other}")
    assert done.returncode == 2
    assert "is not the one of the inference server" in done.stderr


@pytest.mark.parametrize("dead", ["engine", "trainer API"])
def test_what_may_come_up_later_is_waited_for_with_a_line_that_says_so(engine, tmp_path, dead):
    url = "http://127.0.0.1:9/v1" if dead == "engine" else engine.url
    process = Program(
        command(
            "serve",
            f"--openai.base_url={url}",
            "--env.rollout_server_url=http://127.0.0.1:9",
            f"--env.run_dir={tmp_path / 'run'}",
        ),
        stdout=tmp_path / "log",
    )
    said = {"engine": "no inference server answers at", "trainer API": "Start it with `run-api`"}[dead]
    try:
        assert any(said in line for line in lines_of(tmp_path / "log", process))
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_python_starts_it_as_well():
    done = subprocess.run([sys.executable, "-m", "envs.swe", "--help"], capture_output=True, text=True, check=True)
    assert "python -m envs.swe COMMAND" in done.stdout


SLOW = {"aiohttp", "atroposlib", "docker", "httpx", "huggingface_hub", "numpy", "openai", "torch", "transformers"}


def test_the_help_of_no_command_waits_for_slow_imports():
    every = """
import sys
from contextlib import suppress
from envs.swe.__main__ import COMMANDS, MODULES, main
for command in (*COMMANDS, *MODULES):
    with suppress(SystemExit):
        assert main([*command.split(), "--help"]) == 0, command
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", every], capture_output=True, text=True, check=True)
    assert not SLOW & set(done.stderr.splitlines()[-1].split())


def test_help_explains_every_option():
    from envs.swe.environment import SWEEnvConfig

    done, whole = (run("serve", which, COLUMNS="500") for which in ("--help", "--help-all"))
    assert done.returncode == whole.returncode == 0
    for name, field in SWEEnvConfig.model_fields.items():
        assert field.description
        assert (f"--env.{name}" in whole.stdout) == (name not in SWEEnvConfig.for_python)
    assert done.stdout.index("--env.tasks") < done.stdout.index("--env.max_steps"), "our own come first"
    assert "--env.inference_weight" not in done.stdout, "--help has the essential ones only"
    assert not any(f"--env.{name}" in whole.stdout for name in SWEEnvConfig.unused), "what is refused is not explained"


@pytest.mark.parametrize(("platform", "said"), [("darwin", True), ("linux", False)])
def test_a_system_that_is_not_linux_is_told_where_sandboxes_run(platform, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", platform)
    assert main(["evaluate", "--nonsense"]) == 2
    assert ("ssh://USER@HOST" in capsys.readouterr().err) == said
