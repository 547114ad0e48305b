"""Three real agents in one run: each group has one, `kill -9` doubles nothing, and an evaluation compares them."""

import json
import shutil
import signal
import time
from collections import Counter

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine

from envs.agents.naming import FOREIGN
from envs.agents.rehearsal import shell_pattern
from envs.agents.table import read_rows
from envs.records.read import read_rollouts
from envs.swe import STARTER

AGENTS = ("codex", "gptme", "opencode")
MIX = ",".join(AGENTS)
COMMANDS = {
    "codex": r"printf 'buy milk\n' > notes.txt",
    "gptme": r"printf 'buy tea\n' > notes.txt",
    "opencode": r"printf 'buy milk\n' > notes.txt",
}

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


def policy(prompt):
    """Return the agent's one command, and its end once the prompt holds that; a title to prompts without tools."""
    agent = next((name for name in AGENTS if shell_pattern(FOREIGN[name]).search(prompt)), None)
    if agent is None:
        return "A title"
    if "printf 'buy" not in prompt:
        return called(*FOREIGN[agent].runs(COMMANDS[agent]))
    return called(FOREIGN[agent].finishes, {}) if FOREIGN[agent].finishes else "Done."


def called(name, arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.fixture
def command(tmp_path, smollm2_tokenizer, tokenizer_folder):
    for name in ("create-notes", "create-greeting"):
        shutil.copytree(STARTER / name, tmp_path / "tasks" / name)
    with ScriptedEngine(policy, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.3) as engine:
        engine.window = 65536
        at = (f"--openai.base_url={engine.url}", f"--env.tasks={tmp_path / 'tasks'}", f"--env.agent={MIX}")
        bounds = ("--env.max_token_length=60000", "--env.max_concurrent_rollouts=4")
        yield lambda what, run_dir, *more: ["-m", "envs.swe", what, *at, *bounds, f"--env.run_dir={run_dir}", *more]


def groups_of(run_dir):
    path = run_dir / "groups.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_a_mix_of_three_goes_on_after_kill_9_with_nothing_doubled(command, tmp_path):
    run_dir, groups = tmp_path / "run", 6
    more = (f"--env.total_steps={groups}", "--env.group_size=2", "--env.equal_rewards=send", "--env.seed=2")
    started = command("process", run_dir, *more)
    first = programs.Program(started, stdout=tmp_path / "log")
    while len(groups_of(run_dir)) < 2:
        assert first.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    assert first.wait(120) == -signal.SIGKILL
    assert len(groups_of(run_dir)) < groups
    done = programs.run(started, timeout=600)
    assert done.returncode == 0, done.stderr
    made = groups_of(run_dir)
    ids = [name for group in made for name in group["generation_params"]["rollout_ids"]]
    assert len(made) == groups and len(set(ids)) == len(ids) == 2 * groups
    of = {one.id: one for one in read_rollouts(run_dir)}
    agents = [{of[name].seat.agent for name in group["generation_params"]["rollout_ids"]} for group in made]
    assert all(len(one) == 1 for one in agents) and set.union(*agents) == set(AGENTS)
    for name in ids:
        result = of[name].result
        assert result.metadata["agent"]["name"] == of[name].seat.agent
        assert sum(row.trained for row in result.segments) <= sum(len(exchange.ids) for exchange in result.record)


def test_an_evaluation_of_three_tells_them_apart_in_one_table(command, tmp_path):
    evaluation = command("evaluate", tmp_path / "run", "--env.eval_samples=2", "--env.eval_ks=1,2")
    done = programs.run(evaluation, timeout=600)
    assert done.returncode == 0, done.stderr
    told = orjson.loads((tmp_path / "run" / "eval-0.json").read_bytes())
    solved = {name: {task["task_id"]: task["solved"] for task in of["tasks"]} for name, of in told["agents"].items()}
    assert solved == {
        "codex": {"create-greeting": 0, "create-notes": 2},
        "gptme": {"create-greeting": 0, "create-notes": 0},
        "opencode": {"create-greeting": 0, "create-notes": 2},
    }
    assert told["about"]["samples"] == {"tasks": 2, "samples_each": 2, "made": 12, "missing": 0}
    assert "pass@1 − codex" in done.stdout and "-50%" in done.stdout, done.stdout
    assert Counter(row.agent for row in read_rows(tmp_path / "run")) == dict.fromkeys(AGENTS, 1)
