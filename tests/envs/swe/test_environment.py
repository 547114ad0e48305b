"""The software engineering environment: which tasks a run has, and what it says when it can't be used."""

import pytest

from envs.rewards import Shaping
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.types import BadTask
from sandboxes.base import SandboxError


def tasks(**options):
    return [[task.id for task in part] for part in SWEEnv.load_tasks(SWEEnvConfig(**options))]


def test_without_options_every_task_of_the_starter_pack_is_trained_and_evaluated_on():
    train, evaluate = tasks()
    assert sorted(train) == sorted(evaluate)
    assert len(train) == 50


def test_tags_choose_for_each_part_by_itself():
    train, evaluate = tasks(tags=["bugfix"], eval_tags=["multifile"])
    assert (len(train), len(evaluate)) == (12, 7)
    assert not set(train) & set(evaluate)
    with pytest.raises(BadTask, match="tags"):
        tasks(tags=["bugfixes"])


def test_a_share_that_is_held_out_is_not_trained_on():
    train, evaluate = tasks(eval_share=0.2)
    assert not set(train) & set(evaluate)
    assert len(train) + len(evaluate) == 50


def test_shards_do_not_overlap():
    parts = [tasks(shard=f"{n}/3") for n in (1, 2, 3)]
    assert sorted(name for train, _ in parts for name in train) == sorted(tasks()[0])
    assert sorted(name for _, evaluate in parts for name in evaluate) == sorted(tasks()[1])


def test_there_may_be_fewer_tasks_to_evaluate_on_than_shards():
    parts = [tasks(shard=f"{n}/9", eval_tags=["multifile"]) for n in range(1, 10)]
    assert sorted(len(evaluate) for _, evaluate in parts) == [0, 0, *[1] * 7]


async def test_all_that_is_wrong_is_told_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(ExceptionGroup) as caught:
        await SWEEnv.preflight(SWEEnvConfig(tasks=str(tmp_path / "none")))
    tasks, daemon = caught.value.exceptions
    assert isinstance(tasks, BadTask)
    assert isinstance(daemon, SandboxError)


async def test_a_sandbox_that_cannot_judge_is_refused_at_the_start():
    with pytest.raises(ExceptionGroup) as caught:
        await SWEEnv.preflight(SWEEnvConfig(sandbox="local"))
    (refused,) = caught.value.exceptions
    assert "use --env.sandbox docker" in str(refused)


def test_shaping_is_off_by_default():
    assert SWEEnvConfig().shaping == Shaping()
