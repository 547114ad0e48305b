"""Rollouts that branch, in real sandboxes: siblings share what was before, and nothing that comes after."""

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import threading
from collections import Counter

import orjson
import programs
import pytest
from scripted_engine import ScriptedEngine
from waiting import until

from atropos_agent.tokens.record import problems
from envs.delivery.worth import Loss
from envs.records.read import read_rollouts
from envs.running.exporting import scored_groups
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from sandboxes.docker.crun.reap import OWNERS

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


def command(engine, run_dir, *options, branches="3@errors"):
    given = ["-m", "envs.swe", "process", f"--openai.base_url={engine.url}", f"--env.tasks={TASK}"]
    return [*given, f"--env.run_dir={run_dir}", f"--env.branches={branches}", "--env.equal_rewards=send", *options]


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


class Numbering:
    """Never says the same twice: two commands, and an answer. fatal: the number of the request that kills `program`."""

    def __init__(self):
        self.numbers = itertools.count(1)
        self.fatal, self.program = 0, None

    def __call__(self, prompt):
        number = next(self.numbers)
        if number == self.fatal:
            os.kill(self.program.pid, signal.SIGKILL)
        said = prompt.count("<|im_start|>assistant\n")
        return terminal(f"echo {number} > mine-{number}; ls") if said < 3 else f"Done, as number {number}."


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_run_with_branches_that_is_killed_at_random_is_gone_on_with_and_no_leaf_is_there_twice(
    own_daemon, smollm2_tokenizer, tokenizer_place, tmp_path
):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng, run_dir, log, model = random.Random(seed), tmp_path / "run", tmp_path / "log", Numbering()
    options = ("--env.total_steps=2", "--env.group_size=4", "--env.max_concurrent_rollouts=8")
    ended = []
    with ScriptedEngine(model, smollm2_tokenizer, root=tokenizer_place) as engine:
        words = command(engine, run_dir, *options, branches="3@every:1")
        while not ended or ended[-1] == -signal.SIGKILL:
            model.fatal = next(model.numbers) + rng.randint(1, 25) if len(ended) < 4 else 0
            environment = {**os.environ, "DOCKER_HOST": own_daemon.url}
            model.program = programs.Program(words, stdout=log, env=environment)
            ended.append(await asyncio.to_thread(model.program.wait, 300))
    assert ended[-1] == 0, log.read_text()
    assert -signal.SIGKILL in ended
    groups = [orjson.loads(line)["generation_params"] for line in (run_dir / "groups.jsonl").read_bytes().splitlines()]
    used = {name for group in groups for name in group["rollout_ids"]}
    rollouts = [one for one in read_rollouts(run_dir) if one.id in used]  # one may be saved before it is noted
    assert sorted((one.seat.group, one.seat.member) for one in rollouts) == [(g, m) for g in range(2) for m in range(4)]
    answers = Counter()
    for rollout in rollouts:
        steps = {step.index: step for step in rollout.result.steps}
        assert len(rollout.reward.leaves) == 4
        assert problems(rollout.result.segments, rollout.result.record) == [None] * len(rollout.result.segments)
        assert sum(row.trained for row in rollout.result.segments) == sum(len(one.ids) for one in rollout.result.record)
        for leaf in rollout.reward.leaves:
            way = [steps[turn] for turn in leaf.turns]
            answers[way[-1].response] += 1
            made = [re.search(r"mine-[0-9]+", step.response).group() for step in way[:-1]]
            listed = [name for name in way[-2].results[0].content.split() if name.startswith("mine-")]
            assert sorted(listed) == sorted(made), "its files are those of its own way"
    assert len(answers) == 32 and set(answers.values()) == {1}, "no leaf twice"

    async def nothing_is_left():
        shown = ["docker", "-H", own_daemon.url, "ps", "-aq"]
        left = (await asyncio.to_thread(subprocess.run, shown, capture_output=True, check=True)).stdout.split()
        folder = own_daemon.folder / "data" / OWNERS
        return not left and not (folder.exists() and list(folder.iterdir()))

    await until(nothing_is_left)
