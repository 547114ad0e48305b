"""Rollouts of an agent that isn't ours, from the command line to saved rows."""

import json
from pathlib import Path

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine

from envs.agents.table import read_row, table
from envs.records.read import read_rollouts
from envs.swe import STARTER

AGENT = Path(__file__).parents[1] / "agents/small_agent.py"


def policy(prompt):
    if "<tool_response>" in prompt.rsplit("<|im_start|>user\n", 1)[1]:
        return "Done."
    command = "printf 'buy milk\\n' > notes.txt"
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"


def run(engine, command, run_dir, *options):
    task = next(path for path in STARTER.iterdir() if path.name == "create-notes")
    given = ["-m", "envs.swe", command, f"--openai.base_url={engine.url}", f"--env.tasks={task}"]
    done = programs.run([*given, f"--env.agent={AGENT}", f"--env.run_dir={run_dir}", *options])
    assert done.returncode == 0, done.stderr
    return list(read_rollouts(run_dir))


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
    row = read_row(tmp_path / "evaluated")
    assert row.agent == str(AGENT)
    assert len(table([row], 1).rows) == 1
