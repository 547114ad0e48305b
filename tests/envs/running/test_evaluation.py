"""Evaluations: each sample counted once, also of one that was killed and continued; what is compared with what."""

import asyncio
import json
import random
import re
from collections import Counter
from dataclasses import replace

import orjson
import pytest
from samples import rollout
from sums import Sums, right

from envs.config import AgentEnvConfig
from envs.records import disk
from envs.records.atif import Place
from envs.records.stats import EvalSummary
from envs.running.commands import evaluate_once
from envs.running.database import RunDirectoryError, lock_directory
from envs.running.evaluation import EvaluationMismatchError, Samples, describe_losses, evaluate, evaluation_conditions
from envs.types import InfraError, Task

SOLVED, UNSOLVED, BROKEN = (Task(name, "Do it.") for name in ("solved", "unsolved", "broken"))


class Scripted:
    """Makes rollouts that solve one task; another has infrastructure failures."""

    def __init__(self, error=None):
        self.error = error or InfraError("sandbox", "it is gone")
        self.seats = []

    async def make(self, task, seat):
        self.seats.append(seat)
        if task is BROKEN:
            raise self.error
        return rollout(of=task, reward=float(task is SOLVED)), Place(0, 0, 0)


@pytest.fixture
def directory(tmp_path):
    with lock_directory(tmp_path):
        yield tmp_path


async def test_every_task_is_attempted_as_often_as_asked_and_our_failures_are_left_out(directory):
    made = Scripted()
    config = AgentEnvConfig(eval_samples=3, eval_ks=[1])
    summary = await evaluate(made, [SOLVED, UNSOLVED, BROKEN], config, directory, step=7)
    assert summary.pass_at[1].mean == summary.reward.mean == 0.5
    assert list(summary.unsampled) == ["broken"]
    assert summary.lost == {"sandbox: it is gone": 3}
    assert b"it is gone" not in (directory / "eval-7.json").read_bytes(), "servers' words may hold secrets"
    assert len(made.seats) == 9
    assert all(seat.evaluating and seat.step == 7 for seat in made.seats)
    assert json.loads((directory / "eval-7.json").read_bytes())["pass_at"]["1"]["mean"] == 0.5


async def test_a_cancelled_rollout_is_left_out_and_a_mistake_of_ours_is_raised(directory):
    config = AgentEnvConfig(eval_samples=1, eval_ks=[1])
    summary = await evaluate(Scripted(asyncio.CancelledError()), [SOLVED, BROKEN], config, directory)
    assert summary.reward.mean == 1.0
    with pytest.raises(KeyError):
        await evaluate(Scripted(KeyError("x")), [SOLVED, BROKEN], config, directory)


class Busy(Scripted):
    """Makes so many rollouts at once, and others never."""

    def __init__(self, at_once):
        super().__init__()
        self.at_once = at_once

    async def make(self, task, seat):
        made = await super().make(task, seat)
        if len(self.seats) > self.at_once:
            await asyncio.Event().wait()
        return made


def tokens(samples):
    """The tokens of so many samples of these tests."""
    return samples * sum(step.prompt_tokens + step.completion_tokens for step in rollout().result.steps)


async def test_an_evaluation_ends_when_its_tokens_are_used_up_and_a_later_start_goes_on(directory):
    config = AgentEnvConfig(eval_samples=10, eval_tokens=tokens(2))
    summary = await evaluate(Busy(2), [SOLVED], config, directory)
    assert summary.about["samples"] == {"tasks": 1, "samples_each": 10, "made": 2, "missing": 8}
    used_up = (
        r"missing: 8 of 10 samples(, more .* allows)?: the tokens of --env.eval_tokens are used up; .* \(8 times\)"
    )
    assert re.fullmatch(used_up, describe_losses(summary, 0.1))
    assert re.fullmatch(used_up, describe_losses(summary, 0.9)), "it is no failure that might be borne"
    more = config.model_copy(update={"eval_tokens": tokens(9)})
    whole = await evaluate(Busy(8), [SOLVED], more, directory)
    assert whole.about["samples"]["missing"] == 0 and describe_losses(whole, 0.1) is None


async def test_tokens_used_up_by_the_last_sample_cost_none(directory):
    config = AgentEnvConfig(eval_tokens=tokens(2))
    summary = await evaluate(Busy(2), [SOLVED, UNSOLVED], config, directory)
    assert not summary.lost and summary.about["samples"]["missing"] == 0


class Two(Scripted):
    """Makes rollouts of two agents: codex solves each task, pi one of them; some fail."""

    async def make(self, task, seat):
        self.seats.append(seat)
        if (task, seat.agent) == (BROKEN, "pi"):
            raise self.error
        return rollout(of=task, reward=float(seat.agent == "codex" or task is SOLVED)), Place(0, 0, 0)


async def test_every_agent_of_a_mix_works_on_every_task_and_the_file_tells_them_apart(directory):
    made, config = Two(), AgentEnvConfig(agent="codex:1,pi:2", eval_samples=2, eval_ks=[1, 2])
    summary = await evaluate(made, [SOLVED, UNSOLVED, BROKEN], config, directory)
    assert Counter((seat.agent, seat.member) for seat in made.seats) == dict.fromkeys(
        [("codex", 0), ("pi", 1), ("codex", 2), ("pi", 3)], 3
    )
    assert {agent: of.pass_at[1].mean for agent, of in summary.agents.items()} == {"codex": 1.0, "pi": 0.5}
    told = orjson.loads((directory / "eval-0.json").read_bytes())
    assert told["about"]["samples"] == {"tasks": 3, "samples_each": 2, "made": 10, "missing": 2}
    assert [task["samples"] for task in told["tasks"]] == [2, 4, 4]
    assert [task["solved"] for task in told["agents"]["pi"]["tasks"]] == [2, 0]
    assert told["agents"]["pi"]["unsampled"] == ["broken"]
    assert summary.metrics()["eval/pass@1/pi"] == 0.5
    lines = [orjson.loads(line) for line in (directory / "eval-0.samples.jsonl").read_bytes().splitlines()[1:]]
    assert Counter(line["agent"] for line in lines) == {"codex": 6, "pi": 4}

    again = Two()
    more = config.model_copy(update={"eval_samples": 3})
    await evaluate(again, [SOLVED, UNSOLVED, BROKEN], more, directory)
    assert Counter(seat.agent for seat in again.seats) == {"codex": 3, "pi": 5}, "what is there is not made again"


async def test_a_task_with_an_agents_tag_is_evaluated_with_that_agent_alone(directory):
    tagged = Task("tagged", "", tags=("agent=pi",))
    config = AgentEnvConfig(agent="codex,pi", eval_samples=2)
    summary = await evaluate(Two(), [tagged, SOLVED], config, directory)
    assert {agent: [task.task_id for task in of.tasks] for agent, of in summary.agents.items()} == {
        "codex": ["solved"],
        "pi": ["solved", "tagged"],
    }


@pytest.fixture
def policy():
    return right


def written(env):
    return orjson.loads((env.run_dir / "eval-0.json").read_bytes())


async def test_the_file_names_model_sampling_and_samples(make_env):
    env = make_env(eval_samples=2, eval_temperature=0.7)
    await evaluate_once(env)
    about = written(env)["about"]
    assert about["models"] == ["scripted"] and about["environment"] == "sums"
    assert about["sampling"]["eval_temperature"] == 0.7
    assert about["samples"] == {"tasks": 3, "samples_each": 2, "made": 6, "missing": 0}


async def test_an_evaluation_that_is_killed_again_and_again_counts_each_sample_once(make_env):
    class Dying(Sums):
        async def attempt(self, task, seat):
            if rng.random() < 0.25:
                raise KilledHere
            return await super().attempt(task, seat)

    class KilledHere(BaseException):
        """Not a failure that is retried: the process is gone."""

    rng, starts = random.Random(3), 0
    while True:
        starts += 1
        env = make_env(Dying, eval_samples=4, max_concurrent_rollouts=2)
        try:
            await evaluate_once(env)
            break
        except KilledHere:
            with (env.run_dir / "eval-0.samples.jsonl").open("ab") as file:
                file.write(b'{"task": "sum-0", "sam')  # a line that was being written
    made = read_lines(env)
    assert starts > 2
    assert len(made) == len({(line["task"], line["sample"]) for line in made}) == 12
    assert [task["samples"] for task in written(env)["tasks"]] == [4, 4, 4]
    assert all(task["solved"] == 4 for task in written(env)["tasks"])


def read_lines(env):
    found = []
    for line in (env.run_dir / "eval-0.samples.jsonl").read_bytes().splitlines():
        try:
            found.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return [line for line in found if "reward" in line]


async def test_an_evaluation_waits_for_a_disk_that_is_away_and_does_not_take_an_empty_folder_for_it(
    make_env, monkeypatch
):
    monkeypatch.setattr(disk, "PAUSE_S", 0.05)
    env = make_env(eval_samples=1)
    away = env.run_dir.with_name("away")

    class Leaving(Sums):
        async def attempt(self, task, seat):
            if task.id == "sum-0":
                self.run_dir.rename(away)
                self.run_dir.mkdir()
                asyncio.get_running_loop().call_later(0.3, bring_back)
            return await super().attempt(task, seat)

    def bring_back():
        assert not list(env.run_dir.iterdir()), "nothing was written where the disk was"
        env.run_dir.rmdir()
        away.rename(env.run_dir)

    summary = await evaluate_once(make_env(Leaving, eval_samples=1))
    assert len(read_lines(env)) == 3
    assert summary.about["samples"]["missing"] == 0


async def test_two_evaluations_do_not_work_in_one_directory(make_env):
    env = make_env()
    with lock_directory(env.run_dir), pytest.raises(RunDirectoryError, match="another process works in"):
        await evaluate_once(env)


async def test_what_failed_by_our_fault_is_made_by_the_next_start_and_more_samples_are_added(make_env):
    class Failing(Sums):
        def failing(self, task, attempt):
            return task.id == "sum-1"

    env = make_env(Failing, attempts=1)
    await evaluate_once(env)
    assert written(env)["about"]["samples"] == {"tasks": 3, "samples_each": 1, "made": 2, "missing": 1}
    env = make_env(eval_samples=2)
    await evaluate_once(env)
    assert sum(env.attempts.values()) == 4
    assert written(env)["about"]["samples"]["made"] == 6


async def test_samples_without_their_conditions_are_made_again_at_every_later_start(make_env, caplog):
    await evaluate_once(env := make_env())
    path = env.run_dir / "eval-0.samples.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    other = make_env(eval_temperature=1.0)
    await Samples.open(path, {**evaluation_conditions(other), "step": 0})  # and here the process is killed
    assert "has lost its first line, which names the conditions of its 3 samples: these are made again" in caplog.text
    await evaluate_once(other)
    assert sum(other.attempts.values()) == 3


async def test_the_samples_of_a_task_that_has_changed_are_made_again(directory, caplog):
    config, made = AgentEnvConfig(eval_samples=2), Scripted()
    for old, new in [("a", "b"), ("b", "b")]:
        await evaluate(made, [SOLVED, replace(UNSOLVED, digest=old)], config, directory)
        summary = await evaluate(made, [SOLVED, replace(UNSOLVED, digest=new)], config, directory)
    assert summary.about["samples"]["made"] == 4
    assert len(made.seats) == 6, "and those of the others are not"
    assert [record.message for record in caplog.records if "made again" in record.message] == [
        "1 task changed since the earlier start: their samples are made again"
    ]


async def test_another_evaluation_in_the_same_directory_is_refused(make_env):
    await evaluate_once(make_env())
    with pytest.raises(EvaluationMismatchError, match=r"sampling.eval_temperature: 0.0 there, 1.0 here.*give another"):
        await evaluate_once(make_env(eval_temperature=1.0))


async def test_a_failing_sample_ends_the_evaluation_at_once(make_env):
    class Wrong(Sums):
        async def attempt(self, task, seat):
            raise ValueError("always")

    async with asyncio.timeout(120):
        with pytest.raises(RuntimeError, match="none of the rollouts succeeds"):
            await evaluate_once(make_env(Wrong, eval_samples=8))


@pytest.mark.parametrize(
    ("made", "lost", "most", "said"),
    [
        (
            0,
            {"engine: 401: wrong key": 2},
            1.0,
            r"no sample was made: engine: 401: wrong key \(2 times\)$",
        ),
        (9, {"a": 1}, 0.1, None),
        (8, {"a": 1, "b": 1}, 0.1, r"missing: 2 of 10 samples, more than the share of 0.1 that .*eval_lost.*: a; b"),
        (1, {"a": 9}, 1.0, None),
        (10, {}, 0.0, None),
        (9, {"a": 1}, 0.0, "missing: 1 of 10 samples"),
        (0, {}, 0.1, "there is no task to evaluate on"),
    ],
)
def test_what_is_lost_is_told_where_it_is_more_than_may_be(made, lost, most, said):
    counts = {"made": made, "missing": sum(lost.values())}
    found = describe_losses(EvalSummary((), {}, None, about={"samples": counts}, lost=lost), most)
    if said is None:
        assert found is None
    else:
        assert re.search(said, found or "")
