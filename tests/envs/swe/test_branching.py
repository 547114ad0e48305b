"""Rollouts that branch, in real sandboxes: siblings share what was before, and nothing that comes after."""

import json
import threading
from collections import Counter

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine

from atropos_agent.tokens.record import problems
from envs.delivery.worth import Loss
from envs.records.read import read_rollouts
from envs.running.exporting import scored_groups
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv

TASK = STARTER / "create-notes"
FIRST = "mkdir -p deep; cd deep; export WHO=milk; printf shared > shared; false"


def terminal(command):
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': command}})}</tool_call>"


class Model:
    """Begins with a command that fails; then each sibling does something else, the second, fourth, ... rightly."""

    def __init__(self, first=FIRST):
        self.first = first
        self.siblings = Counter()
        self.lock = threading.Lock()

    def __call__(self, prompt):
        said = prompt.split("<|im_start|>assistant\n")[1:]
        if len(said) == 1:
            return terminal(self.first)
        if len(said) == 2:
            with self.lock:
                self.siblings[prompt] += 1
                number = self.siblings[prompt]
            line = '"buy $WHO"' if number % 2 == 0 else "wrong"
            return terminal(f"sleep 0.2; echo {line} > ../notes.txt; echo n > mine-{number}; ls; pwd")
        return "Done."


@pytest.fixture
def tokenizer_place(smollm2_tokenizer, tmp_path):
    smollm2_tokenizer.save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


def command(engine, run_dir, *options):
    given = ["-m", "envs.swe", "process", f"--openai.base_url={engine.url}", f"--env.tasks={TASK}"]
    return [*given, f"--env.run_dir={run_dir}", "--env.branches=3@errors", "--env.equal_rewards=send", *options]


@pytest.mark.docker
@pytest.mark.long(30)
def test_siblings_share_files_and_terminal_up_to_there_and_none_sees_anothers_later_files(
    smollm2_tokenizer, tokenizer_place, tmp_path
):
    run_dir = tmp_path / "run"
    with ScriptedEngine(Model(), smollm2_tokenizer, root=tokenizer_place) as engine:
        done = programs.run(command(engine, run_dir, "--env.total_steps=1", "--env.group_size=2"))
    assert done.returncode == 0, done.stderr
    rollouts = list(read_rollouts(run_dir))
    assert len(rollouts) == 2
    for rollout in rollouts:
        steps = {step.index: step for step in rollout.result.steps}
        assert len(rollout.reward.leaves) == 2, "one place: later commands succeed"
        (mine,) = set(rollout.reward.leaves[0].turns) & set(rollout.reward.leaves[1].turns)
        assert mine == 0
        for leaf in rollout.reward.leaves:
            listed, place = steps[leaf.turns[1]].results[0].content.splitlines()[:-1], "/app/deep"
            assert steps[leaf.turns[1]].results[0].content.splitlines()[-1] == place, "the directory went along"
            assert "shared" in listed
            assert len([name for name in listed if name.startswith("mine-")]) == 1
        assert rollout.result.metadata["tree"]["leaves"] == 2
        assert problems(rollout.result.segments, rollout.result.record) == [None] * len(rollout.result.segments)
        assert sum(row.trained for row in rollout.result.segments) == sum(len(one.ids) for one in rollout.result.record)
    values = sorted(leaf.value for rollout in rollouts for leaf in rollout.reward.leaves)
    assert values == [0.0, 0.0, 1.0, 1.0], "variables went along, and each leaf was judged by itself"
    (group,) = scored_groups(run_dir)
    (sent,) = [orjson.loads(line) for line in (run_dir / "groups.jsonl").read_bytes().splitlines()]
    assert sent["advantages"] == [row.advantages(Loss.ROWS) for row in group.scored.rows]


@pytest.mark.docker
def test_a_rollout_with_a_background_process_of_the_models_is_not_branched_and_counted(
    smollm2_tokenizer, tokenizer_place, tmp_path
):
    model = Model("cd /app; mkdir -p deep; cd deep; WHO=milk; nohup sleep 1000 >/dev/null 2>&1 & false")
    with ScriptedEngine(model, smollm2_tokenizer, root=tokenizer_place) as engine:
        done = programs.run(command(engine, tmp_path / "run", "--env.total_steps=1", "--env.group_size=1"))
    assert done.returncode == 0, done.stderr
    (rollout,) = read_rollouts(tmp_path / "run")
    assert not rollout.reward.leaves
    assert rollout.result.metadata["tree"] == {"not forked: Busy": 1}
    assert orjson.loads((tmp_path / "run/metrics.json").read_bytes())["branches"] == {"not forked: Busy": 1}


@pytest.mark.docker
async def test_what_can_not_branch_is_refused_by_name_at_the_start():
    options = {"tasks": str(TASK), "branches": "2@errors"}
    with pytest.raises(ExceptionGroup, match="as it is") as caught:
        await SWEEnv.preflight(SWEEnvConfig(**options, agent="codex:1,atropos:1", length_penalty=0.5))
    said = "; ".join(map(str, caught.value.exceptions))
    assert "agent codex is a program, which can't go on twice from one place" in said
    assert "--env.length_penalty" in said
