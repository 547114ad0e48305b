"""Rollouts with MCP servers, from the command line to their saved results."""

import json
import re
from pathlib import Path

import programs
import pytest
from scripted_engine import ScriptedEngine

from envs.records.read import read_rollouts

pytest.importorskip("mcp", reason="the extra mcp is not installed")

ODD = Path(__file__).parents[2] / "tools/mcp/odd_server.py"


def make_task(folder, manner, image):
    toml = (
        "[[environment.mcp_servers]]\n"
        f'name = "numbers"\ntransport = "stdio"\ncommand = "python3"\nargs = ["/srv/odd_server.py", "{manner}"]\n'
    )
    for path, text in {
        "task.toml": toml,
        "instruction.md": "Write the sum of 2 and 3 to sum.txt.",
        "environment/Dockerfile": f"FROM {image}\nCOPY odd_server.py /srv/odd_server.py\nWORKDIR /app\n",
        "environment/odd_server.py": ODD.read_text(),
        "tests/test.sh": "grep -cx 5 sum.txt > /logs/verifier/reward.txt",
        "solution/solve.sh": "echo 5 > sum.txt",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def policy(prompt):
    """Ask the server, and write what it says."""
    results = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", prompt, re.DOTALL)
    if len(results) == 2:
        return "Done."
    called = (
        {"name": "terminal", "arguments": {"command": f"echo {results[0][0]} > sum.txt"}}
        if results
        else {"name": "add", "arguments": {"a": 2, "b": 3}}
    )
    return f"<tool_call>{json.dumps(called)}</tool_call>"


def run(*argv):
    return programs.run(["-m", "envs.swe", *argv])


def evaluated(kind, tokenizer, folder, tmp_path, base_image):
    """Evaluate a task with a server of this kind."""
    make_task(tmp_path / "tasks/sum", kind, base_image)
    with ScriptedEngine(policy, tokenizer, root=folder) as engine:
        places = (f"--env.tasks={tmp_path / 'tasks'}", f"--env.run_dir={tmp_path / 'run'}")
        return run("evaluate", f"--openai.base_url={engine.url}", *places)


@pytest.mark.docker
def test_an_agent_uses_the_tools_of_its_tasks_server(smollm2_tokenizer, tokenizer_folder, tmp_path, base_image):
    done = evaluated("good", smollm2_tokenizer, tokenizer_folder, tmp_path, base_image)
    assert done.returncode == 0, done.stderr
    (rollout,) = read_rollouts(tmp_path / "run")
    assert rollout.verdict.reward == 1.0
    first = rollout.result.steps[0].results[0]
    assert (first.call.name, first.content, first.metadata) == ("add", "5 (1)", {"mcp_server": "numbers"})


@pytest.mark.docker
def test_a_server_that_dies_makes_no_reward(smollm2_tokenizer, tokenizer_folder, tmp_path, base_image):
    done = evaluated("exits", smollm2_tokenizer, tokenizer_folder, tmp_path, base_image)
    assert done.returncode != 0
    assert "the MCP server 'numbers' ended by itself with status 3: out of ideas" in done.stdout + done.stderr
    assert not list(read_rollouts(tmp_path / "run"))


@pytest.mark.docker
@pytest.mark.parametrize(("manner", "said"), [("good", "1 of 1 task can be used"), ("no_tools", "lists no tools")])
def test_a_check_tries_the_servers_of_a_task(tmp_path, base_image, manner, said):
    make_task(tmp_path / "tasks/sum", manner, base_image)
    done = run("tasks", "check", str(tmp_path / "tasks"))
    assert said in done.stdout + done.stderr


def test_an_agent_whose_settings_have_no_place_for_servers_is_refused_by_name(tmp_path):
    make_task(tmp_path / "tasks/sum", "good", "debian")
    done = run(
        "evaluate", f"--env.tasks={tmp_path / 'tasks'}", "--env.agent=pi", "--openai.base_url=http://127.0.0.1:9"
    )
    assert done.returncode != 0
    assert "the MCP server 'numbers': --env.agent pi can't be given any" in done.stdout + done.stderr
