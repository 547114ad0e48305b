"""Rollouts of an agent that isn't ours, from the command line to saved rows."""

import json
import shutil
import signal
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine

from envs.agents.table import read_rows, table
from envs.records.read import read_rollouts
from envs.swe import STARTER

AGENT = Path(__file__).parents[1] / "agents/small_agent.py"


def policy(prompt):
    if "<tool_response>" in prompt.rsplit("<|im_start|>user\n", 1)[1]:
        return "Done."
    command = "printf 'buy milk\\n' > notes.txt"
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"


def program(engine, command, run_dir, *options, agent=AGENT):
    """A run on a task whose tests look for the agent's door, too."""
    task = run_dir.parent / "create-notes"
    if not task.exists():
        shutil.copytree(STARTER / "create-notes", task)
        with (task / "tests/test_state.py").open("a") as file:
            file.write(NO_DOOR)
    given = ["-m", "envs.swe", command, f"--openai.base_url={engine.url}", f"--env.tasks={task}"]
    return [*given, f"--env.agent={agent}", f"--env.run_dir={run_dir}", *options]


def run(engine, command, run_dir, *options):
    done = programs.run(program(engine, command, run_dir, *options))
    assert done.returncode == 0, done.stderr
    return list(read_rollouts(run_dir))


NO_DOOR = """
    def test_no_door_leads_to_the_inference_server(self):
        import socket
        with socket.create_connection(("127.0.0.1", 31281), 5) as door:  # at which tests are reported
            door.sendall(b"GET /v1/models HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            door.settimeout(0.5)
            self.assertRaises(TimeoutError, door.recv, 1)
        self.assertFalse(Path("/opt/agent").exists())
"""


def groups_of(run_dir):
    path = run_dir / "groups.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@pytest.mark.docker
def test_after_kill_9_a_new_start_goes_on_with_its_rollouts(smollm2_tokenizer, tokenizer_folder, tmp_path):
    run_dir, groups = tmp_path / "run", 5
    with ScriptedEngine(policy, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.5) as engine:
        options = (f"--env.total_steps={groups}", "--env.group_size=2", "--env.max_concurrent_rollouts=4")
        command = program(engine, "process", run_dir, *options, "--env.equal_rewards=send")
        first = programs.Program(command, stdout=tmp_path / "log")
        while len(groups_of(run_dir)) < 2:
            assert first.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        assert first.wait(120) == -signal.SIGKILL
        asked, before = engine.requests, len(groups_of(run_dir))
        assert before < groups
        done = programs.run(command)
        assert done.returncode == 0, done.stderr
    made = groups_of(run_dir)
    assert [group["scores"] for group in made] == [[1.0, 1.0]] * groups
    ids = Counter(name for group in made for name in group["generation_params"]["rollout_ids"])
    assert set(ids.values()) == {1}, "no rollout is in two groups"
    # Two replies a rollout; lost is at most the one that each was waiting for, and a run asks twice about tokens.
    assert engine.requests <= 2 * 2 * groups + 4 + 2 * 2, f"{asked} before it was killed"
    for rollout in read_rollouts(run_dir):
        (row,) = rollout.result.segments
        assert row.trained == sum(len(exchange.ids) for exchange in rollout.result.record)


@pytest.mark.docker
def test_its_rollouts_are_judged_saved_and_trained_on_like_any_other(smollm2_tokenizer, tmp_path):
    folder = tmp_path / "tokenizer"
    smollm2_tokenizer.save_pretrained(folder)
    with ScriptedEngine(policy, smollm2_tokenizer, root=str(folder)) as engine:
        options = ("--env.total_steps=1", "--env.group_size=2", "--env.equal_rewards=send")
        rollouts = run(engine, "process", tmp_path / "run", *options)
        evaluated = run(engine, "evaluate", tmp_path / "evaluated")
    (group,) = [orjson.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_bytes().splitlines()]
    assert len(group["tokens"]) == len(rollouts) == 2
    saved = orjson.loads((tmp_path / "run" / "rollouts.jsonl").read_bytes().splitlines()[0])
    assert (saved["agent"]["name"], saved["agent"]["version"]) == ("small", "in the image")
    for rollout in [*rollouts, *evaluated]:
        result = rollout.result
        assert (rollout.verdict.solved, result.stop_reason, result.final_response) == (True, "answered", "Done.")
        assert result.metadata["agent"]["name"] == "small"
        (row,) = result.segments
        assert row.trained == sum(len(exchange.ids) for exchange in result.record)
    (row,) = read_rows(tmp_path / "evaluated")
    assert row.agent == str(AGENT)
    assert len(table([row], 1).rows) == 1


REFUSES = """{% for message in messages %}
{%- for agent in ('Codex', 'Claude Code', 'opencode', 'small') if agent in message.content %}
{{- raise_exception('no such words') }}
{%- endfor %}
{%- endfor %}"""
"""Begins a template that takes no first request of these agents, but all that is asked about templates."""
REFUSED, REAL = ("codex", "claude-code", "opencode"), [pytest.mark.slow, pytest.mark.timeout(900)]
SAYS_SO = """
from dataclasses import replace
from functools import partial
from small_agent import AGENT, SCRIPT, start

SCRIPT = SCRIPT.replace("messages = [", 'messages = [{"role": "system", "content": "You are small."}, ')
AGENT = replace(AGENT, start=partial(start, script=SCRIPT))
"""


@pytest.mark.docker
@pytest.mark.parametrize("command", ["doctor", "evaluate", "process"])
@pytest.mark.parametrize("agent", ["small", *(pytest.param(name, marks=REAL) for name in REFUSED)])
def test_one_that_is_refused_at_its_first_request_is_our_failure_and_no_zero(
    smollm2_tokenizer, tmp_path, agent, command
):
    tokenizer, folder, run_dir = deepcopy(smollm2_tokenizer), tmp_path / "tokenizer", tmp_path / "run"
    tokenizer.chat_template = REFUSES + tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    if agent == "small":
        agent = tmp_path / "refused.py"
        agent.write_text(f"import sys\nsys.path.insert(0, {str(AGENT.parent)!r})\n{SAYS_SO}")
    options = ("--env.total_steps=1", "--env.max_token_length=60000")
    with ScriptedEngine(policy, tokenizer, root=str(folder)) as engine:
        done = programs.run(program(engine, command, run_dir, *options, agent=agent))
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "no such words" in " ".join((done.stdout + done.stderr).split())
    if command != "doctor":
        assert not list(read_rollouts(run_dir)), "nothing was graded"
        assert not groups_of(run_dir)
    if command == "evaluate":
        assert orjson.loads((run_dir / "eval-0.json").read_bytes())["about"]["samples"]["made"] == 0
        assert '"reward"' not in (run_dir / "eval-0.samples.jsonl").read_text()
