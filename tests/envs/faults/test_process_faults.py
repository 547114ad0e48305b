"""The environment's own process is ended or stopped in every way; the next start goes on where it was."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest
from programs import Program
from scripted_engine import ScriptedEngine
from small_disk import small_disk
from sums import half_right, right
from turns import one_of
from waiting import in_time

from atropos_agent.compaction import SUM_UP
from atropos_agent.tokens.record import problems
from envs.records.read import read_rollouts

HERE = Path(__file__).parent
GROUPS = 12
SECRET = b"sk-a-very-secret-key"


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(right, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.5) as engine:
        yield engine


@pytest.fixture
def start(engine, tmp_path):
    """Starts the program on the same run directory."""

    def start(run=tmp_path / "run", *options):
        command = [
            HERE / "sums_program.py",
            "process",
            f"--openai.base_url={engine.url}",
            f"--env.run_dir={run}",
            f"--env.total_steps={GROUPS}",
            "--env.group_size=2",
            "--env.max_concurrent_rollouts=4",
            f"--openai.api_key={SECRET.decode()}",
            *options,
        ]
        paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
        return Program(command, stdout=tmp_path / "log", env={**os.environ, "PYTHONPATH": paths})

    return start


def written(run):
    path = run / "groups.jsonl"
    whole, _, _ = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")  # the last line may be in the making
    return [orjson.loads(line) for line in whole.splitlines()]


def wait_for(condition, process):
    assert in_time(lambda: condition() or process.poll() is not None)
    assert condition(), "the process ended by itself"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "SIGTERM"])
def test_after_its_end_a_new_start_continues_the_run(engine, start, tmp_path, number):
    run = tmp_path / "run"
    first = start()
    wait_for(lambda: len(written(run)) >= 3, first)
    if number == signal.SIGTERM:
        first.send_signal(signal.SIGSTOP)
        time.sleep(4)
        first.send_signal(signal.SIGCONT)
        wait_for(lambda: "the process was suspended for" in (tmp_path / "log").read_text(), first)
    first.send_signal(number)
    assert first.wait(120) == (130 if number == signal.SIGTERM else -number)
    before = len(written(run))
    assert before < GROUPS
    assert start().wait(120) == 0, (tmp_path / "log").read_text()

    groups = written(run)
    numbers = [int(group["generation_params"]["group_id"].rpartition("-")[2]) for group in groups]
    assert sorted(numbers) == list(range(GROUPS)), "no task is repeated, none is left out"
    tasks = {n: group["generation_params"]["task_id"] for n, group in zip(numbers, groups, strict=True)}
    assert len({tasks[n] for n in range(6)}) == len({tasks[n] for n in range(6, 12)}) == 6, "in epochs, as drawn"
    assert all(group["scores"] == [1.0, 1.0] for group in groups)
    # Two rollouts a group and two replies a rollout; what was sampled before the end is not sampled again.
    # Lost are at most the request under way of each rollout and the reply that is being written down, and two requests
    # are about tokens.
    assert engine.requests <= 4 * GROUPS + 2 * 4 + 2
    lines = (run / "rollouts.jsonl").read_bytes().splitlines()
    ids = Counter(name for group in groups for name in group["generation_params"]["rollout_ids"])
    assert max(ids.values()) == 1
    assert len(lines) >= 2 * GROUPS
    for path in [tmp_path / "log", *run.rglob("*")]:
        assert path.is_dir() or SECRET not in path.read_bytes(), "secrets reach no file"


class Summing:
    """Talks until little room is left, sums up, and tells the truth. held: the first summary waits for it."""

    def __init__(self):
        self.begun, self.held = threading.Event(), threading.Event()

    def __call__(self, prompt):
        if SUM_UP in prompt.rsplit("<|im_start|>user", 1)[1]:
            self.begun.set()
            self.held.wait(60)
            return "It is a sum."
        if "your own summary of it" in prompt:
            return right(prompt)
        return "I add and add. " * 30 + half_right(f"What is {prompt.rsplit('What is ', 1)[1].split(' ')[0]} ")


@pytest.mark.timeout(600)
def test_a_kill_in_the_middle_of_a_summary_costs_that_reply_alone(engine, start, tmp_path):
    run, engine.policy = tmp_path / "run", Summing()
    options = ("--env.compaction=summary", "--env.max_token_length=1400", "--env.max_reply_tokens=260")
    first = start(run, *options)
    assert engine.policy.begun.wait(90), (tmp_path / "log").read_text()
    first.send_signal(signal.SIGKILL)
    assert first.wait(30) == -signal.SIGKILL
    asked = engine.requests
    engine.policy.held.set()
    assert start(run, *options).wait(240) == 0, (tmp_path / "log").read_text()
    assert [group["scores"] for group in written(run)] == [[1.0] * 4] * GROUPS, "each rollout has two rows"
    rollouts = list(read_rollouts(run))
    for rollout in rollouts:
        told = rollout.result.metadata["conversations"]
        assert (told["branches"]["summary"], told["compaction"]["count"], told["untrained_tokens"]) == (1, 1, {})
        assert [row.branch for row in rollout.result.segments] == ["main", "main"]
        assert problems(rollout.result.segments, rollout.result.record) == [None] * 2
    replies = sum(len(rollout.result.steps) for rollout in rollouts)
    assert engine.requests <= replies + 2 * 4 + 2 * 2, f"{asked} were asked before; what was sampled is not again"


def moved(disk, run):
    run.rename(disk.path / "elsewhere")
    yield
    assert not run.exists(), "nothing was made where it is not"
    (disk.path / "elsewhere").rename(run)


def hidden(disk, run):
    mount = ["mount", "-t", "tmpfs", "x", run]
    subprocess.run(mount, check=True)
    yield
    assert not [*run.glob("*.jsonl")], "nothing was written where it is not"
    subprocess.run(["umount", "-l", run], check=True)


def read_only(disk, run):
    # With files open for writing a file system can't be made read-only as a whole; its mount can.
    subprocess.run(["mount", "--bind", run, run], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", run], check=True)
    yield
    subprocess.run(["umount", "-l", run], check=True)


@pytest.mark.parametrize("away", one_of([moved, hidden, read_only]))
def test_a_disk_that_is_away_for_a_while_is_waited_for(start, tmp_path, away):
    with small_disk(tmp_path / "disk", 64) as disk:
        run = disk.path / "run"
        process = start(run)
        wait_for(lambda: len(written(run)) >= 2, process)
        its_time = away(disk, run)
        next(its_time)
        time.sleep(4.0)
        assert process.poll() is None, (tmp_path / "log").read_text()
        next(its_time, None)
        assert process.wait(120) == 0, (tmp_path / "log").read_text()
        groups = written(run)
        numbers = [int(group["generation_params"]["group_id"].rpartition("-")[2]) for group in groups]
        assert sorted(numbers) == list(range(GROUPS)), "no group is lost or twice"
        assert all(group["scores"] == [1.0, 1.0] for group in groups)
        assert "waiting until it can be written" in (tmp_path / "log").read_text()


def test_sighup_ends_the_run_in_order(start, tmp_path):
    run = tmp_path / "run"
    first = start()
    wait_for(lambda: len(written(run)) >= 2, first)
    first.send_signal(signal.SIGHUP)
    assert first.wait(120) == 130
    assert start().wait(120) == 0
    assert len(written(run)) == GROUPS
