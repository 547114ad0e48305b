"""The software engineering environment: which tasks a run has, and what it says when it can't be used."""

import pytest

from envs.base import empty_tokenizer
from envs.options import EngineConfig
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.types import BadTask, BadTasks
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


def make_task(folder, dockerfile):
    for path, text in {
        "task.toml": "",
        "instruction.md": "Do it.",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": "true",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.mark.docker
async def test_a_run_without_a_manifest_is_told_so_once_with_the_command_that_makes_one(tmp_path, caplog):
    make_task(tmp_path / "one", "FROM x\nWORKDIR /app\n")
    await SWEEnv.preflight(SWEEnvConfig(tasks=str(tmp_path), eval_tasks=str(tmp_path)))
    (said,) = [record.getMessage() for record in caplog.records if "manifest" in record.getMessage()]
    assert f"`python -m envs.swe tasks check {tmp_path}` makes one" in said


class Loaded:
    """As much of an environment as tasks are loaded with."""

    def __init__(self, **options):
        self.config = SWEEnvConfig(**options)

    def tasks(self):
        return SWEEnv.load_tasks(self.config)


@pytest.mark.docker
async def test_tasks_that_the_daemon_can_not_make_are_left_out_or_refused(tmp_path, base_image, caplog):
    make_task(tmp_path / "good", f"FROM {base_image}\nWORKDIR /app\n")
    make_task(tmp_path / "bad", f"FROM {base_image}\n")
    train, evaluate = await SWEEnv.ready_tasks(Loaded(tasks=str(tmp_path)))
    assert [task.id for task in train] == [task.id for task in evaluate] == ["good"]
    assert "task bad: its working directory is /" in caplog.text
    assert "The others are used (1)" in caplog.text
    with pytest.raises(BadTasks, match="1 task can't be used"):
        await SWEEnv.ready_tasks(Loaded(tasks=str(tmp_path), bad_tasks="refuse"))
    with pytest.raises(BadTasks, match="1 task can't be used"):
        await SWEEnv.ready_tasks(Loaded(tasks=str(tmp_path / "bad")))


async def test_a_run_takes_over_the_tasks_that_its_check_loaded(tmp_path):
    make_task(tmp_path / "one", "FROM x\nWORKDIR /app\n")
    config = SWEEnvConfig(tasks=str(tmp_path), sandbox="local")
    with pytest.raises(ExceptionGroup, match="can't be used"):  # the sandbox; the tasks are loaded all the same
        await SWEEnv.preflight(config)
    elsewhere = config.model_copy(update={"tasks": str(tmp_path / "none")})
    env = SWEEnv(
        config.with_tokenizer("none", empty_tokenizer()), [EngineConfig(server_type="openai", base_url="http://none")]
    )
    (tmp_path / "one" / "task.toml").unlink()
    with pytest.raises(BadTask):
        SWEEnv(
            elsewhere.with_tokenizer("none", empty_tokenizer()),
            [EngineConfig(server_type="openai", base_url="http://none")],
        ).tasks()
    train, evaluate = env.tasks()
    assert [task.id for task in (*train, *evaluate)] == ["one", "one"]
    with pytest.raises(BadTask):
        env.tasks()  # they are handed over once
